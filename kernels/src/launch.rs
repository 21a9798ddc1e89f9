//! The kernel as a safe function.

use cudarc::driver::{DriverError, LaunchConfig, PushKernelArg};
use gate::device_batch::CELLS;

use crate::{
    buffer::{LaunchBuffers, PICTURES_MAX},
    device::CudaDevice,
};

/// Threads of a block, 32 a cell: eight cells side by side share the cache lines at their borders.
const THREADS: u32 = 256;
/// Blocks of a picture.
const BLOCKS: u32 = (CELLS as u32 * 32).div_ceil(THREADS);

/// Sums the cells of the first `pictures` of the surfaces sent up.
///
/// Panics when there are more than a launch takes.
#[expect(unsafe_code, reason = "a launch passes untyped arguments")]
pub(crate) fn cell_sums(
    device: &CudaDevice,
    buffers: &mut LaunchBuffers,
    pictures: usize,
) -> Result<(), DriverError> {
    assert!(pictures <= PICTURES_MAX, "{pictures} pictures");
    let shape = LaunchConfig {
        grid_dim: (BLOCKS, pictures as u32, 1),
        block_dim: (THREADS, 1, 1),
        shared_mem_bytes: 0,
    };
    let mut launch = device.stream.launch_builder(&device.cell_sums);
    launch.arg(&buffers.surfaces).arg(&mut buffers.sums);
    // SAFETY: the kernel takes these two pointers, reads the surfaces of `pictures` pictures and
    // writes their sums, for which both buffers have room. It reads samples where the surfaces
    // say: in the gate backend's own buffers, or where whoever made a `DeviceFrameBuffer` vouches for it.
    unsafe { launch.launch(shape) }?;
    Ok(())
}
