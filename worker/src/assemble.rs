//! Assembly of frames into records, in order: the last stage of a worker, for files and live sessions alike.
//!
//! Stamps and measurements go in, or signals already made; an [`Album`] supplies the pictures. The gate and
//! the plan here only tell which pictures are wanted: the receiver of the records makes the decisions again.

use gate::{FrameMeasurements, FrameMeta, Gate, SignalWindow};
use media::{Signal, Timestamp};

use crate::{
    FrameImages, FrameRecord, JobFault, pictures::PictureKinds, plan::Plan, record::Gathered,
};

/// Source of the pictures of frames that have no decision yet.
pub(crate) trait Album {
    /// Returns the exact time of the next frame, if it is known and wanted.
    fn pts(&self) -> Option<Timestamp>;

    /// Returns the wanted pictures of the next frame, and drops its others.
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

    /// Adds the next frame.
    pub fn push(
        &mut self,
        stamp: FrameMeta,
        measured: &FrameMeasurements,
        album: &mut impl Album,
    ) -> Result<(), JobFault> {
        self.window.push(stamp, measured);
        self.drain(album)
    }

    /// Adds the next frames, at least [`gate::BACK`], with signals made elsewhere; fills in missing activity.
    pub fn push_known(
        &mut self,
        signals: impl IntoIterator<Item = Signal>,
        (stamps, measured): (&[FrameMeta], &[FrameMeasurements]),
        album: &mut impl Album,
    ) -> Result<(), JobFault> {
        self.window.push_known(signals, stamps, measured);
        self.drain(album)
    }

    /// Completes the source: no frame follows.
    pub fn finish(&mut self, album: &mut impl Album) -> Result<(), JobFault> {
        self.window.flush();
        self.drain(album)
    }

    /// Takes the records assembled so far, as messages.
    pub fn take(&mut self) -> Vec<Vec<FrameRecord>> {
        self.gathered.take()
    }

    fn drain(&mut self, album: &mut impl Album) -> Result<(), JobFault> {
        while let Some(signal) = self.window.poll() {
            let decision = self.gate.offer(&signal);
            let selected = decision.selected.then_some(decision.reason);
            let pts = album.pts();
            let wanted = self.plan.offer(&signal, pts, selected);
            let pictures = album.settle(signal.frame_index, wanted)?;
            self.gathered.push(FrameRecord { signal, pts, pictures });
        }
        Ok(())
    }
}
