//! Segments in order to signals, decisions, stills and chunks: one gate, one thread.
//!
//! A window joins the segments: it makes the signals around each cut that depend on both sides.
//! Signals from the middle of a segment that come with it are taken as they are.

use std::{collections::VecDeque, mem, ops::Range};

use gate::{AHEAD, FrameStamp, Gate, Measurements, SignalWindow};
use media::{Signal, Timestamp};

use super::{
    Job, JobEvent, Still,
    chunks::Chunker,
    pictures::{PictureMaker, Pictures, ViewPicture, Wanted},
    predict::{Candidate, Form},
    sink::Segment,
};
use crate::{Fault, View};

/// Signals in one message: 50 kB.
const SIGNALS_MAX: usize = 512;

pub(super) struct Sequencer<'a> {
    job: &'a Job<'a>,
    window: SignalWindow,
    gate: Gate,
    signals: Vec<Signal>,
    album: Album,
    chunker: Option<Chunker>,
}

/// Candidates not decided yet, and the maker of pictures for those that were only kept.
struct Album {
    maker: PictureMaker,
    candidates: VecDeque<Candidate>,
}

impl<'a> Sequencer<'a> {
    pub fn new(job: &'a Job<'a>) -> Sequencer<'a> {
        let chunks = job.resume.map_or(0, |resume| resume.chunks);
        Sequencer {
            job,
            window: job.window(),
            gate: job.first_gate(),
            signals: Vec::new(),
            album: Album { maker: PictureMaker::new(job), candidates: VecDeque::new() },
            chunker: job.views.as_ref().map(|options| Chunker::new(options, chunks)),
        }
    }

    /// The next segment of the file.
    pub fn deliver(&mut self, segment: Segment) -> Result<(), Fault> {
        let Segment { stamps, mut records, candidates, signals } = segment;
        self.album.candidates.extend(candidates);
        let known = known(&stamps, &signals);
        let frames = || stamps.iter().zip(&records);
        // Frames that the window needs before the known signals, and again after them.
        let before = known.start + AHEAD;
        let after = known.end.saturating_sub(SignalWindow::frames_back(&stamps[..known.end]));
        if before < after {
            frames().take(before).try_for_each(|(stamp, measured)| self.push(*stamp, measured))?;
            let passed = signals.len() - known.len();
            signals.into_iter().skip(passed).try_for_each(|signal| self.decide(signal))?;
            self.window.restart();
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
        self.say_signals()?;
        self.say_chunk()
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
        let selected = decision.selected.then_some(decision.reason);
        let place = self.chunker.as_mut().map(|chunker| chunker.place(&signal));
        if place.is_some_and(|place| place.starts) {
            self.say_chunk()?;
        }
        let view = match (&mut self.chunker, place) {
            (Some(chunker), Some(place)) => chunker.offer(&signal, place, selected),
            _ => false,
        };
        let wanted = Wanted { still: self.job.stills && decision.selected, view };
        let is_kept = wanted.still;
        if let Some((pts, pictures)) = self.album.settle(signal.frame_index, wanted)? {
            if let (Some(chunker), Some(shown)) = (&mut self.chunker, pictures.view) {
                let ViewPicture { picture, novelty } = shown;
                let view = View::new(&signal, pts, selected, picture);
                chunker.take(View { novelty, ..view });
            }
            if let Some(picture) = pictures.still {
                self.job.say(JobEvent::Still(Still::new(&signal, decision, picture)))?;
            }
        }
        self.signals.push(signal);
        // A still waits at the other end for its signal.
        if is_kept || self.signals.len() == SIGNALS_MAX {
            self.say_signals()?;
        }
        if place.is_some_and(|place| place.ends) {
            self.say_chunk()?;
        }
        Ok(())
    }

    /// Says the chunk that has begun, if one has, behind all of its signals.
    fn say_chunk(&mut self) -> Result<(), Fault> {
        match self.chunker.as_mut().and_then(Chunker::complete) {
            Some(chunk) => {
                self.say_signals()?;
                self.job.say(JobEvent::Chunk(chunk))
            }
            None => Ok(()),
        }
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

impl Album {
    /// The pictures of the next frame, which was decided about, if any are wanted.
    fn settle(
        &mut self,
        frame_index: u64,
        wanted: Wanted,
    ) -> Result<Option<(Timestamp, Pictures)>, Fault> {
        let front = self.candidates.front();
        let is_next = front.is_some_and(|candidate| candidate.frame_index == frame_index);
        let candidate = if is_next { self.candidates.pop_front() } else { None };
        if !wanted.is_any() {
            return Ok(None);
        }
        let Some(Candidate { pts, form, .. }) = candidate else {
            return Err(Fault::Unforeseen { frame_index });
        };
        let Pictures { still, view } = match form {
            Form::Encoded(pictures) => pictures,
            Form::Held(frame) => self.maker.make(&frame, wanted)?,
        };
        // Some were made on suspicion.
        let pictures =
            Pictures { still: still.filter(|_| wanted.still), view: view.filter(|_| wanted.view) };
        if pictures.still.is_some() != wanted.still || pictures.view.is_some() != wanted.view {
            return Err(Fault::Unforeseen { frame_index });
        }
        Ok(Some((pts, pictures)))
    }
}
