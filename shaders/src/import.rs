//! Pictures in dma-bufs as textures, without a copy: what VAAPI decoded, for the adapter of the same GPU.
//!
//! Imports what the adapter says that it reads, in arrangements without compression. Limits: wgpu takes
//! no ownership from the foreign queue family, so what is written beside the samples (compression) would
//! not be seen; who exports has to wait for what writes; a picture whose two planes are not each one
//! plane to the driver is refused. Whoever is refused uploads. No GPU has run this yet.
#![expect(unsafe_code, reason = "hands descriptors to a driver")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use ash::vk;
use gate::device::said;
use media::{DeviceMemory, DmaBufPlane, Frame, Pixels};
use wgpu::{
    Extent3d, TextureDescriptor, TextureDimension, TextureFormat, TextureUsages, TextureUses,
    hal::{self, api::Vulkan},
};

use crate::picture::{Placed, PlacedPlane};

/// Formats of planes, and what Vulkan calls them.
const FORMATS: [(TextureFormat, vk::Format); 4] = [
    (TextureFormat::R8Uint, vk::Format::R8_UINT),
    (TextureFormat::Rg8Uint, vk::Format::R8G8_UINT),
    (TextureFormat::R16Uint, vk::Format::R16_UINT),
    (TextureFormat::Rg16Uint, vk::Format::R16G16_UINT),
];
/// Arrangements that a format may have at most.
const MODIFIERS_MAX: usize = 256;

/// The textures of one picture, which must outlive the dispatch that reads them.
pub(crate) type Imported = [wgpu::Texture; 2];

/// What an adapter imports.
pub(crate) struct Importer {
    /// A format, and an arrangement in which it can be copied from.
    readable: Vec<(TextureFormat, u64)>,
}

impl Importer {
    /// What a device is to be requested with.
    pub fn features(adapter: &wgpu::Adapter) -> wgpu::Features {
        adapter.features() & wgpu::Features::VULKAN_EXTERNAL_MEMORY_DMA_BUF
    }

    /// `None` where the device imports nothing.
    pub fn of(device: &wgpu::Device) -> Option<Importer> {
        if !device.features().contains(wgpu::Features::VULKAN_EXTERNAL_MEMORY_DMA_BUF) {
            return None;
        }
        // SAFETY: the device is asked, and neither destroyed nor kept.
        let device = unsafe { device.as_hal::<Vulkan>() }?;
        let of_format = |(format, named)| {
            let listed = readable(&device, named).into_iter();
            listed.map(move |modifier| (format, modifier))
        };
        let readable: Vec<_> = FORMATS.into_iter().flat_map(of_format).collect();
        (!readable.is_empty()).then_some(Importer { readable })
    }

    /// The pictures' textures, in order; an error says why one is refused.
    pub fn import(&self, device: &wgpu::Device, frames: &[Frame]) -> Result<Vec<Imported>, String> {
        let all = || frames.iter().map(|frame| self.picture(device, frame)).collect();
        catch_unwind(AssertUnwindSafe(all)).unwrap_or_else(|panic| Err(said(panic.as_ref())))
    }

    fn picture(&self, device: &wgpu::Device, frame: &Frame) -> Result<Imported, String> {
        let placed = Placed::at(0, frame).ok_or("a picture that is not in dma-bufs")?;
        let Pixels::Device(picture) = &frame.pixels else { return Err("in host memory".into()) };
        let DeviceMemory::DmaBuf([luma, chroma]) = picture.memory() else {
            return Err("in another device's memory".into());
        };
        let [first, second] = placed.planes;
        Ok([self.plane(device, luma, first)?, self.plane(device, chroma, second)?])
    }

