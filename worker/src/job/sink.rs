//! A decoding thread's end: measures each frame where it was decoded.

use std::{
    mem,
    ops::ControlFlow,
    slice,
    time::{Duration, Instant},
};

use decode::{FrameSink, SegmentInfo};
use gate::{CpuMeasurer, FrameStamp, Measurements, Measurer};
use media::{Frame, Signal};

use super::{
    Job,
    predict::{Candidate, Predictor},
};
use crate::Fault;

/// What a segment amounts to: small numbers per frame, and the few pictures that may be wanted.
#[derive(Default)]
pub(super) struct Segment {
    pub stamps: Vec<FrameStamp>,
    pub records: Vec<Measurements>,
    pub candidates: Vec<Candidate>,
    /// Consecutive signals that need no other segment; none where no pictures are wanted.
    pub signals: Vec<Signal>,
}

pub(super) struct SegmentSink<'a> {
    job: &'a Job<'a>,
    measurer: CpuMeasurer,
    segment: Segment,
    predictor: Option<Predictor>,
    /// When the segment's decoding began.
    began: Instant,
    /// What of it was not decoding.
    gate: Duration,
}

impl<'a> SegmentSink<'a> {
    pub fn new(job: &'a Job<'a>) -> SegmentSink<'a> {
        SegmentSink {
            job,
            measurer: CpuMeasurer::new(),
            segment: Segment::default(),
            predictor: Predictor::new(job),
            began: Instant::now(),
            gate: Duration::ZERO,
        }
    }

    fn take(&mut self, index: u64, frame: Frame) -> Result<(), Fault> {
        let stamp = FrameStamp {
            frame_index: index,
            source_frame_index: frame.source_index,
            pts_ms: frame.pts.as_millis(),
        };
        self.measurer.measure(slice::from_ref(&frame), &mut self.segment.records)?;
        self.segment.stamps.push(stamp);
        if let (Some(predictor), Some(measured)) =
            (&mut self.predictor, self.segment.records.last())
        {
            predictor.push(stamp, measured, frame, &mut self.segment.candidates)?;
        }
        match self.job.progress.frame(stamp.pts_ms) {
            Some(event) => self.job.say(event),
            None => Ok(()),
        }
    }
}

impl FrameSink for SegmentSink<'_> {
    type Output = Segment;

    fn begin(&mut self, info: SegmentInfo) {
        (self.began, self.gate) = (Instant::now(), Duration::ZERO);
        let starts_over = !self.segment.stamps.is_empty();
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

    fn frame(&mut self, index: u64, frame: Frame) -> ControlFlow<()> {
        let started = Instant::now();
        let taken = self.take(index, frame);
        self.gate += started.elapsed();
        self.job.unless_failed(taken)
    }

    fn passed_over(&mut self) {
        if let Some(event) = self.job.progress.alive() {
            // A receiver that stops is noticed at the next frame.
            self.job.say(event).ok();
        }
    }

    fn end(&mut self) -> Segment {
        self.job.clocks.add(self.began.elapsed().saturating_sub(self.gate), self.gate);
        if let Some(predictor) = &mut self.predictor {
            self.segment.signals = predictor.hand_over(&mut self.segment.candidates);
        }
        mem::take(&mut self.segment)
    }
}
