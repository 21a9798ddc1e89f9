//! Holds a worker to what it may say of frames: a receiver stores it, counts by it and passes it on.

use decode::FileReport;
use media::{EventType, Extent, Signal};

use crate::{
    JobEvent, JobOptions, Limits, Resume, Spent, Still, jpeg::is_baseline,
    supervisor::JOB_THREADS_MAX, views::ChunkCheck, wire::ProtocolError,
};

/// Largest count that every reader of JSON has exactly.
const COUNT_MAX: u64 = 1 << 53;

/// Check of signals and stills.
pub(crate) struct FrameCheck {
    frames_max: u64,
    /// Longest side of a still.
    side_max: u32,
    /// Signals that came, of earlier jobs too.
    signals: u64,
    /// Frame of the latest still.
    still: Option<u64>,
}

impl FrameCheck {
    pub fn new(frames_max: u64, side_max: u32) -> FrameCheck {
        FrameCheck { frames_max, side_max, signals: 0, still: None }
    }

    /// The same, of a job that goes on from another.
    pub fn after(self, resume: &Resume) -> FrameCheck {
        FrameCheck { signals: resume.next_frame(), ..self }
    }

    /// Signals that came.
    pub fn signals(&self) -> u64 {
        self.signals
    }

    /// Frame of the latest still.
    pub fn still(&self) -> Option<u64> {
        self.still
    }

    /// Takes signals; returns true where they are of the next frames.
    pub fn count(&mut self, signals: &[Signal]) -> bool {
        let go_on = signals.iter().zip(self.signals..).all(|(signal, at)| signal.frame_index == at);
        self.signals += signals.len() as u64;
        go_on && self.signals <= self.frames_max
    }

    /// Takes a still; returns true where it is a picture of a later frame, before that frame's signals,
    /// and named by the gate.
    pub fn show(&mut self, still: &Still) -> bool {
        let is_next = self.still.is_none_or(|before| before < still.frame_index)
            && (self.signals..self.frames_max).contains(&still.frame_index);
        self.still = Some(still.frame_index);
        is_next
            && !matches!(still.event_type, EventType::Named(_))
            && fits(still.extent, self.side_max)
            && is_baseline(&still.jpeg, still.extent)
    }
}

/// Check of the events of a file job.
pub(crate) struct JobCheck {
    frames: FrameCheck,
    chunks: ChunkCheck,
    stills: bool,
    is_opened: bool,
    /// Most time of all its threads, in microseconds.
    spent_max_us: u64,
}

impl JobCheck {
    pub fn new(options: &JobOptions, limits: &Limits) -> JobCheck {
        let side_max = decode::Limits::default().side_px;
        let wall_us = u64::try_from(limits.wall.as_micros()).unwrap_or(u64::MAX);
        let frames = FrameCheck::new(options.max_frames, side_max);
        let chunks = ChunkCheck::new(options.views);
        let (frames, chunks) = match &options.resume {
            Some(resume) => (frames.after(resume), chunks.after(resume)),
            None => (frames, chunks),
        };
        JobCheck {
            frames,
            chunks,
            stills: options.stills,
            is_opened: false,
            spent_max_us: wall_us.saturating_mul(2 * JOB_THREADS_MAX as u64).min(COUNT_MAX),
        }
    }

    /// Looks at the next event of the job.
    pub fn look(&mut self, event: &JobEvent) -> Result<(), ProtocolError> {
        let (is_asked, is_right, what) = match event {
            JobEvent::Opened(_) => (!std::mem::replace(&mut self.is_opened, true), true, "opening"),
            JobEvent::Signals(signals) => (true, self.frames.count(signals), "signals"),
            JobEvent::Still(still) => (self.stills, self.frames.show(still), "still"),
            JobEvent::Spent(Spent { decode_us, gate_us }) => {
                (true, *decode_us.max(gate_us) <= self.spent_max_us, "time")
            }
            JobEvent::Done(report) => (true, self.agrees(report), "report"),
            JobEvent::Segment { next } => (true, *next <= COUNT_MAX, "segment"),
            JobEvent::Chunk(chunk) => {
                let is_right = self.chunks.take(chunk, self.frames.signals());
                (self.chunks.is_asked(), is_right, "chunk")
            }
            JobEvent::Progress { .. } | JobEvent::Measured(_) => (true, true, ""),
        };
        match (is_asked, is_right) {
            (false, _) => Err(ProtocolError::Unexpected(what)),
            (true, false) => Err(ProtocolError::Invalid(what)),
            (true, true) => Ok(()),
        }
    }

    fn agrees(&self, report: &FileReport) -> bool {
        let counts = [report.source_frames, report.damaged_packets];
        report.frames == self.frames.signals() && counts.iter().all(|count| *count <= COUNT_MAX)
    }
}

/// No side of a picture is longer than `side_max`.
pub(crate) fn fits(extent: Extent, side_max: u32) -> bool {
    extent.width.max(extent.height) <= side_max
}

#[cfg(test)]
mod tests;
