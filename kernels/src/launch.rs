//! Safe wrapper of the kernel launch.

use cudarc::driver::{DriverError, LaunchConfig, PushKernelArg};
use gate::device_batch::CELLS;

use crate::{
    buffer::{LaunchBuffers, PICTURES_MAX},
    device::CudaDevice,
};

/// Threads of a block, 32 for each cell: eight adjacent cells share the cache lines at their borders.
const THREADS: u32 = 256;
/// Blocks of a picture.
const BLOCKS: u32 = (CELLS as u32 * 32).div_ceil(THREADS);

/// Sums the cells of the first `pictures` uploaded surface sets.
///
/// Panics if `pictures` exceeds [`PICTURES_MAX`].
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
    // SAFETY: the kernel takes these two pointers, reads the surfaces of `pictures` pictures and writes their
    // sums, for which both buffers have room. It reads samples where the surfaces point: into this backend's
    // own buffers, or into memory that the maker of a `DeviceFrameBuffer` guarantees.
    unsafe { launch.launch(shape) }?;
    Ok(())
}
