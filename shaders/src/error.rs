//! Errors of opening the WGSL gate backend.

use gate::conformance::ConformanceError;
use media::ErrorKind;

/// Reason that no adapter could be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum WgpuError {
    /// There is no adapter of the requested kind.
    #[error("no Vulkan adapter {wanted}; found: {}", list(.found))]
    NoAdapter {
        /// Description of the requested adapter.
        wanted: String,
        /// Available adapters, each with its type.
        found: Vec<String>,
    },
    /// A limit of the adapter is below the gate backend's requirement.
    #[error("adapter {adapter} supports {what} of {got}; {needed} required")]
    TooSmall {
        /// Name of the adapter.
        adapter: String,
        /// Name of the limit.
        what: &'static str,
        /// Value of the adapter.
        got: u64,
        /// Required value.
        needed: u64,
    },
    /// The driver refused to open the adapter.
    #[error("adapter {adapter} could not be opened: {reason}")]
    Refused {
        /// Name of the adapter.
        adapter: String,
        /// Message of the driver.
        reason: String,
    },
    /// The driver refused the shader or a buffer.
    #[error("adapter {adapter} refused the shader or its buffers: {reason}")]
    Shader {
        /// Name of the adapter.
        adapter: String,
        /// Message of the driver.
        reason: String,
    },
    /// The driver failed in a way that makes its binding panic with this message.
    #[error("the Vulkan driver failed: {0}")]
    Driver(String),
    /// The adapter measures other integers than the reference.
    #[error("adapter {adapter} failed the conformance test: {fault}")]
    Nonconforming {
        /// Name of the adapter.
        adapter: String,
        /// First picture that differs.
        fault: ConformanceError,
    },
}

impl WgpuError {
    /// Returns unavailable for a missing part, and unsupported for one that is wrong.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WgpuError::NoAdapter { .. } | WgpuError::Refused { .. } | WgpuError::Driver(_) => {
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
