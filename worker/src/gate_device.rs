//! Gate backend of frames in a worker: the CPU, or a device that all its threads share.
//!
//! A device is opened once, while the worker confines itself. Promises that what it does not measure,
//! or not in time, and everything from its loss on, is measured by the CPU with the same integers, and
//! that a loss is told. Which backend is wanted is the supervisor's matter.

mod device_thread;
mod device_timeouts;
#[cfg(test)]
pub(crate) mod scripted;

use std::{io, sync::Arc};

use gate::{CpuBackend, FallbackBackend, FrameMeasurements, MeasureBackend, MeasureError};
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
        /// The processor; always there.
        Cpu = "cpu",
    }
}

/// Refusal of a backend that is not there, or does not measure as the CPU does.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{reason}")]
pub struct GateBackendError {
    /// Decides what the caller is told.
    pub kind: ErrorKind,
    /// Names what is missing or wrong.
    pub reason: String,
}

/// A device that a worker is to measure with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub(crate) struct GateDevice {
    pub backend: GateBackend,
    /// Number of the NVIDIA device.
    pub number: u32,
    /// It was asked for by name: any adapter will do, one that is a CPU too.
    pub is_named: bool,
    /// It measured when the server started: where it cannot be opened any more, the CPU goes on.
    pub was_there: bool,
}

/// Gate backend of the frames of a job.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateBackendReport {
    /// The gate backend at the end, such as `cpu-avx2`.
    pub measurer: String,
    /// Reason for giving up the device that was there at the start.
    pub lost: Option<String>,
    /// Batches that the device was late with, and that the CPU measured.
    pub late: u32,
}

/// Gate backend of this worker; cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct GateMeasurement(Option<Arc<Shared>>);

/// A device, and what became of it.
struct Shared {
    name: &'static str,
    /// The backend's name and the device's.
    label: String,
    desk: DeviceThread,
    /// Number of the NVIDIA device in whose memory it reads pictures.
    nvidia: Option<u32>,
}

impl GateMeasurement {
    /// Opens `device` and measures the smoke of the conformance table with it; `None` is the CPU.
    pub fn open(device: Option<&GateDevice>) -> Result<GateMeasurement, GateBackendError> {
        let opened = match device {
            None => return Ok(GateMeasurement::default()),
            Some(device) => match open_device(device) {
                Err(error) if device.was_there => {
                    return Ok(GateMeasurement::gone(device.backend, &error));
                }
                opened => opened?,
            },
        };
        let Some(opened) = opened else { return Ok(GateMeasurement::default()) };
        GateMeasurement::at(opened).map_err(|error| GateBackendError {
            kind: ErrorKind::Unavailable,
            reason: format!("no thread for the device: {error}"),
        })
    }

    fn at(opened: Opened) -> io::Result<GateMeasurement> {
        let Opened { measurer, name: device_name, patience, nvidia } = opened;
        let name = measurer.name();
        let label = format!("{name}:{device_name}");
        let desk = DeviceThread::open(measurer, patience)?;
        Ok(GateMeasurement(Some(Arc::new(Shared { name, label, desk, nvidia }))))
    }

    /// Measures on a device that is called `device_name` and reads host memory.
    #[cfg(test)]
    pub fn on(
        device: Box<dyn MeasureBackend>,
        device_name: &str,
        patience: DeviceTimeouts,
    ) -> io::Result<GateMeasurement> {
        let name = device_name.to_owned();
        GateMeasurement::at(Opened { measurer: device, name, patience, nvidia: None })
    }

    /// The CPU, in place of a device that is there no more.
    fn gone(backend: GateBackend, error: &GateBackendError) -> GateMeasurement {
        let name = backend.as_str();
        let desk = DeviceThread::closed(name, error.to_string());
        GateMeasurement(Some(Arc::new(Shared { name, label: name.to_owned(), desk, nvidia: None })))
    }

    /// Number of the NVIDIA device on which pictures may stay for it.
    pub fn nvidia(&self) -> Option<u32> {
        self.0.as_ref()?.nvidia
    }

    /// A gate backend for one thread.
    pub fn measurer(&self) -> Box<dyn MeasureBackend> {
        match &self.0 {
            None => Box::new(CpuBackend::new()),
            Some(shared) => Box::new(FallbackBackend::new(Box::new(Handle(Arc::clone(shared))))),
        }
    }

