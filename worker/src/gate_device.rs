//! Gate backend of a worker: the CPU, or a device that all its threads share.
//!
//! A device is opened once, while the worker enters its sandbox. Promises that frames which the device does
//! not measure, or not in time, and all frames after its loss are measured by the CPU with the same integers,
//! and that a loss is reported. The supervisor chooses the backend.

mod device_thread;
mod device_timeouts;

use std::sync::Arc;

use decode::BackendError;
use gate::{
    CpuBackend, FallbackBackend, FrameMeasurements, MeasureBackend, MeasureError,
    device_batch::OpenError,
};
use media::{ErrorKind, Frame};

use device_thread::DeviceThread;
pub(crate) use device_timeouts::DeviceTimeouts;

/// Frames that a thread of a file job gathers for a device before it waits for their measurements.
const GATHERED_MAX: usize = 8;

media::named! {
    /// Backend that measures frames.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub enum GateBackend {
        /// An NVIDIA device.
        Cuda = "cuda",
        /// A Vulkan adapter.
        Wgpu = "wgpu",
        /// The CPU; always available.
        Cpu = "cpu",
    }
}

/// Device that a worker should measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct GateDevice {
    pub backend: GateBackend,
    /// Number of the NVIDIA device.
    pub number: u32,
    /// True if asked for by name: any adapter will do, even one that is a CPU.
    pub is_named: bool,
    /// True if the device measured when the server started: if it cannot be opened later, the CPU is used.
    pub was_there: bool,
}

/// Report about the gate backend of a job's frames.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateBackendReport {
    /// Name of the gate backend at the end, such as `cpu-avx2`.
    pub measurer: String,
    /// Reason for giving up the device, if it was lost.
    pub lost: Option<String>,
    /// Batches for which the device was too late, so that the CPU measured them.
    pub late: u32,
}

/// Gate backend of this worker; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct GateMeasurement(Option<Arc<DeviceThread>>);

impl GateMeasurement {
    /// Opens `device` and runs the smoke part of the conformance table on it; `None` is the CPU, and so is a
    /// device that has vanished since the server's start.
    pub fn open(device: Option<&GateDevice>) -> Result<GateMeasurement, BackendError> {
        let Some(device) = device else { return Ok(GateMeasurement::default()) };
        let opened = match open_device(device) {
            Err(error) if device.was_there => {
                let gone = DeviceThread::closed(device.backend.as_str(), error.to_string());
                return Ok(GateMeasurement(Some(Arc::new(gone))));
            }
            opened => opened?,
        };
        let Some(opened) = opened else { return Ok(GateMeasurement::default()) };
        let device = DeviceThread::open(opened).map_err(|error| {
            BackendError::unavailable(format!("no thread for the device: {error}"))
        })?;
        Ok(GateMeasurement(Some(Arc::new(device))))
    }

    /// Measures on a test's `device`, called `device_name`, which reads host memory.
    #[cfg(test)]
    pub fn on(
        device: Box<dyn MeasureBackend>,
        device_name: &str,
        patience: DeviceTimeouts,
    ) -> std::io::Result<GateMeasurement> {
        let name = device_name.to_owned();
        let opened = Opened { measurer: device, name, patience, nvidia: None };
        Ok(GateMeasurement(Some(Arc::new(DeviceThread::open(opened)?))))
    }

    /// Returns the number of the NVIDIA device in whose memory pictures may stay for measuring.
    pub fn nvidia(&self) -> Option<u32> {
        self.0.as_ref()?.nvidia
    }

    /// Returns a gate backend for one thread.
    pub fn measurer(&self) -> Box<dyn MeasureBackend> {
        match &self.0 {
            None => Box::new(CpuBackend::new()),
            Some(device) => Box::new(FallbackBackend::new(Box::new(Handle(Arc::clone(device))))),
        }
    }

    /// Returns true if there is a device and it is not lost.
    pub fn is_on_device(&self) -> bool {
        self.0.as_ref().is_some_and(|device| device.lost().is_none())
    }

    /// Returns true if there is a device that is neither lost nor late: frames may be gathered for it.
    pub fn takes(&self) -> bool {
        self.0.as_ref().is_some_and(|device| device.takes())
    }

    /// Returns the number of frames to measure at once: more than one pays on a device only.
    pub fn gathered_max(&self) -> usize {
        if self.is_on_device() { GATHERED_MAX } else { 1 }
    }

    /// Returns the number of late batches since the last call; each is returned once.
    pub fn take_late(&self) -> u32 {
        self.0.as_ref().map_or(0, |device| device.take_late())
    }

    /// Returns the reason for which the device was given up, once.
    pub fn take_loss(&self) -> Option<String> {
        Some(self.0.as_ref()?.take_loss()?.to_string())
    }

    /// Returns the name of the present gate backend, such as `cpu-avx2`, or the backend and its device.
    pub fn name(&self) -> String {
        match self.0.as_ref().filter(|_| self.is_on_device()) {
            Some(device) => device.label.clone(),
            None => CpuBackend::new().name().to_owned(),
        }
    }

    pub fn told(&self) -> GateBackendReport {
        let device = self.0.as_ref();
        GateBackendReport {
            measurer: self.name(),
            lost: device.and_then(|device| device.lost()).map(ToString::to_string),
            late: device.map_or(0, |device| device.late()),
        }
    }
}

struct Handle(Arc<DeviceThread>);

impl MeasureBackend for Handle {
    fn name(&self) -> &'static str {
        self.0.backend()
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        out.extend(self.0.measure(frames)?);
        Ok(())
    }
}

struct Opened {
    measurer: Box<dyn MeasureBackend>,
    name: String,
    patience: DeviceTimeouts,
    /// Number of the NVIDIA device whose memory the backend reads pictures from.
    nvidia: Option<u32>,
}

/// Opens `device`; `None` for the CPU.
fn open_device(device: &GateDevice) -> Result<Option<Opened>, BackendError> {
    match device.backend {
        GateBackend::Cpu => Ok(None),
        #[cfg(not(feature = "wgpu"))]
        GateBackend::Wgpu => Err(BackendError::unsupported(
            "this program measures on no Vulkan adapter: sightline-server does",
        )),
        #[cfg(feature = "wgpu")]
        GateBackend::Wgpu => {
            let choice = match device.is_named {
                true => shaders::AdapterChoice::Any,
                false => shaders::AdapterChoice::Discrete,
            };
            let measurer = shaders::WgpuBackend::open(choice).map_err(|error| refused(&error))?;
            let name = measurer.adapter().to_owned();
            let patience =
                if measurer.is_cpu() { DeviceTimeouts::CPU } else { DeviceTimeouts::GPU };
            Ok(Some(Opened { measurer: Box::new(measurer), name, patience, nvidia: None }))
        }
        GateBackend::Cuda => {
            let measurer = kernels::CudaBackend::open(device.number as usize)
                .map_err(|error| refused(&error))?;
            let name = measurer.device().to_owned();
            let (patience, nvidia) = (DeviceTimeouts::GPU, Some(device.number));
            Ok(Some(Opened { measurer: Box::new(measurer), name, patience, nvidia }))
        }
    }
}

/// Refuses a device that is missing or does not measure as the CPU does.
fn refused(error: &OpenError) -> BackendError {
    match error.kind() {
        ErrorKind::Unsupported => BackendError::unsupported(error.to_string()),
        _ => BackendError::unavailable(error.to_string()),
    }
}

#[cfg(test)]
pub(crate) mod tests;
