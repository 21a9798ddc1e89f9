//! Gate measurements in WGSL, in batches, on any Vulkan adapter: the same integers as the CPU.
//!
//! No error of the driver is a panic, no buffer is allocated per batch, and a backend that opens has passed
//! the conformance check. Frames are uploaded from host memory, which costs more than measuring them on the
//! CPU: useful only if the CPU is busy. Does not import pictures from device memory, and does not fall back:
//! [`gate::FallbackBackend`] does.
#![forbid(unsafe_code)]

mod buffer;
mod device;
mod launch;
mod module;

use gate::{
    FrameMeasurements, MeasureBackend, MeasureError, conformance,
    device_batch::{DeviceBatch, OpenError, batches, contained},
};
use media::Frame;

pub use device::AdapterChoice;

use crate::{
    buffer::{DispatchBuffers, FILL_BYTES, PICTURES_MAX},
    device::WgpuDevice,
};

const NAME: &str = "wgpu";

/// Measures on one Vulkan adapter.
pub struct WgpuBackend {
    device: WgpuDevice,
    pipeline: wgpu::ComputePipeline,
    /// Buffers; `None` until the first batch and after an error.
    buffers: Option<DispatchBuffers>,
    buffers_made: u64,
}

impl WgpuBackend {
    /// Opens an adapter, compiles the shader and runs the quick conformance check.
    pub fn open(choice: AdapterChoice<'_>) -> Result<WgpuBackend, OpenError> {
        contained(|| WgpuBackend::open_any(choice)).unwrap_or_else(|reason| {
            Err(OpenError::Failed(format!("the Vulkan driver failed: {reason}")))
        })
    }

    fn open_any(choice: AdapterChoice<'_>) -> Result<WgpuBackend, OpenError> {
        let device = WgpuDevice::open(choice)?;
        module::check_limits(&device)?;
        let pipeline = module::compile(&device)?;
        let mut measurer = WgpuBackend { device, pipeline, buffers: None, buffers_made: 0 };
        conformance::quick_check(&mut measurer).map_err(|fault| {
            let adapter = &measurer.device.name;
            OpenError::Unfit(format!("adapter {adapter} failed the conformance test: {fault}"))
        })?;
        Ok(measurer)
    }

    /// Returns the adapter's name and type for display.
    pub fn adapter(&self) -> &str {
        &self.device.name
    }

    /// Returns true if the adapter is a CPU: for tests, and slower than [`gate::CpuBackend`].
    pub fn is_cpu(&self) -> bool {
        self.device.is_cpu
    }

    /// Returns how often buffers were allocated: at first, for each larger batch, and after errors.
    pub fn buffers_made(&self) -> u64 {
        self.buffers_made
    }

    /// Destroys the device, as a driver reset does: later measurements fail.
    pub fn destroy(&self) {
        self.device.device.destroy();
    }

    fn measure_batch(
        &mut self,
        batch: &DeviceBatch<'_>,
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        let fits = |kept: &mut DispatchBuffers| kept.capacity >= batch.bytes;
        let buffers = match self.buffers.take_if(fits) {
            Some(buffers) => buffers,
            None => {
                let made = launch::make_buffers(&self.device, &self.pipeline, batch.bytes)?;
                self.buffers_made += 1;
                made
            }
        };
        launch::run(&self.device, &self.pipeline, &buffers, batch.frames, out)?;
        self.buffers = Some(buffers);
        Ok(())
    }

    /// Measures all frames in batches as large as fit.
    fn measure_all(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        if let Some(reason) = self.device.faults.loss() {
            return Err(MeasureError::DeviceLost(NAME, reason));
        }
        let fill = FILL_BYTES.min(buffer::bytes_max(&self.device.limits));
        for batch in batches(frames, PICTURES_MAX, fill) {
            self.measure_batch(&batch?, out)?;
        }
        Ok(())
    }
}

impl MeasureBackend for WgpuBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        let before = out.len();
        self.measure_all(frames, out).inspect_err(|_| out.truncate(before))
    }
}
