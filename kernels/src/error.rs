//! Why the CUDA measurer cannot be opened.

use gate::conformance::Nonconformance;
use media::ErrorKind;

/// What is missing, or wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CudaError {
    /// The driver is not installed, not visible here, or no library.
    #[error("no NVIDIA driver: {reason}")]
    NoDriver {
        /// What the loader says.
        reason: String,
    },
    /// The driver is older than the kernels' code.
    #[error("the NVIDIA driver speaks CUDA {found}, and {needed} is needed: driver 525 or later")]
    DriverTooOld {
        /// CUDA version of the driver.
        found: Version,
        /// Least CUDA version.
        needed: Version,
    },
    /// The driver is there and no device is.
    #[error("the NVIDIA driver finds no device: {reason}")]
    NoDevice {
        /// What the driver says.
        reason: String,
    },
    /// No device has this number.
    #[error("no CUDA device {wanted}: there are {count}, counted from 0")]
    NoSuchDevice {
        /// The number asked for.
        wanted: usize,
        /// How many there are.
        count: usize,
    },
    /// The device is older than the kernels' code.
    #[error("device {name} has compute capability {found}, and {needed} is needed")]
    DeviceTooOld {
        /// Its name.
        name: String,
        /// What it has.
        found: Version,
        /// Least of what is needed.
        needed: Version,
    },
    /// The driver refused a step of opening the device.
    #[error("the NVIDIA driver failed at {step}: {reason}")]
    Refused {
        /// Which step.
        step: &'static str,
        /// What the driver says.
        reason: String,
    },
    /// It measures other integers than the reference.
    #[error("device {name} does not measure as the reference does: {fault}")]
    Nonconforming {
        /// Its name.
        name: String,
        /// The first picture that shows it.
        fault: Nonconformance,
    },
}

impl CudaError {
    /// What is not there is unavailable; what is there and too old or wrong is unsupported.
    pub fn kind(&self) -> ErrorKind {
        match self {
            CudaError::NoDriver { .. }
            | CudaError::NoDevice { .. }
            | CudaError::NoSuchDevice { .. }
            | CudaError::Refused { .. } => ErrorKind::Unavailable,
            CudaError::DriverTooOld { .. }
            | CudaError::DeviceTooOld { .. }
            | CudaError::Nonconforming { .. } => ErrorKind::Unsupported,
        }
    }
}

/// A version of CUDA, or a compute capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the point.
    pub major: i32,
    /// Behind it.
    pub minor: i32,
}

impl Version {
    /// From the driver's number: 12020 is 12.2.
    pub fn of_driver(number: i32) -> Version {
        Version { major: number / 1000, minor: number % 1000 / 10 }
    }
}

impl std::fmt::Display for Version {
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
            assert_eq!(Version::of_driver(number).to_string(), expected);
        }
        assert!(cases.is_sorted_by_key(|(number, _)| Version::of_driver(*number)));
    }
}
