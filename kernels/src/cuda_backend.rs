//! Gate backend on one CUDA stream: pictures in, sums out; pictures in device memory are read in place.

use cudarc::driver::{DriverError, sys::CUresult};
use gate::{
    FrameMeasurements, MeasureBackend, MeasureError, conformance,
    device_batch::{
        DeviceBatch, HostPlanes, OpenError, SURFACES, Surface, batches, contained, unpack,
    },
};
use media::Frame;

use crate::{
    buffer::{FILL_BYTES, LaunchBuffers, PICTURES_MAX, SUM_BYTES, SampleBuffer},
    device::{CudaDevice, WaitError, refused},
    device_surface::surfaces,
    launch,
};

const NAME: &str = "cuda";

/// Measures on one CUDA device.
pub struct CudaBackend {
    device: CudaDevice,
    buffers: LaunchBuffers,
    /// Sample buffers; `None` until the first host picture.
    samples: Option<SampleBuffer>,
    /// Surfaces of the launch that is being prepared.
    surfaces: Vec<[Surface; SURFACES]>,
    /// Reason that the device is lost; a CUDA error stays with its context.
    loss: Option<String>,
}

impl CudaBackend {
    /// Opens device `index`, counted from 0, and runs the quick conformance check.
    pub fn open(index: usize) -> Result<CudaBackend, OpenError> {
        let device = CudaDevice::open(index)?;
        let buffers = LaunchBuffers::new(&device).map_err(refused("taking memory"))?;
        let surfaces = Vec::with_capacity(PICTURES_MAX);
        let mut measurer = CudaBackend { device, buffers, samples: None, surfaces, loss: None };
        conformance::quick_check(&mut measurer).map_err(|fault| {
            let name = &measurer.device.name;
            OpenError::Unfit(format!("device {name} failed the conformance test: {fault}"))
        })?;
        Ok(measurer)
    }

    /// Returns the device's name for display.
    pub fn device(&self) -> &str {
        &self.device.name
    }

    /// Measures pictures in device memory; only sums are copied to the host.
    fn measure_on_device(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), Failure> {
        self.device.follow_decoders()?;
        for batch in frames.chunks(PICTURES_MAX) {
            self.surfaces.clear();
            let number = self.device.number;
            self.surfaces.extend(batch.iter().filter_map(|frame| surfaces(frame, number)));
            self.sum(batch, out)?;
        }
        Ok(())
    }

    /// Uploads and measures host pictures.
    fn measure_from_host(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), Failure> {
        for batch in batches(frames, PICTURES_MAX, FILL_BYTES) {
            let batch = batch?;
            self.upload(&batch)?;
            self.sum(batch.frames, out)?;
        }
        Ok(())
    }

    fn upload(&mut self, batch: &DeviceBatch<'_>) -> Result<(), Failure> {
        let bytes = batch.bytes as usize;
        let samples = match self.samples.take_if(|samples| samples.capacity() >= bytes) {
            Some(samples) => self.samples.insert(samples),
            None => {
                // Frees the smaller buffer first: the device may lack memory for both.
                self.samples = None;
                self.samples.insert(SampleBuffer::new(&self.device, bytes)?)
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

    /// Measures `frames`, whose surfaces are prepared.
    fn sum(&mut self, frames: &[Frame], out: &mut Vec<FrameMeasurements>) -> Result<(), Failure> {
        let pictures = self.surfaces.len();
        self.buffers.send(&self.device, self.surfaces.iter())?;
        launch::cell_sums(&self.device, &mut self.buffers, pictures)?;
        let sums = self.buffers.fetch(&self.device, pictures)?.chunks_exact(SUM_BYTES);
        out.extend(frames.iter().zip(sums).map(|(frame, sums)| unpack(frame, sums)));
        Ok(())
    }

    /// Runs `measure`. On failure removes what it appended to `out`; a lost device stays lost.
    fn guarded(
        &mut self,
        out: &mut Vec<FrameMeasurements>,
        measure: impl FnOnce(&mut CudaBackend, &mut Vec<FrameMeasurements>) -> Result<(), Failure>,
    ) -> Result<(), MeasureError> {
        if let Some(reason) = self.loss.clone() {
            return Err(MeasureError::DeviceLost(NAME, reason));
        }
        let before = out.len();
        // The binding panics if a driver lacks a function that its version should have.
        let failure = match contained(|| measure(self, out)) {
            Ok(Ok(())) => return Ok(()),
            Ok(Err(failure)) => failure,
            Err(reason) => Failure::Lost(reason),
        };
        out.truncate(before);
        let reason = match failure {
            Failure::Picture(error) => return Err(error),
            // Work sent before memory ran out may still read buffers that the next batch writes.
            Failure::Memory(reason) => match self.device.wait() {
                Ok(()) => return Err(MeasureError::NoRoom(NAME, reason)),
                Err(unfinished) => unfinished.to_string(),
            },
            Failure::Lost(reason) => reason,
        };
        self.loss = Some(reason.clone());
        Err(MeasureError::DeviceLost(NAME, reason))
    }
}

impl MeasureBackend for CudaBackend {
    fn name(&self) -> &'static str {
        NAME
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        self.guarded(out, |measurer, out| {
            let number = measurer.device.number;
            let is_there = |frame: &Frame| surfaces(frame, number).is_some();
            for alike in frames.chunk_by(|one, next| is_there(one) == is_there(next)) {
                match is_there(&alike[0]) {
                    true => measurer.measure_on_device(alike, out)?,
                    false => measurer.measure_from_host(alike, out)?,
                }
            }
            Ok(())
        })
    }
}

/// Reason that a batch was not measured.
enum Failure {
    /// The picture is at fault.
    Picture(MeasureError),
    /// The device has no memory left; a smaller batch may fit.
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

impl From<WaitError> for Failure {
    fn from(unfinished: WaitError) -> Failure {
        match unfinished {
            WaitError::Refused(error) => error.into(),
            WaitError::Silent => Failure::Lost(unfinished.to_string()),
        }
    }
}
