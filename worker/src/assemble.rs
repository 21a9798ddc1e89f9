//! Frames to records, in order: the end of a worker that decides, of files and of live sessions alike.
//!
//! Stamps and measurements go in, or signals that are known already. Where the pictures of a frame come from is its
//! [`Album`]'s matter. The gate and the plan here are only to know which pictures will be wanted: whoever hears the
//! records decides the same again.

use gate::{FrameMeasurements, FrameMeta, Gate, SignalWindow};
use media::{Signal, Timestamp};

use crate::{
    FrameImages, FrameRecord, JobFault,
    pictures::PictureKinds,
    plan::Plan,
    record::{Gathered, Say},
};

/// Pictures of frames that are not decided about.
pub(crate) trait Album {
    /// Exact time of the next frame, where it is known and wanted.
    fn pts(&self) -> Option<Timestamp>;

    /// Takes the pictures of the next frame.
    fn settle(&mut self, frame_index: u64, wanted: PictureKinds) -> Result<FrameImages, JobFault>;
}

/// Assembler of the records of one source.
pub(crate) struct Assembler {
    window: SignalWindow,
    gate: Gate,
    plan: Plan,
    gathered: Gathered,
}

impl Assembler {
    pub fn new(window: SignalWindow, gate: Gate, plan: Plan) -> Assembler {
        Assembler { window, gate, plan, gathered: Gathered::default() }
    }

    /// The next frame.
    pub fn push(
        &mut self,
        stamp: FrameMeta,
        measured: &FrameMeasurements,
        album: &mut impl Album,
        say: Say<'_>,
    ) -> Result<(), JobFault> {
        self.window.push(stamp, measured);
        self.drain(album, say)
    }

    /// The next frames, at least [`gate::BACK`], whose signals were made elsewhere: those without an activity are given theirs.
    pub fn push_known(
        &mut self,
        signals: impl IntoIterator<Item = Signal>,
        (stamps, measured): (&[FrameMeta], &[FrameMeasurements]),
        album: &mut impl Album,
        say: Say<'_>,
    ) -> Result<(), JobFault> {
        self.window.push_known(signals, stamps, measured);
        self.drain(album, say)
    }

    /// No frame follows.
    pub fn finish(&mut self, album: &mut impl Album, say: Say<'_>) -> Result<(), JobFault> {
        self.window.flush();
        self.drain(album, say)?;
        self.say(say)
    }

    /// Says what is decided.
    pub fn say(&mut self, say: Say<'_>) -> Result<(), JobFault> {
        self.gathered.say(say)
    }

    fn drain(&mut self, album: &mut impl Album, say: Say<'_>) -> Result<(), JobFault> {
        while let Some(signal) = self.window.poll() {
            self.decide(signal, album, say)?;
        }
        Ok(())
    }

    fn decide(
        &mut self,
        signal: Signal,
        album: &mut impl Album,
        say: Say<'_>,
    ) -> Result<(), JobFault> {
        let decision = self.gate.offer(&signal);
        let selected = decision.selected.then_some(decision.reason);
        let pts = album.pts();
        let wanted = self.plan.offer(&signal, pts, selected);
        let pictures = album.settle(signal.frame_index, wanted)?;
        self.gathered.push(FrameRecord { signal, pts, pictures }, say)
    }
}
