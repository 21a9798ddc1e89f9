//! Pictures that another driver left in dma-bufs, as textures of the adapter; the only `unsafe` of this crate.
//!
//! Imports what the adapter says it reads: a modifier of one memory plane, as wgpu imports no other, and without
//! compression. Does not wait for whoever writes there: that has ended, says [`media::DmaBufPlane::new`]. Does not
//! acquire textures from the foreign queue family, as wgpu cannot: a barrier from the general layout, which keeps
//! what is there, is in its place, and does where modifiers are not compressed and memory is coherent.
#![expect(unsafe_code, reason = "the memory of another driver is described to this one")]

use std::panic::{AssertUnwindSafe, catch_unwind};

use ash::vk;
use gate::device::{SURFACES, Surface, said};
use media::Frame;
use wgpu::{
    Features, TextureUses,
    hal::{self, api::Vulkan},
};

use crate::{
    device::Device,
    picture::{PlaneThere, copied_bytes, planes, surfaces},
};

/// The general layout; wgpu clears and discards what is uninitialized.
const FOREIGN: TextureUses = TextureUses::STORAGE_READ_WRITE;

/// What a device is asked for to import.
const NEEDED: Features =
    Features::VULKAN_EXTERNAL_MEMORY_FD.union(Features::VULKAN_EXTERNAL_MEMORY_DMA_BUF);

/// What to ask a device of this adapter for.
pub(crate) fn features(adapter: &wgpu::Adapter) -> Features {
    if adapter.features().contains(NEEDED) { NEEDED } else { Features::empty() }
}

/// Makes textures of pictures in dma-bufs.
pub(crate) struct Importer {
    side_max: u32,
}

/// Pictures of one dispatch, as textures.
pub(crate) struct Imported {
    planes: Vec<Copied>,
    surfaces: Vec<[Surface; SURFACES]>,
}

/// A plane, and where its samples go.
struct Copied {
    texture: wgpu::Texture,
    to: Surface,
}

impl Importer {
    /// `None` for a device that imports nothing.
    pub fn of(device: &Device) -> Option<Importer> {
        // SAFETY: nothing is done to the device.
        let hal = unsafe { device.device.as_hal::<Vulkan>() }?;
        let since = vk::API_VERSION_1_1;
        let asks = hal.shared_instance().instance_api_version() >= since
            && device.device.features().contains(NEEDED);
        asks.then_some(Importer { side_max: device.limits.max_texture_dimension_2d })
    }

    /// Bytes of samples that the picture takes on the device; `None` for one that is not imported.
    pub fn bytes(&self, frame: &Frame) -> Option<u64> {
        planes(frame, self.side_max).map(|planes| copied_bytes(&planes))
    }

    /// Textures of frames that have [`Importer::bytes`]; an error says what the driver refuses.
    pub fn import(&self, device: &Device, frames: &[Frame]) -> Result<Imported, String> {
        // The binding panics where a driver lacks a function that its version should have.
        let imported = catch_unwind(AssertUnwindSafe(|| self.import_all(device, frames)));
        imported.unwrap_or_else(|panic| Err(said(panic.as_ref())))
    }

    fn import_all(&self, device: &Device, frames: &[Frame]) -> Result<Imported, String> {
        let mut imported = Imported { planes: Vec::new(), surfaces: Vec::new() };
        let mut base = 0;
        for planes in frames.iter().filter_map(|frame| planes(frame, self.side_max)) {
            let surfaces = surfaces(&planes, base);
            for (plane, to) in planes.iter().zip(surfaces) {
                imported.planes.push(Copied { texture: texture(device, plane)?, to });
            }
            imported.surfaces.push(surfaces);
            base += copied_bytes(&planes);
        }
        Ok(imported)
    }
}

impl Imported {
    /// Where the samples of each picture are, once copied.
    pub fn surfaces(&self) -> impl Iterator<Item = [Surface; SURFACES]> {
        self.surfaces.iter().copied()
    }

