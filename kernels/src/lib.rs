//! The gate's measurements in CUDA, batched: the same integers as the CPU.
//!
//! Promises that what is missing (driver, device, capability) is an error that names it, that no
//! memory is taken per batch, and that what opens has measured as the reference does. Pictures
//! are uploaded, or read where a hardware decoder left them. Needs no toolkit: the PTX is checked
//! in. Does not fall back: [`gate::FallbackBackend`] does.
#![deny(unsafe_code)]

mod buffer;
mod cuda_backend;
mod device;
mod device_surface;
mod error;
mod launch;
mod ptx;

pub use cuda_backend::CudaBackend;
pub use error::{CudaError, CudaVersion};
pub use ptx::PTX;
