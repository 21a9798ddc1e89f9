//! The kernel's code: PTX made once from the CUDA source, which the driver compiles and caches.

use std::sync::Arc;

use cudarc::{
    driver::{CudaContext, CudaFunction},
    nvrtc::Ptx,
};

use crate::{CudaError, device::refused};

/// PTX for compute capability 7.5 and later; `ptx.py` beside the source makes it.
pub const PTX: &str = include_str!("../cuda/cell_sums.ptx");

/// Loads the kernel into a context.
pub(crate) fn load(context: &Arc<CudaContext>) -> Result<CudaFunction, CudaError> {
    let module = context.load_module(Ptx::from_src(PTX)).map_err(refused("compiling the PTX"))?;
    module.load_function("cell_sums").map_err(refused("finding the kernel"))
}