    /// Has the samples copied to a buffer of the device.
    pub fn copy(&self, encoder: &mut wgpu::CommandEncoder, samples: &wgpu::Buffer) {
        for Copied { texture, to } in &self.planes {
            let layout = wgpu::TexelCopyBufferLayout {
                offset: to.address,
                bytes_per_row: Some(to.stride),
                rows_per_image: None,
            };
            let to = wgpu::TexelCopyBufferInfo { buffer: samples, layout };
            encoder.copy_texture_to_buffer(texture.as_image_copy(), to, texture.size());
        }
    }
}

/// The plane as a texture, which is the same memory.
fn texture(device: &Device, there: &PlaneThere<'_>) -> Result<wgpu::Texture, String> {
    let size = wgpu::Extent3d {
        width: there.extent.width,
        height: there.extent.height,
        depth_or_array_layers: 1,
    };
    let descriptor = wgpu::TextureDescriptor {
        label: None,
        size,
        mip_level_count: 1,
        sample_count: 1,
        dimension: wgpu::TextureDimension::D2,
        format: there.format(),
        usage: wgpu::TextureUsages::COPY_SRC,
        view_formats: &[],
    };
    let raw = {
        // SAFETY: the device is asked to make a texture, and is not destroyed.
        let hal = unsafe { device.device.as_hal::<Vulkan>() }.ok_or("no Vulkan device")?;
        readable(&hal, there)?;
        let own = there.plane.fd().try_clone_to_owned().map_err(|error| error.to_string())?;
        let described = hal::TextureDescriptor {
            label: None,
            size,
            mip_level_count: descriptor.mip_level_count,
            sample_count: descriptor.sample_count,
            dimension: descriptor.dimension,
            format: descriptor.format,
            usage: TextureUses::COPY_SRC,
            memory_flags: hal::MemoryFlags::empty(),
            view_formats: Vec::new(),
        };
        let (modifier, pitch, offset) =
            (there.plane.modifier(), there.plane.pitch(), there.plane.offset());
        // SAFETY: `DmaBufPlane::new` promises a dma-buf with the plane, arranged as it says, and that nothing
        // writes there while the picture lives; the adapter reads such images, it said just now.
        unsafe { hal.texture_from_dmabuf_fd(own, &described, modifier, pitch, offset) }
    };
    let raw = raw.map_err(|error| {
        let format = there.format();
        let modifier = there.plane.modifier();
        format!("{format:?} of modifier {modifier:#x}: the driver refuses it: {error}")
    })?;
    // SAFETY: it was made by this device for this descriptor, and has the samples that the decoder wrote.
    Ok(unsafe { device.device.create_texture_from_hal::<Vulkan>(raw, &descriptor, FOREIGN) })
}

/// An error for what the adapter does not say it reads: a driver may do anything with that.
fn readable(hal: &hal::vulkan::Device, there: &PlaneThere<'_>) -> Result<(), String> {
    let format = match there.format() {
        wgpu::TextureFormat::R8Uint => vk::Format::R8_UINT,
        wgpu::TextureFormat::Rg8Uint => vk::Format::R8G8_UINT,
        wgpu::TextureFormat::R16Uint => vk::Format::R16_UINT,
        _ => vk::Format::R16G16_UINT,
    };
    let modifier = there.plane.modifier();
    let refused = |what: &str| Err(format!("{format:?} of modifier {modifier:#x}: {what}"));
    let properties = modifiers(hal, format);
    let Some(own) = properties.iter().find(|own| own.drm_format_modifier == modifier) else {
        return refused("the adapter does not know it");
    };
    if own.drm_format_modifier_plane_count != 1 {
        return refused("it has more than one memory plane");
    }
    if is_compressed(modifier) {
        return refused("it may be compressed");
    }
    if !own.drm_format_modifier_tiling_features.contains(vk::FormatFeatureFlags::TRANSFER_SRC) {
        return refused("the adapter does not copy it");
    }
    let (width, height) = (there.extent.width, there.extent.height);
    match largest(hal, format, modifier) {
        Some(most) if width <= most.width && height <= most.height => Ok(()),
        Some(_) => refused("it is too large"),
        None => refused("the adapter does not import it"),
    }
}

