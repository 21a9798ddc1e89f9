//! Errors of opening the WGSL gate backend.

use gate::conformance::ConformanceError;
use media::ErrorKind;

/// Reason that no adapter measures.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WgpuError {
    /// No adapter of the kind that was asked for.
    #[error("no Vulkan adapter {wanted}; found: {}", list(.found))]
    NoAdapter {
        /// Adapter that was asked for, in words.
        wanted: String,
        /// The adapters there are, each with its type.
        found: Vec<String>,
    },
    /// The adapter has less than the gate backend needs.
    #[error("adapter {adapter} supports {what} of {got}; {needed} required")]
    TooSmall {
        /// Its name.
        adapter: String,
        /// Name of the limit.
        what: &'static str,
        /// Value of the adapter.
        got: u64,
        /// Value that is needed.
        needed: u64,
    },
    /// The driver refused to open the adapter.
    #[error("adapter {adapter} could not be opened: {reason}")]
    Refused {
        /// Its name.
        adapter: String,
        /// Message of the driver.
        reason: String,
    },
    /// The driver refused the shader or a buffer.
    #[error("adapter {adapter} refused the shader or its buffers: {reason}")]
    Shader {
        /// Its name.
        adapter: String,
        /// Message of the driver.
        reason: String,
    },
    /// The driver failed in a way that its binding panics at.
    #[error("the Vulkan driver failed: {reason}")]
    Driver {
        /// Message of the binding.
        reason: String,
    },
    /// It measures other integers than the reference.
    #[error("adapter {adapter} failed the conformance test: {fault}")]
    Nonconforming {
        /// Its name.
        adapter: String,
        /// The first picture that shows it.
        fault: ConformanceError,
    },
}

impl WgpuError {
    /// Returns unavailable for a part that is missing, and unsupported for one that is wrong.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WgpuError::NoAdapter { .. } | WgpuError::Refused { .. } | WgpuError::Driver { .. } => {
                ErrorKind::Unavailable
            }
            WgpuError::TooSmall { .. }
            | WgpuError::Shader { .. }
            | WgpuError::Nonconforming { .. } => ErrorKind::Unsupported,
        }
    }
}

fn list(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}
