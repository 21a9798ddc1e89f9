//! Tools of a worker's thread for one session after the other: none keeps a session's state.

use std::mem;

use gate::{CpuMeasurer, Measurements, Measurer};
use media::{Frame, Rotation};

use super::spec::{ClipSpec, SessionSpec};
use crate::{
    Fault, NoveltyInput,
    protocol::MESSAGE_BYTES_MAX,
    still::{Cut, InputMaker, Picture, StillEncoder, StillError},
    views::VIEW_BYTES_MAX,
};

/// Bytes of a clip's picture at most: one of [`crate::ClipSpec::EDGE_MAX`] of noise takes half as many.
pub(super) const CLIP_PICTURE_BYTES_MAX: usize = VIEW_BYTES_MAX / 2;

// A clip is one message: its pictures, and less than a kilobyte beside them.
const _: () = assert!(
    ClipSpec::PICTURES_MAX as usize * CLIP_PICTURE_BYTES_MAX + 1024 <= MESSAGE_BYTES_MAX as usize
);

pub(super) struct Tools {
    measurer: CpuMeasurer,
    measured: Vec<Measurements>,
    encoder: Option<StillEncoder>,
    inputs: InputMaker,
}

impl Tools {
    pub fn new() -> Tools {
        Tools {
            measurer: CpuMeasurer::new(),
            measured: Vec::with_capacity(1),
            encoder: None,
            inputs: InputMaker::default(),
        }
    }

    /// The frames' measurements by the CPU, in memory that is given back to `keep`.
    pub fn measure(&mut self, frames: &[Frame]) -> Result<Vec<Measurements>, Fault> {
        let mut measured = mem::take(&mut self.measured);
        measured.clear();
        self.measurer.measure(frames, &mut measured)?;
        Ok(measured)
    }

    /// Keeps the memory of measurements for others.
    pub fn keep(&mut self, measured: Vec<Measurements>) {
        self.measured = measured;
    }

    pub fn still(&mut self, frame: &Frame) -> Result<Picture, Fault> {
        Ok(self.encoder()?.encode(frame, Rotation::None)?)
    }

    /// Encodes the part `cut` of the frame, in at most `bytes_max` bytes.
    pub fn view(&mut self, frame: &Frame, cut: &Cut, bytes_max: usize) -> Result<Picture, Fault> {
        let picture = self.encoder()?.encode_cut(frame, Rotation::None, cut)?;
        let bytes = picture.jpeg.len();
        if bytes > bytes_max {
            return Err(StillError::TooLarge { bytes }.into());
        }
        Ok(picture)
    }

    pub fn novelty(
        &mut self,
        frame: &Frame,
        spec: &SessionSpec,
    ) -> Result<Option<NoveltyInput>, Fault> {
        let Some(novelty) = spec.novelty else { return Ok(None) };
        Ok(Some(self.inputs.make(frame, Rotation::None, spec.crop, novelty.side)?))
    }

    /// Takes memory with the first picture.
    fn encoder(&mut self) -> Result<&mut StillEncoder, Fault> {
        Ok(match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(StillEncoder::new()?),
        })
    }
}
