//! Segments in order to signals, decisions and stills: one gate, one thread.
//!
//! A window joins the segments: it makes the signals around each cut that depend on both sides.
//! Signals from the middle of a segment that come with it are taken as they are.

use std::{collections::VecDeque, mem, ops::Range};

use gate::{AHEAD, BACK, Decision, FrameStamp, Gate, Measurements, SignalWindow};
use media::{Rotation, Signal};

use super::{
    Job, JobEvent, Still,
    predict::{Candidate, Form},
    sink::Segment,
};
use crate::{Fault, still::StillEncoder};

/// Signals in one message: 50 kB.
const CHUNK: usize = 512;

pub(super) struct Sequencer<'a> {
    job: &'a Job<'a>,
    window: SignalWindow,
    gate: Gate,
    signals: Vec<Signal>,
    stills: Option<Stills>,
}

/// Candidates not decided yet, and the encoder for those that were only kept.
struct Stills {
    rotation: Rotation,
    encoder: StillEncoder,
    candidates: VecDeque<Candidate>,
}

impl<'a> Sequencer<'a> {
    pub fn new(job: &'a Job<'a>) -> Result<Sequencer<'a>, Fault> {
        let stills = if job.stills {
            Some(Stills {
                rotation: job.rotation,
                encoder: StillEncoder::new()?,
                candidates: VecDeque::new(),
            })
        } else {
            None
        };
        Ok(Sequencer {
            job,
            window: SignalWindow::new(AHEAD),
            gate: Gate::new(job.gate),
            signals: Vec::new(),
            stills,
        })
    }

    /// The next segment of the file.
    pub fn deliver(&mut self, segment: Segment) -> Result<(), Fault> {
        let Segment { stamps, mut records, candidates, signals } = segment;
        if let Some(stills) = &mut self.stills {
            stills.candidates.extend(candidates);
        }
        let known = known(&stamps, &signals);
        let frames = || stamps.iter().zip(&records);
        // What the window must see up to the known signals, and again for those after them.
        let before = known.start + AHEAD;
        let after = known.end.saturating_sub(BACK);
        if before < after {
            frames().take(before).try_for_each(|(stamp, measured)| self.push(*stamp, measured))?;
            let passed = signals.len() - known.len();
            signals.into_iter().skip(passed).try_for_each(|signal| self.decide(signal))?;
            self.window = SignalWindow::new(AHEAD);
            for (stamp, measured) in frames().skip(after) {
                self.window.push(*stamp, measured);
            }
            while self.window.poll().is_some() {}
        } else {
            frames().try_for_each(|(stamp, measured)| self.push(*stamp, measured))?;
        }
        records.clear();
        self.job.spare_records().push(records);
        self.say_signals()
    }

    /// The file is complete.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.window.flush();
        self.drain()?;
        self.say_signals()
    }

    fn push(&mut self, stamp: FrameStamp, measured: &Measurements) -> Result<(), Fault> {
        self.window.push(stamp, measured);
        self.drain()
    }

    fn drain(&mut self) -> Result<(), Fault> {
        while let Some(signal) = self.window.poll() {
            self.decide(signal)?;
        }
        Ok(())
    }

    fn decide(&mut self, signal: Signal) -> Result<(), Fault> {
        let decision = self.gate.offer(&signal);
        if let Some(stills) = &mut self.stills
            && let Some(still) = stills.settle(&signal, decision)?
        {
            self.job.say(JobEvent::Still(still))?;
        }
        self.signals.push(signal);
        if self.signals.len() == CHUNK {
            self.say_signals()?;
        }
        Ok(())
    }

    fn say_signals(&mut self) -> Result<(), Fault> {
        if self.signals.is_empty() {
            return Ok(());
        }
        self.job.say(JobEvent::Signals(mem::take(&mut self.signals)))
    }
}

/// The frames of a segment whose signals came with it; those of the segment before, which a
/// continued one brings as well, have been made here.
fn known(stamps: &[FrameStamp], signals: &[Signal]) -> Range<usize> {
    let (Some(first), Some(last)) = (stamps.first(), signals.last()) else { return 0..0 };
    let place = |signal: &Signal| signal.frame_index.checked_sub(first.frame_index);
    match (signals.iter().find_map(place), place(last)) {
        (Some(start), Some(end)) => start as usize..end as usize + 1,
        _ => 0..0,
    }
}

impl Stills {
    /// The still of the frame that was decided about, if it was selected.
    fn settle(&mut self, signal: &Signal, decision: Decision) -> Result<Option<Still>, Fault> {
        let is_next = self
            .candidates
            .front()
            .is_some_and(|candidate| candidate.frame_index == signal.frame_index);
        let candidate = if is_next { self.candidates.pop_front() } else { None };
        if !decision.selected {
            return Ok(None);
        }
        let picture = match candidate.map(|candidate| candidate.form) {
            Some(Form::Encoded(picture)) => picture,
            Some(Form::Held(frame)) => self.encoder.encode(&frame, self.rotation)?,
            None => return Err(Fault::Unforeseen { frame_index: signal.frame_index }),
        };
        Ok(Some(Still::new(signal, decision, picture)))
    }
}
