//! Where the planes of an imported picture lie among the samples of a dispatch.
//!
//! A copy of a texture writes rows that start at multiples of 256 bytes; the shader reads them as those of
//! any picture. Knows no device.

use gate::{
    MAX_SIDE,
    device::{SURFACES, Surface},
};
use media::{DeviceMemory, Extent, Frame, Pixels, Sample, Subsampling};
use wgpu::TextureFormat;

/// What one plane becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PlacedPlane {
    /// Bytes before it.
    pub offset: u64,
    /// Bytes between row starts.
    pub stride: u32,
    /// In pixels of the format.
    pub extent: Extent,
    pub format: TextureFormat,
}

impl PlacedPlane {
    fn at(offset: u64, extent: Extent, format: TextureFormat, bytes: u32) -> PlacedPlane {
        let stride = (extent.width * bytes).next_multiple_of(wgpu::COPY_BYTES_PER_ROW_ALIGNMENT);
        PlacedPlane { offset, stride, extent, format }
    }

    fn end(&self) -> u64 {
        self.offset + u64::from(self.stride) * u64::from(self.extent.height)
    }
}

/// Luma and chroma of a picture, some bytes into the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub planes: [PlacedPlane; 2],
    sample: Sample,
}

impl Placed {
    /// `frame` behind `start` bytes; `None` for what is not in dma-bufs, or not as the shader reads it.
    pub fn at(start: u64, frame: &Frame) -> Option<Placed> {
        let Pixels::Device(picture) = &frame.pixels else { return None };
        let DeviceMemory::DmaBuf(_) = picture.memory() else { return None };
        let (extent, layout) = (frame.extent, frame.layout);
        let is_semi_planar = layout.subsampling == Subsampling::Yuv420 && layout.interleaved_chroma;
        if !is_semi_planar || extent.width.max(extent.height) > MAX_SIDE {
            return None;
        }
        let (one, two) = match layout.sample {
            Sample::U8 => (TextureFormat::R8Uint, TextureFormat::Rg8Uint),
            Sample::U16 { shift: 0..=8 } => (TextureFormat::R16Uint, TextureFormat::Rg16Uint),
            Sample::U16 { .. } => return None,
        };
        let bytes = layout.sample.bytes() as u32;
        let luma = PlacedPlane::at(start, extent, one, bytes);
        let halved = Subsampling::Yuv420.chroma_extent(extent)?;
        let chroma = PlacedPlane::at(luma.end(), halved, two, 2 * bytes);
        Some(Placed { planes: [luma, chroma], sample: layout.sample })
    }

    /// Bytes before whatever follows it.
    pub fn end(&self) -> u64 {
        self.planes[1].end()
    }

    /// As the shader reads it.
    pub fn surfaces(&self) -> [Surface; SURFACES] {
        let surface = |plane: PlacedPlane, pair| {
            let size = (plane.extent.width, plane.extent.height);
            Surface::new(plane.offset, plane.stride, size, self.sample, pair)
        };
        let [luma, chroma] = self.planes;
        [surface(luma, false), surface(chroma, true), Surface::default()]
    }
}

/// The first of `frames`, which are all placed, that a dispatch takes, and their bytes.
pub(crate) fn first_batch(
    frames: &[Frame],
    pictures_max: usize,
    fill_bytes: u64,
) -> (&[Frame], u64) {
    let (mut count, mut bytes) = (0, 0);
    for frame in &frames[..frames.len().min(pictures_max)] {
        let Some(placed) = Placed::at(bytes, frame) else { break };
        if count > 0 && placed.end() > fill_bytes {
            break;
        }
        (count, bytes) = (count + 1, placed.end());
    }
    (&frames[..count], bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_follow_each_other_in_rows_of_256() {
        let luma =
            PlacedPlane::at(512, Extent { width: 97, height: 55 }, TextureFormat::R16Uint, 2);
        assert_eq!((luma.stride, luma.end()), (256, 512 + 55 * 256));
        let wide = PlacedPlane::at(0, Extent { width: 129, height: 1 }, TextureFormat::Rg8Uint, 2);
        assert_eq!((wide.stride, wide.end()), (512, 512));
    }
}
