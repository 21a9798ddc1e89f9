//! Buffers for uploading pictures and reading sums back, allocated once and reused.
//!
//! Only a batch larger than any before allocates new ones. The upload buffer is mapped between batches, so a
//! batch is written straight into memory that the device copies from.

use gate::{
    MeasureError,
    device_batch::{SUMS, SURFACE_WORDS, SURFACES},
};

use crate::{NAME, device::WgpuDevice};

/// Most pictures of one dispatch, which take 1.6 MB of sums.
pub(crate) const PICTURES_MAX: usize = 64;
/// Bytes of samples up to which a dispatch is filled; a larger picture gets its own dispatch.
pub(crate) const FILL_BYTES: u64 = 32 << 20;
/// Bytes of the surfaces of a dispatch, at the start of the upload buffer.
pub(crate) const HEAD_BYTES: u64 = (PICTURES_MAX * SURFACE_BYTES) as u64;

/// Bytes of the surfaces of one picture.
pub(crate) const SURFACE_BYTES: usize = 4 * SURFACES * SURFACE_WORDS;
/// Bytes of the sums of one picture.
pub(crate) const SUM_BYTES: u64 = 4 * SUMS as u64;

/// Least capacity of a sample buffer: a 1080p picture.
const FIRST_BYTES: u64 = 4 << 20;

/// Buffers of a dispatch; one dispatch uses them at a time.
pub(crate) struct DispatchBuffers {
    /// Surfaces, then samples; mapped for writing between batches.
    pub upload: wgpu::Buffer,
    pub surfaces: wgpu::Buffer,
    pub samples: wgpu::Buffer,
    pub sums: wgpu::Buffer,
    pub readback: wgpu::Buffer,
    pub bound: wgpu::BindGroup,
    /// Capacity in bytes of samples.
    pub capacity: u64,
}

/// Returns the bytes of samples of the largest picture that the device takes.
pub(crate) fn bytes_max(limits: &wgpu::Limits) -> u64 {
    limits.max_storage_buffer_binding_size.min(limits.max_buffer_size.saturating_sub(HEAD_BYTES))
}

fn entry(binding: u32, buffer: &wgpu::Buffer) -> wgpu::BindGroupEntry<'_> {
    wgpu::BindGroupEntry { binding, resource: buffer.as_entire_binding() }
}

/// Returns the capacity to allocate for a batch of `bytes`; `most` is the upper limit.
fn capacity_for(bytes: u64, most: u64) -> u64 {
    bytes.max(FIRST_BYTES).next_power_of_two().min(most)
}

impl DispatchBuffers {
    /// Allocates buffers for a dispatch of `bytes` of samples.
    pub fn new(
        device: &WgpuDevice,
        pipeline: &wgpu::ComputePipeline,
        bytes: u64,
    ) -> Result<DispatchBuffers, MeasureError> {
        use wgpu::BufferUsages as Usage;
        let most = bytes_max(&device.limits);
        if bytes > most {
            return Err(MeasureError::BeyondDevice { backend: NAME, bytes, bytes_max: most });
        }
        let capacity = capacity_for(bytes, most);
        let make = |label, size, usage, mapped_at_creation| {
            let descriptor =
                wgpu::BufferDescriptor { label: Some(label), size, usage, mapped_at_creation };
            device.device.create_buffer(&descriptor)
        };
        let back_bytes = PICTURES_MAX as u64 * SUM_BYTES;
        let upload = Usage::MAP_WRITE | Usage::COPY_SRC;
        let upload = make("upload", HEAD_BYTES + capacity, upload, true);
        let surfaces = make("surfaces", HEAD_BYTES, Usage::STORAGE | Usage::COPY_DST, false);
        let samples = make("samples", capacity, Usage::STORAGE | Usage::COPY_DST, false);
        let sums = make("sums", back_bytes, Usage::STORAGE | Usage::COPY_SRC, false);
        let readback = make("readback", back_bytes, Usage::MAP_READ | Usage::COPY_DST, false);
        let bound = device.device.create_bind_group(&wgpu::BindGroupDescriptor {
            label: Some("batch"),
            layout: &pipeline.get_bind_group_layout(0),
            entries: &[entry(0, &samples), entry(1, &surfaces), entry(2, &sums)],
        });
        Ok(DispatchBuffers { upload, surfaces, samples, sums, readback, bound, capacity })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacities_grow_in_steps_and_stay_within_the_limit() {
        let most = 100 << 20;
        let cases = [
            (1, FIRST_BYTES),
            (FIRST_BYTES, FIRST_BYTES),
            (FIRST_BYTES + 1, 2 * FIRST_BYTES),
            (65 << 20, most),
            (most, most),
        ];
        for (bytes, expected) in cases {
            assert_eq!(capacity_for(bytes, most), expected, "{bytes}");
        }
    }
}
