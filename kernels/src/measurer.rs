//! The measurer: host and device pictures in, sums out, one stream.

use std::panic::{AssertUnwindSafe, catch_unwind};

use cudarc::driver::{DriverError, sys::CUresult};
use gate::{
    MeasureError, Measurements, Measurer, conformance,
    device::{Batch, HostPlanes, SURFACES, Surface, batches, said, unpack},
};
use media::Frame;

use crate::{
    CudaError, DevicePicture,
    buffer::{Buffers, FILL_BYTES, PICTURES_MAX, SUM_BYTES, Samples},
    device::{Device, Unfinished, refused},
    launch,
};

const NAME: &str = "cuda";

/// Measures on one CUDA device.
pub struct CudaMeasurer {
    device: Device,
    buffers: Buffers,
    /// `None` until the first host picture.
    samples: Option<Samples>,
    /// The surfaces of a launch while it is put together.
    surfaces: Vec<[Surface; SURFACES]>,
    /// Why the device is not asked any more: an error of CUDA stays with its context.
    loss: Option<String>,
}

impl CudaMeasurer {
    /// Opens device `index`, counted from 0, and measures the smoke of the conformance table.
    pub fn open(index: usize) -> Result<CudaMeasurer, CudaError> {
        let device = Device::open(index)?;
        let buffers = Buffers::new(&device).map_err(refused("taking memory"))?;
        let surfaces = Vec::with_capacity(PICTURES_MAX);
        let mut measurer = CudaMeasurer { device, buffers, samples: None, surfaces, loss: None };
        conformance::smoke(&mut measurer).map_err(|fault| CudaError::Nonconforming {
            name: measurer.device.name.clone(),
            fault,
        })?;
        Ok(measurer)
    }

    /// The device's name, for people.
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// Appends the measurements of pictures in device memory to `out`, in order; nothing is
    /// copied to the host but sums. On an error `out` holds what it held before.
    pub fn measure_device(
        &mut self,
        pictures: &[DevicePicture],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        self.guarded(out, |measurer, out| {
            for batch in pictures.chunks(PICTURES_MAX) {
                measurer.surfaces.clear();
                measurer.surfaces.extend(batch.iter().map(|picture| picture.surfaces));
                let sums = measurer.launch()?.chunks_exact(SUM_BYTES);
                out.extend(
                    batch.iter().zip(sums).map(|(picture, sums)| {
                        unpack(picture.extent, picture.chroma_extent(), sums)
                    }),
                );
            }
            Ok(())
        })
    }

    fn measure_batch(
        &mut self,
        batch: &Batch<'_>,
        out: &mut Vec<Measurements>,
    ) -> Result<(), Failure> {
        self.upload(batch)?;
        let sums = self.launch()?.chunks_exact(SUM_BYTES);
        out.extend(batch.frames.iter().zip(sums).map(|(frame, sums)| {
            unpack(frame.extent, frame.layout.subsampling.chroma_extent(frame.extent), sums)
        }));
        Ok(())
    }

    /// Packs the batch, and sends it up.
    fn upload(&mut self, batch: &Batch<'_>) -> Result<(), Failure> {
        let bytes = batch.bytes as usize;
        let samples = match self.samples.take_if(|samples| samples.capacity() >= bytes) {
            Some(samples) => self.samples.insert(samples),
            None => {
                // The smaller one goes first: both need not fit.
                self.samples = None;
                self.samples.insert(Samples::new(&self.device, bytes)?)
            }
        };
        let address = samples.address(&self.device);
        self.surfaces.clear();
        let room = samples.fill()?;
        let mut at = 0;
        for frame in batch.frames {
            let planes = HostPlanes::new(frame)?;
            let surfaces = planes.pack(at, |at, row| {
                room[at as usize..at as usize + row.len()].copy_from_slice(row);
            });
            let there = |surface: Surface| surface.at(address);
            self.surfaces.push(surfaces.map(there));
            at += planes.packed_bytes();
        }
        Ok(samples.send(&self.device, bytes)?)
    }

    /// Measures the surfaces that were put together; their sums.
    fn launch(&mut self) -> Result<&[u8], Failure> {
        let pictures = self.surfaces.len();
        self.buffers.send(&self.device, self.surfaces.iter())?;
        launch::cell_sums(&self.device, &mut self.buffers, pictures)?;
        Ok(self.buffers.fetch(&self.device, pictures)?)
    }

    /// Runs `measure`; what it appended is taken back when it fails, and a lost device stays so.
    fn guarded(
        &mut self,
        out: &mut Vec<Measurements>,
        measure: impl FnOnce(&mut CudaMeasurer, &mut Vec<Measurements>) -> Result<(), Failure>,
    ) -> Result<(), MeasureError> {
        if let Some(reason) = self.loss.clone() {
            return Err(MeasureError::DeviceLost { backend: NAME, reason });
        }
        let before = out.len();
        // The binding panics where a driver lacks a function that its version should have.
        let ran = catch_unwind(AssertUnwindSafe(|| measure(self, out)));
        let failure = match ran {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(panic) => Failure::Lost(said(panic.as_ref())),
        };
        out.truncate(before);
        let failure = match failure {
            Failure::Memory(reason) => self.settled(reason),
            failure => failure,
        };
        Err(match failure {
            Failure::Picture(error) => error,
            Failure::Memory(reason) => MeasureError::NoRoom { backend: NAME, reason },
            Failure::Lost(reason) => {
                self.loss = Some(reason.clone());
                MeasureError::DeviceLost { backend: NAME, reason }
            }
        })
    }
}

impl CudaMeasurer {
    /// Waits for what was sent before memory ran out: it may still read what the next batch writes.
    fn settled(&self, reason: String) -> Failure {
        match self.device.wait() {
            Ok(()) => Failure::Memory(reason),
            Err(unfinished) => Failure::Lost(unfinished.reason()),
        }
    }
}

impl Measurer for CudaMeasurer {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<Measurements>,
    ) -> Result<(), MeasureError> {
        self.guarded(out, |measurer, out| {
            for batch in batches(frames, PICTURES_MAX, FILL_BYTES) {
                measurer.measure_batch(&batch?, out)?;
            }
            Ok(())
        })
    }
}

/// Why a batch was not measured.
enum Failure {
    /// The picture is at fault.
    Picture(MeasureError),
    /// The device has no memory left: a smaller batch may fit.
    Memory(String),
    Lost(String),
}

impl From<MeasureError> for Failure {
    fn from(error: MeasureError) -> Failure {
        Failure::Picture(error)
    }
}

impl From<DriverError> for Failure {
    fn from(error: DriverError) -> Failure {
        match error.0 {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Failure::Memory(error.to_string()),
            _ => Failure::Lost(error.to_string()),
        }
    }
}

impl From<Unfinished> for Failure {
    fn from(unfinished: Unfinished) -> Failure {
        match unfinished {
            Unfinished::Refused(error) => error.into(),
            Unfinished::Silent => Failure::Lost(unfinished.reason()),
        }
    }
}