    fn plane(
        &self,
        device: &wgpu::Device,
        plane: DmaBufPlane<'_>,
        placed: PlacedPlane,
    ) -> Result<wgpu::Texture, String> {
        let (format, modifier) = (placed.format, plane.modifier());
        if is_compressed(modifier) || !self.readable.contains(&(format, modifier)) {
            return Err(format!("the adapter reads no {format:?} arranged as {modifier:#x}"));
        }
        let size = Extent3d {
            width: placed.extent.width,
            height: placed.extent.height,
            ..Default::default()
        };
        let fd = plane.fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        // SAFETY: the device is only asked for a texture.
        let driver = unsafe { device.as_hal::<Vulkan>() }.ok_or("no device of Vulkan's")?;
        // SAFETY: the feature is there, as `readable` is not empty; who made the plane vouches for where
        // its rows are and that nobody writes to it; the descriptor is a duplicate of its own.
        let imported = unsafe {
            let described = described(size, format);
            driver.texture_from_dmabuf_fd(fd, &described, modifier, plane.pitch(), plane.offset())
        };
        let imported = imported.map_err(|error| format!("importing a dma-buf: {error}"))?;
        drop(driver);
        let descriptor = TextureDescriptor {
            label: Some("imported"),
            size,
            mip_level_count: 1,
            sample_count: 1,
            dimension: TextureDimension::D2,
            format,
            usage: TextureUsages::COPY_SRC,
            view_formats: &[],
        };
        // The general layout is what other drivers leave memory in: its samples stay when wgpu changes it.
        let state = TextureUses::STORAGE_READ_ONLY;
        // SAFETY: made on this device as the descriptor says, and the decoder has written it.
        Ok(unsafe { device.create_texture_from_hal::<Vulkan>(imported, &descriptor, state) })
    }
}

fn described(size: Extent3d, format: TextureFormat) -> hal::TextureDescriptor<'static> {
    hal::TextureDescriptor {
        label: Some("imported"),
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: TextureDimension::D2,
        format,
        usage: TextureUses::COPY_SRC,
        memory_flags: hal::MemoryFlags::empty(),
        view_formats: Vec::new(),
    }
}

/// Arrangements of one plane in which the adapter copies from images of `format`.
fn readable(device: &hal::vulkan::Device, format: vk::Format) -> Vec<u64> {
    let instance = device.shared_instance().raw_instance();
    let mut listed = [vk::DrmFormatModifierPropertiesEXT::default(); MODIFIERS_MAX];
    let mut list = vk::DrmFormatModifierPropertiesListEXT::default()
        .drm_format_modifier_properties(&mut listed);
    let mut properties = vk::FormatProperties2::default().push_next(&mut list);
    // SAFETY: the device is of this instance; the list has the room that it says.
    unsafe {
        instance.get_physical_device_format_properties2(
            device.raw_physical_device(),
            format,
            &mut properties,
        );
    }
    let count = list.drm_format_modifier_count as usize;
    let copies = vk::FormatFeatureFlags::TRANSFER_SRC;
    let can_be_read = |found: &&vk::DrmFormatModifierPropertiesEXT| {
        found.drm_format_modifier_plane_count == 1
            && found.drm_format_modifier_tiling_features.contains(copies)
    };
    let found = listed.iter().take(count).filter(can_be_read);
    found.map(|found| found.drm_format_modifier).collect()
}

/// Vendors of modifiers, in their upper eight bits.
const INTEL: u64 = 0x01;
const AMD: u64 = 0x02;
/// Of Intel's: X, Y, Yf and 4 tiles without compression.
const INTEL_TILES: [u64; 4] = [1, 2, 3, 9];
/// Of AMD's: delta colour compression.
const AMD_DCC: u64 = 1 << 13;

/// Samples are not all that is to be read, as `drm_fourcc.h` says; unknown ones are taken for such.
fn is_compressed(modifier: u64) -> bool {
    let (vendor, value) = (modifier >> 56, modifier & ((1 << 56) - 1));
    match vendor {
        0 => value != 0,
        INTEL => !INTEL_TILES.contains(&value),
        AMD => value & AMD_DCC != 0,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_arrangements_without_compression_are_imported() {
        let cases = [
            ("rows", 0, false),
            ("invalid", (1 << 56) - 1, true),
            ("Intel's Y tiles", 1 << 56 | 2, false),
            ("Intel's 4 tiles", 1 << 56 | 9, false),
            ("Intel's Y tiles with a colour control surface", 1 << 56 | 4, true),
            ("AMD's, of GFX9", 2 << 56 | 0x1a01, false),
            ("AMD's with compression", 2 << 56 | 0x3a01, true),
            ("NVIDIA's", 3 << 56 | 0x10, true),
        ];
        for (name, modifier, expected) in cases {
            assert_eq!(is_compressed(modifier), expected, "{name}");
        }
    }
}
