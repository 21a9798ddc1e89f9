//! Gate measurements in CUDA, in batches: the same integers as the CPU.
//!
//! A missing part (driver, device, capability) is an error that names it; no memory is allocated per batch; a
//! backend that opens has passed the conformance check. Pictures are uploaded, or read where a hardware
//! decoder left them. Needs no CUDA toolkit: the PTX is checked in. Does not fall back:
//! [`gate::FallbackBackend`] does.
#![deny(unsafe_code)]

mod buffer;
mod cuda_backend;
mod device;
mod device_surface;
mod launch;
mod ptx;

pub use cuda_backend::CudaBackend;
pub use ptx::PTX;
