//! Measures a decoding thread's frames on that thread: singly on the CPU, in small batches on a device.

use std::{
    mem,
    ops::ControlFlow,
    time::{Duration, Instant},
};

use decode::{FrameSink, SegmentInfo, SinkStop};
use gate::{FrameMeasurements, FrameMeta, MeasureBackend};
use media::{DeviceMemoryLost, Frame, Signal};

use super::{
    Job,
    select_predictor::{ImageCandidate, SelectionPredictor, bytes_to_send},
};
use crate::JobFault;

/// Bytes of pictures to upload that are gathered at most before they are measured.
const GATHERED_BYTES_MAX: u64 = 32 << 20;

/// Result of a segment: small numbers per frame, and the few pictures that may be wanted.
#[derive(Default)]
pub(super) struct SegmentResult {
    pub stamps: Vec<FrameMeta>,
    pub records: Vec<FrameMeasurements>,
    pub candidates: Vec<ImageCandidate>,
    /// Consecutive signals, independent of other segments, some without activity; empty without pictures.
    pub signals: Vec<Signal>,
}

pub(super) struct SegmentSink<'a> {
    job: &'a Job<'a>,
    measurer: Box<dyn MeasureBackend>,
    /// Frames that are stamped but not measured, oldest first.
    gathered: Vec<Frame>,
    segment: SegmentResult,
    predictor: Option<SelectionPredictor>,
    /// Start of the segment's decoding.
    began: Instant,
    /// Time since `began` that was not spent on decoding.
    gate: Duration,
}

impl<'a> SegmentSink<'a> {
    pub fn new(job: &'a Job<'a>) -> SegmentSink<'a> {
        SegmentSink {
            job,
            measurer: job.measuring.measurer(),
            gathered: Vec::new(),
            segment: SegmentResult::default(),
            predictor: SelectionPredictor::new(job),
            began: Instant::now(),
            gate: Duration::ZERO,
        }
    }

    fn take(&mut self, index: u64, frame: Frame) -> Result<(), JobFault> {
        let stamp = FrameMeta {
            frame_index: index,
            source_frame_index: frame.source_index,
            pts_ms: frame.pts.as_millis(),
        };
        self.segment.stamps.push(stamp);
        self.gathered.push(frame);
        let bytes: u64 = self.gathered.iter().map(bytes_to_send).sum();
        let is_full =
            self.gathered.len() >= self.job.measuring.gathered_max() || bytes >= GATHERED_BYTES_MAX;
        if is_full { self.measure() } else { Ok(()) }
    }

    fn measure(&mut self) -> Result<(), JobFault> {
        let SegmentResult { stamps, records, candidates, .. } = &mut self.segment;
        let first = records.len();
        self.measurer.measure(&self.gathered, records)?;
        let measured = stamps[first..].iter().zip(&records[first..]);
        for (frame, (&stamp, measured)) in self.gathered.drain(..).zip(measured) {
            if let Some(predictor) = &mut self.predictor {
                predictor.push(stamp, measured, frame, candidates)?;
            }
            if let Some(event) = self.job.progress.frame(stamp.pts_ms) {
                self.job.say(event)?;
            }
        }
        Ok(())
    }
}

impl FrameSink for SegmentSink<'_> {
    type Output = SegmentResult;

    fn begin(&mut self, info: SegmentInfo) {
        (self.began, self.gate) = (Instant::now(), Duration::ZERO);
        let starts_over = !self.segment.stamps.is_empty();
        self.gathered.clear();
        let mut records = mem::take(&mut self.segment).records;
        if records.capacity() == 0 {
            records = self.job.spare_records().pop().unwrap_or_default();
        }
        records.clear();
        self.segment.records = records;
        if let Some(predictor) = &mut self.predictor
            && (starts_over || !info.continues_previous)
        {
            predictor.restart(info.first_frame_index);
        }
    }

    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<SinkStop> {
        let started = Instant::now();
        let taken = self.take(index, frame);
        self.gate += started.elapsed();
        match taken {
            Err(JobFault::PixelsLost(lost)) => ControlFlow::Break(SinkStop::PixelsLost(lost)),
            taken => self.job.unless_failed(taken).map_break(|()| SinkStop::Ended),
        }
    }

    fn skipped_frames(&mut self) {
        if let Some(event) = self.job.progress.alive() {
            // If the receiver stops the job, the next frame ends it.
            self.job.say(event).ok();
        }
    }

    fn end(&mut self) -> Result<SegmentResult, DeviceMemoryLost> {
        let started = Instant::now();
        match self.measure() {
            Err(JobFault::PixelsLost(lost)) => return Err(lost),
            Err(fault) => self.job.fail(fault),
            Ok(()) => {}
        }
        if let Some(predictor) = &mut self.predictor {
            self.segment.signals = predictor.hand_over(&mut self.segment.candidates)?;
        }
        self.gate += started.elapsed();
        self.job.clocks.add(self.began.elapsed().saturating_sub(self.gate), self.gate);
        Ok(mem::take(&mut self.segment))
    }
}
