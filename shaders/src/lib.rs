//! The gate's measurements in WGSL, batched, on any Vulkan adapter: the same integers as the CPU.
//!
//! Promises that no error of the driver is a panic, that no buffer is made per batch, and that
//! what opens has measured as the reference does. Frames go up from host memory, which costs more
//! than measuring them on the CPU: it pays where the CPU has no time. With the feature `dma-buf`
//! pictures in dma-bufs are read where they are. Does not fall back: [`gate::FallbackMeasurer`] does.
#![deny(unsafe_code)]

mod buffer;
mod device;
mod error;
#[cfg(feature = "dma-buf")]
mod import;
#[cfg(not(feature = "dma-buf"))]
#[path = "no_import.rs"]
mod import;
mod launch;
mod module;
mod picture;

use std::panic::{AssertUnwindSafe, catch_unwind};

use gate::{
    MeasureError, Measurements, Measurer, conformance,
    device::{Batch, batches, said},
};
use media::Frame;

pub use device::AdapterChoice;
pub use error::WgpuError;

use crate::{
    buffer::{Buffers, FILL_BYTES, PICTURES_MAX},
    device::Device,
    launch::Sent,
    picture::{Placed, first_batch},
};

const NAME: &str = "wgpu";

/// Measures on one Vulkan adapter.
pub struct WgpuMeasurer {
    device: Device,
    pipeline: wgpu::ComputePipeline,
    /// `None` until the first batch.
    buffers: Option<Buffers>,
    buffers_made: u64,
    imported: u64,
    import_refusal: Option<String>,
}

impl WgpuMeasurer {
    /// Opens an adapter, compiles the shader and measures the smoke of the conformance table.
    pub fn open(choice: AdapterChoice<'_>) -> Result<WgpuMeasurer, WgpuError> {
        let opened = catch_unwind(AssertUnwindSafe(|| WgpuMeasurer::open_any(choice)));
        opened.unwrap_or_else(|panic| Err(WgpuError::Driver { reason: said(panic.as_ref()) }))
    }

    fn open_any(choice: AdapterChoice<'_>) -> Result<WgpuMeasurer, WgpuError> {
        let device = Device::open(choice)?;
        module::check_limits(&device)?;
        let pipeline = module::compile(&device)?;
        let mut measurer = WgpuMeasurer {
            device,
            pipeline,
            buffers: None,
            buffers_made: 0,
            imported: 0,
            import_refusal: None,
        };
        conformance::smoke(&mut measurer).map_err(|fault| WgpuError::Nonconforming {
            adapter: measurer.device.name.clone(),
            fault,
        })?;
        Ok(measurer)
    }

    /// The adapter's name and type, for people.
    pub fn adapter(&self) -> &str {
        &self.device.name
    }

    /// The adapter is a CPU: for tests, and slower than the CPU's own measuring.
    pub fn is_cpu(&self) -> bool {
        self.device.is_cpu
    }

    /// Pictures in dma-bufs are measured where they are.
    pub fn imports(&self) -> bool {
        self.device.importer.is_some() && self.import_refusal.is_none()
    }

    /// Pictures measured where they were.
    pub fn imported(&self) -> u64 {
        self.imported
    }

    /// Why an import was refused: from then on pictures are fetched and sent up.
    pub fn import_refusal(&self) -> Option<&str> {
        self.import_refusal.as_deref()
    }

    /// How often buffers were made: once, and once more for each step of larger pictures.
    pub fn buffers_made(&self) -> u64 {
        self.buffers_made
    }

    /// Gives the device up, as a driver does that resets it: what is measured next fails.
    pub fn destroy(&self) {
        self.device.device.destroy();
    }

    fn measure_batch(
        &mut self,
        batch: &Batch<'_>,
        sent: &Sent,
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        let fits = |kept: &mut Buffers| kept.capacity >= batch.bytes;
        let buffers = match self.buffers.take_if(fits) {
            Some(buffers) => buffers,
            None => {
                let made = launch::make_buffers(&self.device, &self.pipeline, batch.bytes)?;
                self.buffers_made += 1;
                made
            }
        };
        launch::run(&self.device, &self.pipeline, &buffers, (batch.frames, sent), out)?;
        self.buffers = Some(buffers);
        Ok(())
    }

    /// Bytes of samples that a dispatch is filled up to.
    fn fill_bytes(&self) -> u64 {
        FILL_BYTES.min(buffer::bytes_max(&self.device.limits))
    }

    /// Measures pictures that are sent up first.
    fn measure_here(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        for batch in batches(frames, PICTURES_MAX, self.fill_bytes()) {
            self.measure_batch(&batch?, &Sent::Up, out)?;
        }
        Ok(())
    }

    /// Measures pictures where they are; those that the driver refuses, and all after them, are sent up.
    fn measure_there(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let Some(importer) = &self.device.importer else { break };
            let (frames, bytes) = first_batch(rest, PICTURES_MAX, self.fill_bytes());
            match importer.import(&self.device.device, frames) {
                Ok(textures) => {
                    let sent = Sent::Imported(textures);
                    self.measure_batch(&Batch { frames, bytes }, &sent, out)?;
                    self.imported += frames.len() as u64;
                    rest = &rest[frames.len()..];
                }
                Err(reason) => {
                    self.import_refusal = Some(reason);
                    break;
                }
            }
        }
        self.measure_here(rest, out)
    }

    /// Measures all frames, as many at once as fit.
    fn measure_all(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        if let Some(reason) = self.device.faults.loss() {
            return Err(MeasureError::DeviceLost { backend: NAME, reason });
        }
        let is_there = |frame: &Frame| Placed::at(0, frame).is_some();
        for alike in frames.chunk_by(|one, next| is_there(one) == is_there(next)) {
            match self.imports() && is_there(&alike[0]) {
                true => self.measure_there(alike, out)?,
                false => self.measure_here(alike, out)?,
            }
        }
        Ok(())
    }
}

impl Measurer for WgpuMeasurer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        let before = out.len();
        let measured = self.measure_all(frames, out);
        if measured.is_err() {
            out.truncate(before);
        }
        measured
    }
}
