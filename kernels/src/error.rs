//! Errors of opening the CUDA gate backend.

use gate::conformance::ConformanceError;
use media::ErrorKind;

/// Missing or unsuitable part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The driver is not installed, not visible to this process, or not loadable, as the loader says.
    #[error("no NVIDIA driver: {0}")]
    NoDriver(String),
    /// The driver is older than the PTX requires.
    #[error("the NVIDIA driver speaks CUDA {found}, and {needed} is needed: driver 525 or later")]
    DriverTooOld {
        /// CUDA version of the driver.
        found: CudaVersion,
        /// Least CUDA version required.
        needed: CudaVersion,
    },
    /// The driver is present but finds no device, for this reason.
    #[error("the NVIDIA driver finds no device: {0}")]
    NoDevice(String),
    /// No device has this number.
    #[error("no CUDA device {wanted}: there are {count}, counted from 0")]
    NoSuchDevice {
        /// Requested number.
        wanted: usize,
        /// Number of devices.
        count: usize,
    },
    /// The device is older than the PTX requires.
    #[error("device {name} has compute capability {found}, and {needed} is needed")]
    DeviceTooOld {
        /// Name of the device.
        name: String,
        /// Compute capability of the device.
        found: CudaVersion,
        /// Least compute capability required.
        needed: CudaVersion,
    },
    /// The driver refused a step of opening the device.
    #[error("the NVIDIA driver failed at {step}: {reason}")]
    Refused {
        /// Step that failed.
        step: &'static str,
        /// Message of the driver.
        reason: String,
    },
    /// The device measures other integers than the reference.
    #[error("device {name} failed the conformance test: {fault}")]
    Nonconforming {
        /// Name of the device.
        name: String,
        /// First picture that differs.
        fault: ConformanceError,
    },
}

impl CudaError {
    /// Returns unavailable for a missing part, and unsupported for one that is too old or wrong.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CudaError::NoDriver(_)
            | CudaError::NoDevice(_)
            | CudaError::NoSuchDevice { .. }
            | CudaError::Refused { .. } => ErrorKind::Unavailable,
            CudaError::DriverTooOld { .. }
            | CudaError::DeviceTooOld { .. }
            | CudaError::Nonconforming { .. } => ErrorKind::Unsupported,
        }
    }
}

/// Version of CUDA, or a compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// Number before the point.
    pub major: i32,
    /// Number after the point.
    pub minor: i32,
}

impl CudaVersion {
    /// Converts the driver's number: 12020 is 12.2.
    pub fn of_driver(number: i32) -> CudaVersion {
        CudaVersion { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl std::fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered() {
        let cases = [(11040, "11.4"), (12000, "12.0"), (12080, "12.8"), (13010, "13.1")];
        for (number, expected) in cases {
            assert_eq!(CudaVersion::of_driver(number).to_string(), expected);
        }
        assert!(cases.is_sorted_by_key(|(number, _)| CudaVersion::of_driver(*number)));
    }
}