    /// A device is there and was not lost.
    pub fn is_on_device(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.desk.is_open())
    }

    /// The device is there and not behind: frames may be gathered for it.
    pub fn takes(&self) -> bool {
        self.0.as_ref().is_some_and(|shared| shared.desk.takes())
    }

    /// Frames to measure at once: a device pays for more than one, the CPU does not.
    pub fn gathered_max(&self) -> usize {
        if self.is_on_device() { GATHERED_MAX } else { 1 }
    }

    /// Batches that the device was late with, and that the CPU measured.
    pub fn late(&self) -> u32 {
        self.0.as_ref().map_or(0, |shared| shared.desk.late())
    }

    /// Returns the reason that the device is not asked any more.
    pub fn lost(&self) -> Option<String> {
        self.0.as_ref()?.desk.loss_reason().map(ToString::to_string)
    }

    /// Returns the name of the present gate backend, such as `cpu-avx2`, or a backend and its device.
    pub fn name(&self) -> String {
        match self.0.as_ref().filter(|_| self.is_on_device()) {
            Some(shared) => shared.label.clone(),
            None => CpuBackend::new().name().to_owned(),
        }
    }

    /// Returns the report about it.
    pub fn told(&self) -> GateBackendReport {
        GateBackendReport { measurer: self.name(), lost: self.lost(), late: self.late() }
    }
}

/// One thread's way to the device.
struct Handle(Arc<Shared>);

impl MeasureBackend for Handle {
    fn name(&self) -> &'static str {
        self.0.name
    }

    fn measure(
        &mut self,
        frames: &[Frame],
        out: &mut Vec<FrameMeasurements>,
    ) -> Result<(), MeasureError> {
        out.extend(self.0.desk.measure(frames)?);
        Ok(())
    }
}

/// An open device.
struct Opened {
    measurer: Box<dyn MeasureBackend>,
    name: String,
    patience: DeviceTimeouts,
    nvidia: Option<u32>,
}

/// `None` is the CPU.
fn open_device(device: &GateDevice) -> Result<Option<Opened>, GateBackendError> {
    match device.backend {
        GateBackend::Cpu => Ok(None),
        #[cfg(not(feature = "wgpu"))]
        GateBackend::Wgpu => Err(GateBackendError {
            kind: ErrorKind::Unsupported,
            reason: "this program measures on no Vulkan adapter: sightline-server does".to_owned(),
        }),
        #[cfg(feature = "wgpu")]
        GateBackend::Wgpu => {
            let choice = match device.is_named {
                true => shaders::AdapterChoice::Any,
                false => shaders::AdapterChoice::Discrete,
            };
            let measurer = shaders::WgpuBackend::open(choice)
                .map_err(|error| refused(error.kind(), &error))?;
            let name = measurer.adapter().to_owned();
            let patience =
                if measurer.is_cpu() { DeviceTimeouts::CPU } else { DeviceTimeouts::GPU };
            Ok(Some(Opened { measurer: Box::new(measurer), name, patience, nvidia: None }))
        }
        GateBackend::Cuda => {
            let measurer = kernels::CudaBackend::open(device.number as usize)
                .map_err(|error| refused(error.kind(), &error))?;
            let name = measurer.device().to_owned();
            let (patience, nvidia) = (DeviceTimeouts::GPU, Some(device.number));
            Ok(Some(Opened { measurer: Box::new(measurer), name, patience, nvidia }))
        }
    }
}

fn refused(kind: ErrorKind, error: &dyn std::error::Error) -> GateBackendError {
    GateBackendError { kind, reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No machine has as many devices.
    #[test]
    fn a_device_that_is_there_no_more_is_replaced_by_the_cpu() {
        let device = |was_there| GateDevice {
            backend: GateBackend::Cuda,
            number: 4000,
            is_named: true,
            was_there,
        };
        assert!(
            GateMeasurement::open(Some(&device(false))).is_err(),
            "at the start that is an error"
        );
        let measuring = GateMeasurement::open(Some(&device(true))).unwrap_or_default();
        let lost = measuring.told().lost.unwrap_or_default();
        assert!(lost.starts_with("cuda lost its device: "), "{lost}");
        assert_eq!(measuring.name(), CpuBackend::new().name());
        assert_eq!(measuring.gathered_max(), 1);
        let mut measured = Vec::new();
        assert_eq!(measuring.measurer().measure(&[], &mut measured), Ok(()));
    }
}
