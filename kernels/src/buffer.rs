//! Host and device memory for uploading batches and downloading sums, allocated once and reused.
//!
//! Host memory is page-locked, so that copies run without the CPU. Only a batch larger than any before
//! allocates new sample buffers.

use cudarc::driver::{CudaSlice, DevicePtr, DriverError, PinnedHostSlice, sys};
use gate::device_batch::{SUMS, SURFACE_WORDS, SURFACES, Surface};

use crate::device::{CudaDevice, WaitError};

/// Most pictures of one launch, which take 6.6 MB of sums.
pub(crate) const PICTURES_MAX: usize = 256;
/// Bytes of samples up to which a launch is filled; a larger picture gets its own launch.
pub(crate) const FILL_BYTES: u64 = 32 << 20;
/// Bytes of the sums of one picture.
pub(crate) const SUM_BYTES: usize = 4 * SUMS;

/// Bytes of the surfaces of one picture.
const SURFACE_BYTES: usize = 4 * SURFACES * SURFACE_WORDS;
/// Least capacity of a sample buffer: a 1080p picture.
const FIRST_BYTES: usize = 4 << 20;

pub(crate) struct LaunchBuffers {
    head: PinnedHostSlice<u8>,
    pub surfaces: CudaSlice<u8>,
    pub sums: CudaSlice<u8>,
    back: PinnedHostSlice<u8>,
}

impl LaunchBuffers {
    pub fn new(device: &CudaDevice) -> Result<LaunchBuffers, DriverError> {
        Ok(LaunchBuffers {
            head: pinned(device, PICTURES_MAX * SURFACE_BYTES, sys::CU_MEMHOSTALLOC_WRITECOMBINED)?,
            surfaces: device.stream.alloc_zeros(PICTURES_MAX * SURFACE_BYTES)?,
            sums: device.stream.alloc_zeros(PICTURES_MAX * SUM_BYTES)?,
            // The CPU reads this memory: write-combined memory would be slow.
            back: pinned(device, PICTURES_MAX * SUM_BYTES, 0)?,
        })
    }

    /// Uploads the surfaces of a launch.
    pub fn send<'a>(
        &mut self,
        device: &CudaDevice,
        pictures: impl Iterator<Item = &'a [Surface; SURFACES]>,
    ) -> Result<(), DriverError> {
        let words = pictures.flatten().flat_map(|surface| surface.words());
        let head = self.head.as_mut_slice()?;
        let mut bytes = 0;
        for (word, at) in words.zip(head.as_chunks_mut().0) {
            *at = word.to_le_bytes();
            bytes += 4;
        }
        device.stream.memcpy_htod(&head[..bytes], &mut self.surfaces)
    }

    /// Waits for the launch and returns the sums of its pictures.
    pub fn fetch(&mut self, device: &CudaDevice, pictures: usize) -> Result<&[u8], WaitError> {
        let bytes = pictures * SUM_BYTES;
        let back = self.back.as_mut_slice()?;
        device.stream.memcpy_dtoh(&self.sums.slice(..bytes), &mut back[..bytes])?;
        device.wait()?;
        Ok(&back[..bytes])
    }
}

/// Samples of host pictures, in host and in device memory.
pub(crate) struct SampleBuffer {
    host: PinnedHostSlice<u8>,
    device: CudaSlice<u8>,
}

impl SampleBuffer {
    /// Allocates room for a launch of `bytes` and for somewhat larger ones.
    pub fn new(device: &CudaDevice, bytes: usize) -> Result<SampleBuffer, DriverError> {
        let capacity = bytes.max(FIRST_BYTES).next_power_of_two();
        Ok(SampleBuffer {
            host: pinned(device, capacity, sys::CU_MEMHOSTALLOC_WRITECOMBINED)?,
            device: device.stream.alloc_zeros(capacity)?,
        })
    }

    /// Returns the capacity in bytes.
    pub fn capacity(&self) -> usize {
        self.device.len()
    }

    /// Returns the address of the samples in device memory.
    pub fn address(&self, device: &CudaDevice) -> u64 {
        self.device.device_ptr(&device.stream).0
    }

    /// Returns the host memory to be filled.
    pub fn fill(&mut self) -> Result<&mut [u8], DriverError> {
        self.host.as_mut_slice()
    }

    /// Uploads the first `bytes`.
    pub fn send(&mut self, device: &CudaDevice, bytes: usize) -> Result<(), DriverError> {
        let filled = &self.host.as_slice()?[..bytes];
        device.stream.memcpy_htod(filled, &mut self.device)
    }
}

#[expect(unsafe_code, reason = "the binding hands out memory that nothing has written yet")]
fn pinned(
    device: &CudaDevice,
    bytes: usize,
    flags: u32,
) -> Result<PinnedHostSlice<u8>, DriverError> {
    // SAFETY: every byte pattern is a valid `u8`, and every byte that is read has been written: by `send` and
    // `fill` before an upload, by a download before `fetch` returns.
    let mut memory = unsafe { device.context.alloc_pinned_with_flags(bytes, flags) }?;
    memory.as_mut_slice()?.fill(0);
    Ok(memory)
}
