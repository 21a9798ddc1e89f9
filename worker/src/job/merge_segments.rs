//! Merges the segments, in order, into records: one assembler on one thread.
//!
//! The assembler's window joins segments: it makes the signals near a boundary, which depend on both sides.
//! Signals that come with a segment are used as they are; missing activity is filled in.

use std::{collections::VecDeque, ops::Range};

use gate::{AHEAD, BACK, FrameMeta};
use media::{Signal, Timestamp};

use super::{
    Job, JobEvent,
    select_predictor::{CandidateState, ImageCandidate},
    sink::SegmentResult,
};
use crate::{
    FrameImages, JobFault,
    assemble::{Album, Assembler},
    pictures::{ImageEncoder, PictureKinds, PictureSpec},
};

pub(super) struct SegmentMerger<'a> {
    job: &'a Job<'a>,
    assembler: Assembler,
    candidates: Candidates,
}

/// Candidates without a decision, and the encoder of those whose frames were kept.
struct Candidates {
    spec: PictureSpec,
    maker: ImageEncoder,
    waiting: VecDeque<ImageCandidate>,
}

impl<'a> SegmentMerger<'a> {
    pub fn new(job: &'a Job<'a>) -> SegmentMerger<'a> {
        let (spec, maker) = (job.pictures, ImageEncoder::default());
        SegmentMerger {
            job,
            assembler: Assembler::new(job.window(), job.first_gate(), job.plan()),
            candidates: Candidates { spec, maker, waiting: VecDeque::new() },
        }
    }

    /// Adds the next segment of the file. After a failure it may lack records, so that failure is returned.
    pub fn deliver(&mut self, segment: SegmentResult) -> Result<(), JobFault> {
        self.job.take_failure()?;
        let assembled = self.assemble(segment);
        // A fault must not lose the records before it.
        self.say()?;
        assembled
    }

    fn say(&mut self) -> Result<(), JobFault> {
        let mut messages = self.assembler.take().into_iter();
        messages.try_for_each(|records| self.job.say(JobEvent::Frames(records)))
    }

    fn assemble(&mut self, segment: SegmentResult) -> Result<(), JobFault> {
        let SegmentMerger { job, assembler, candidates } = self;
        let SegmentResult { stamps, mut records, candidates: more, signals } = segment;
        candidates.waiting.extend(more);
        let known = known(&stamps, &signals);
        let (before, after) = (known.start, known.end);
        for (stamp, measured) in stamps.iter().zip(&records).take(before) {
            assembler.push(*stamp, measured, candidates)?;
        }
        if !known.is_empty() {
            let passed = signals.len() - known.len();
            let signals = signals.into_iter().skip(passed);
            let frames = (&stamps[known.clone()], &records[known]);
            assembler.push_known(signals, frames, candidates)?;
        }
        for (stamp, measured) in stamps.iter().zip(&records).skip(after) {
            assembler.push(*stamp, measured, candidates)?;
        }
        records.clear();
        job.spare_records().push(records);
        Ok(())
    }

    /// Completes the file after its last segment.
    pub fn finish(mut self) -> Result<(), JobFault> {
        let finished = self.assembler.finish(&mut self.candidates);
        self.say()?;
        finished
    }
}

/// Returns the range of a segment's frames whose signals came with it, empty if they are too few to save
/// work. A continued segment also brings signals of the one before; those were made here and are left out.
fn known(stamps: &[FrameMeta], signals: &[Signal]) -> Range<usize> {
    let none = stamps.len()..stamps.len();
    let (Some(first), Some(last)) = (stamps.first(), signals.last()) else { return none };
    let place = |signal: &Signal| signal.frame_index.checked_sub(first.frame_index);
    match (signals.iter().find_map(place), place(last)) {
        (Some(start), Some(end)) if end - start >= (BACK + AHEAD) as u64 => {
            start as usize..end as usize + 1
        }
        _ => none,
    }
}

impl Album for Candidates {
    fn pts(&self) -> Option<Timestamp> {
        None
    }

    fn settle(&mut self, frame_index: u64, wanted: PictureKinds) -> Result<FrameImages, JobFault> {
        let is_next = self.waiting.front().is_some_and(|next| next.frame_index == frame_index);
        let candidate = if is_next { self.waiting.pop_front() } else { None };
        if !wanted.is_any() {
            return Ok(FrameImages::default());
        }
        let made = match candidate.map(|candidate| candidate.form) {
            Some(CandidateState::Encoded(pictures)) => Some(pictures),
            Some(CandidateState::Held(frame)) => Some(self.maker.make(&frame, &self.spec, wanted)?),
            None => None,
        };
        // A candidate may have more pictures than are wanted, or lack one that is.
        made.and_then(|made| made.only(wanted)).ok_or(JobFault::UnpredictedFrame(frame_index))
    }
}
