//! Tools of a worker's thread for one session after the other: none keeps a session's state.

use std::mem;

use gate::{CpuBackend, FrameMeasurements, MeasureBackend};
use media::Frame;

use crate::{JobFault, pictures::ImageEncoder};

#[derive(Default)]
pub(super) struct ThreadScratch {
    measurer: CpuBackend,
    measured: Vec<FrameMeasurements>,
    pub maker: ImageEncoder,
}

impl ThreadScratch {
    /// The frames' measurements by the CPU, in memory that is given back to `keep`.
    pub fn measure(&mut self, frames: &[Frame]) -> Result<Vec<FrameMeasurements>, JobFault> {
        let mut measured = mem::take(&mut self.measured);
        measured.clear();
        self.measurer.measure(frames, &mut measured)?;
        Ok(measured)
    }

    /// Keeps the memory of measurements for others.
    pub fn keep(&mut self, measured: Vec<FrameMeasurements>) {
        self.measured = measured;
    }
}
