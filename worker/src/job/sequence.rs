//! Segments in order to signals, decisions and stills: one window, one gate, one thread.

use std::{collections::VecDeque, mem};

use gate::{AHEAD, Decision, Gate, SignalWindow};
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
        let Segment { stamps, mut records, candidates } = segment;
        if let Some(stills) = &mut self.stills {
            stills.candidates.extend(candidates);
        }
        for (stamp, measured) in stamps.into_iter().zip(&records) {
            self.window.push(stamp, measured);
            self.decide()?;
        }
        records.clear();
        self.job.spare_records().push(records);
        self.say_signals()
    }

    /// The file is complete.
    pub fn finish(mut self) -> Result<(), Fault> {
        self.window.flush();
        self.decide()?;
        self.say_signals()
    }

    fn decide(&mut self) -> Result<(), Fault> {
        while let Some(signal) = self.window.poll() {
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
