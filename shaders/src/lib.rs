//! The gate's measurements in WGSL, batched, on any Vulkan adapter: the same integers as the CPU.
//!
//! Promises that no error of the driver is a panic, that no buffer is made per batch, and that
//! what opens has measured as the reference does. Frames go up from host memory, which costs more
//! than measuring them on the CPU: it pays where the CPU has no time. With the feature `dma-buf`, pictures that
//! another driver left in dma-bufs are measured where they are; one that the adapter refuses is uploaded, as are
//! all after it. Does not fall back: [`gate::FallbackMeasurer`] does.
#![deny(unsafe_code)]

mod buffer;
mod device;
mod error;
#[cfg_attr(not(feature = "dma-buf"), path = "no_import.rs")]
mod import;
mod launch;
mod module;
#[cfg(feature = "dma-buf")]
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
    import::Importer,
    launch::Source,
};

const NAME: &str = "wgpu";

/// Measures on one Vulkan adapter.
pub struct WgpuMeasurer {
    device: Device,
    pipeline: wgpu::ComputePipeline,
    /// `None` until the first batch.
    buffers: Option<Buffers>,
    buffers_made: u64,
    /// `None` where the device imports nothing.
    importer: Option<Importer>,
    import_refusal: Option<String>,
    pictures_imported: u64,
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
        let importer = Importer::of(&device);
        let mut measurer = WgpuMeasurer {
            device,
            pipeline,
            buffers: None,
            buffers_made: 0,
            importer,
            import_refusal: None,
            pictures_imported: 0,
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

    /// How often buffers were made: once, and once more for each step of larger pictures.
    pub fn buffers_made(&self) -> u64 {
        self.buffers_made
    }

    /// Gives the device up, as a driver does that resets it: what is measured next fails.
    pub fn destroy(&self) {
        self.device.device.destroy();
    }

    /// Pictures in dma-bufs are measured where they are, as far as is known: the first may be refused yet.
    pub fn imports(&self) -> bool {
        self.importer.is_some() && self.import_refusal.is_none()
    }

    /// Why pictures in dma-bufs are uploaded, though the device imports some.
    pub fn import_refusal(&self) -> Option<&str> {
        self.import_refusal.as_deref()
    }

    /// How many pictures were measured where they were.
    pub fn pictures_imported(&self) -> u64 {
        self.pictures_imported
    }

    /// Most bytes of samples of a dispatch of more than one picture.
    fn fill(&self) -> u64 {
        FILL_BYTES.min(buffer::bytes_max(&self.device.limits))
    }

    fn measure_batch(
        &mut self,
        batch: &Batch<'_>,
        source: Source<'_>,
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
        launch::run(&self.device, &self.pipeline, &buffers, batch.frames, source, out)?;
        self.buffers = Some(buffers);
        Ok(())
    }

    /// Measures pictures that are sent up first.
    fn measure_here(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        for batch in batches(frames, PICTURES_MAX, self.fill()) {
            self.measure_batch(&batch?, Source::Host, out)?;
        }
        Ok(())
    }

    /// Measures pictures where they are; those from the first batch on that is refused are sent up.
    fn measure_there(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let Some(importer) = self.importer.as_ref().filter(|_| self.imports()) else {
                return self.measure_here(rest, out);
            };
            let batch = first_batch(rest, self.fill(), |frame| importer.bytes(frame));
            match importer.import(&self.device, batch.frames) {
                Ok(imported) => self.measure_batch(&batch, Source::Textures(&imported), out)?,
                Err(refusal) => {
                    self.import_refusal = Some(refusal);
                    continue;
                }
            }
            self.pictures_imported += batch.frames.len() as u64;
            rest = &rest[batch.frames.len()..];
        }
        Ok(())
    }

    /// The device takes the picture from where it is.
    fn takes(&self, frame: &Frame) -> bool {
        let room = buffer::bytes_max(&self.device.limits);
        let bytes = self.importer.as_ref().and_then(|importer| importer.bytes(frame));
        self.imports() && bytes.is_some_and(|bytes| bytes <= room)
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
        let mut rest = frames;
        while let [first, ..] = rest {
            let there = self.takes(first);
            let alike = rest.iter().take_while(|frame| self.takes(frame) == there).count();
            let (now, after) = rest.split_at(alike);
            match there {
                true => self.measure_there(now, out)?,
                false => self.measure_here(now, out)?,
            }
            rest = after;
        }
        Ok(())
    }
}

/// The first of `frames` that fit in one dispatch, at least one.
fn first_batch(
    frames: &[Frame],
    fill_bytes: u64,
    bytes_of: impl Fn(&Frame) -> Option<u64>,
) -> Batch<'_> {
    let (mut count, mut bytes) = (0, 0);
    for own in frames.iter().take(PICTURES_MAX).map_while(bytes_of) {
        if count > 0 && bytes + own > fill_bytes {
            break;
        }
        count += 1;
        bytes += own;
    }
    Batch { frames: &frames[..count], bytes }
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
