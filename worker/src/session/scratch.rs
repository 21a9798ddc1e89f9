//! Buffers and encoders of a pool thread, reused for all sessions; they keep no session's state.

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
    /// Measures the frames on the CPU; return the buffer with `keep`.
    pub fn measure(&mut self, frames: &[Frame]) -> Result<Vec<FrameMeasurements>, JobFault> {
        let mut measured = mem::take(&mut self.measured);
        measured.clear();
        self.measurer.measure(frames, &mut measured)?;
        Ok(measured)
    }

    /// Keeps the buffer of measurements for reuse.
    pub fn keep(&mut self, measured: Vec<FrameMeasurements>) {
        self.measured = measured;
    }
}
