//! Checks of a file job's events: the receiver stores them, counts by them and passes them on.

use std::mem;

use decode::{DemuxLimits, FileReport};
use media::{Dimensions, Rotation};

use crate::{
    JobEvent, JobOptions, StageTimings, WorkerLimits, pictures::PictureSpec, record::RecordCheck,
    supervisor::JOB_THREADS_MAX, wire::WireError,
};

/// Largest count that every JSON reader represents exactly.
const COUNT_MAX: u64 = 1 << 53;

pub(crate) struct JobCheck {
    records: RecordCheck,
    is_opened: bool,
    is_measured: bool,
    is_spent: bool,
    /// Most time of all threads together, in microseconds.
    spent_max_us: u64,
}

impl JobCheck {
    pub fn new(options: &JobOptions, limits: &WorkerLimits) -> JobCheck {
        let side_max = DemuxLimits::default().side_px;
        let wall_us = u64::try_from(limits.wall.as_micros()).unwrap_or(u64::MAX);
        let next = options.resume.map_or(0, |resume| resume.next_frame());
        let spec = PictureSpec::of_job(options, Rotation::None);
        JobCheck {
            records: RecordCheck::new(next, options.max_frames, side_max, options.stills, spec),
            is_opened: false,
            is_measured: false,
            is_spent: false,
            spent_max_us: wall_us.saturating_mul(2 * JOB_THREADS_MAX as u64).min(COUNT_MAX),
        }
    }

    pub fn look(&mut self, event: &JobEvent) -> Result<(), WireError> {
        let is_repeated = match event {
            JobEvent::Opened(_) => mem::replace(&mut self.is_opened, true),
            JobEvent::Measured(_) => mem::replace(&mut self.is_measured, true),
            JobEvent::Spent(_) => mem::replace(&mut self.is_spent, true),
            _ => false,
        };
        if is_repeated {
            return Err(WireError::Unexpected("repeated"));
        }
        let (is_right, what) = match event {
            JobEvent::Opened(stream) => (is_decodable(stream.extent), "picture size"),
            JobEvent::Frames(records) => return self.records.look(records),
            JobEvent::Spent(StageTimings { decode_us, gate_us }) => {
                (*decode_us.max(gate_us) <= self.spent_max_us, "time")
            }
            JobEvent::Done(report) => (self.agrees(report), "report"),
            JobEvent::Segment { next } => (*next <= COUNT_MAX, "segment"),
            // Progress is limited to what was asked for where it is shown.
            JobEvent::Progress { .. } | JobEvent::Measured(_) => (true, ""),
        };
        if is_right { Ok(()) } else { Err(WireError::Invalid(what)) }
    }

    fn agrees(&self, report: &FileReport) -> bool {
        let counts = [report.source_frames, report.damaged_packets];
        report.frames == self.records.frames()
            && report.first_extent.is_none_or(is_decodable)
            && counts.iter().all(|count| *count <= COUNT_MAX)
    }
}

/// Returns true if a decoder may output pictures of this size.
fn is_decodable(extent: Dimensions) -> bool {
    let DemuxLimits { side_px, area_px, .. } = DemuxLimits::default();
    extent.width.max(extent.height) <= side_px && extent.area() <= area_px
}

#[cfg(test)]
mod tests;
