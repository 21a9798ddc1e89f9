//! Tools of a worker's thread for one session after the other: none keeps a session's state.

use std::mem;

use gate::{CpuMeasurer, Measurements, Measurer};
use media::Frame;

use crate::{Fault, pictures::PictureMaker};

#[derive(Default)]
pub(super) struct Tools {
    measurer: CpuMeasurer,
    measured: Vec<Measurements>,
    pub maker: PictureMaker,
}

impl Tools {
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
}