/// The arrangements of this format that the adapter knows.
fn modifiers(
    hal: &hal::vulkan::Device,
    format: vk::Format,
) -> Vec<vk::DrmFormatModifierPropertiesEXT> {
    let instance = hal.shared_instance().raw_instance();
    let fill = |list: &mut vk::DrmFormatModifierPropertiesListEXT<'_>| {
        let mut properties = vk::FormatProperties2::default().push_next(list);
        let adapter = hal.raw_physical_device();
        // SAFETY: the adapter is the instance's, and the list has the room that it says.
        unsafe {
            instance.get_physical_device_format_properties2(adapter, format, &mut properties);
        }
    };
    let mut counted = vk::DrmFormatModifierPropertiesListEXT::default();
    fill(&mut counted);
    let mut found = vec![Default::default(); counted.drm_format_modifier_count as usize];
    let mut list = vk::DrmFormatModifierPropertiesListEXT::default()
        .drm_format_modifier_properties(&mut found);
    fill(&mut list);
    let count = list.drm_format_modifier_count as usize;
    found.truncate(count);
    found
}

/// The largest image of this format, so arranged, that is imported from a dma-buf to be copied from.
fn largest(hal: &hal::vulkan::Device, format: vk::Format, modifier: u64) -> Option<vk::Extent3D> {
    let mut external = vk::PhysicalDeviceExternalImageFormatInfo::default()
        .handle_type(vk::ExternalMemoryHandleTypeFlags::DMA_BUF_EXT);
    let mut arranged = vk::PhysicalDeviceImageDrmFormatModifierInfoEXT::default()
        .drm_format_modifier(modifier)
        .sharing_mode(vk::SharingMode::EXCLUSIVE);
    let asked = vk::PhysicalDeviceImageFormatInfo2::default()
        .format(format)
        .ty(vk::ImageType::TYPE_2D)
        .tiling(vk::ImageTiling::DRM_FORMAT_MODIFIER_EXT)
        .usage(vk::ImageUsageFlags::TRANSFER_SRC)
        .push_next(&mut external)
        .push_next(&mut arranged);
    let mut outside = vk::ExternalImageFormatProperties::default();
    let mut answered = vk::ImageFormatProperties2::default().push_next(&mut outside);
    let (instance, adapter) = (hal.shared_instance().raw_instance(), hal.raw_physical_device());
    // SAFETY: the adapter is the instance's, and every structure lives here.
    let said = unsafe {
        instance.get_physical_device_image_format_properties2(adapter, &asked, &mut answered)
    };
    let most = answered.image_format_properties.max_extent;
    let memory = outside.external_memory_properties.external_memory_features;
    let imports = memory.contains(vk::ExternalMemoryFeatureFlags::IMPORTABLE);
    (said.is_ok() && imports).then_some(most)
}

/// Vendors of modifiers, in their upper eight bits.
const INTEL: u64 = 0x01;
const AMD: u64 = 0x02;
/// Of Intel's: X, Y, Yf and 4 tiles.
const INTEL_TILES: [u64; 4] = [1, 2, 3, 9];
/// Of AMD's: delta colour compression.
const AMD_DCC: u64 = 1 << 13;

/// Samples may not be all that is to be read, by the kernel's `drm_fourcc.h`; so is what it does not tell.
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
            ("Intel's Y tiles with a plane of compression", 1 << 56 | 4, true),
            ("Intel's 4 tiles of Lunar Lake, compressed without a plane", 1 << 56 | 16, true),
            ("AMD's, of GFX9", 2 << 56 | 0x1a01, false),
            ("AMD's with compression", 2 << 56 | 0x3a01, true),
            ("NVIDIA's", 3 << 56 | 0x10, true),
        ];
        for (name, modifier, expected) in cases {
            assert_eq!(is_compressed(modifier), expected, "{name}");
        }
    }
}
