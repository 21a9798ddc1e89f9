//! Pictures that a hardware decoder left in device memory.

use gate::{
    MAX_SIDE,
    device::{SURFACES, Surface},
};
use media::{Extent, Sample, Subsampling};

use crate::CudaError;

/// A semi-planar 4:2:0 picture in the memory of the measurer's device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePicture {
    pub(crate) extent: Extent,
    pub(crate) surfaces: [Surface; SURFACES],
}

impl DevicePicture {
    /// NV12 (`Sample::U8`) or P010 (`Sample::U16` of shift 8) at these addresses, both planes
    /// with rows `pitch` bytes apart; addresses and pitch are multiples of four.
    ///
    /// # Safety
    ///
    /// Until the picture was measured the rows of both planes, `pitch` bytes each, are readable memory
    /// of the device of the measurer that is given it, and nothing writes them: whoever decoded the
    /// picture has waited for its stream. The device reads any address that it can, page-locked
    /// memory of the host included.
    #[expect(unsafe_code, reason = "addresses of a device cannot be checked here")]
    pub unsafe fn semi_planar(
        extent: Extent,
        sample: Sample,
        luma: u64,
        chroma: u64,
        pitch: u32,
    ) -> Result<DevicePicture, CudaError> {
        let halved = Subsampling::Yuv420.chroma_extent(extent).unwrap_or(extent);
        let row_bytes = 2 * u64::from(halved.width) * sample.bytes() as u64;
        let what = if extent.width > MAX_SIDE || extent.height > MAX_SIDE {
            "a side that is too long"
        } else if matches!(sample, Sample::U16 { shift: 9.. }) {
            "samples of more than sixteen bits"
        } else if u64::from(pitch) < row_bytes {
            "a pitch below its width"
        } else if !(luma | chroma | u64::from(pitch)).is_multiple_of(4) {
            "addresses or a pitch that are no multiples of four"
        } else {
            let luma = Surface::new(luma, pitch, (extent.width, extent.height), sample, false);
            let chroma = Surface::new(chroma, pitch, (halved.width, halved.height), sample, true);
            return Ok(DevicePicture { extent, surfaces: [luma, chroma, Surface::default()] });
        };
        Err(CudaError::BadPicture { what })
    }

    pub(crate) fn chroma_extent(&self) -> Option<Extent> {
        Subsampling::Yuv420.chroma_extent(self.extent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(unsafe_code, reason = "makes pictures of addresses")]
    fn only_what_the_kernel_reads_is_a_picture() {
        let p010 = Sample::U16 { shift: 8 };
        let cases = [
            ("NV12", (1920, 1080), Sample::U8, 0x7000_0000, 0x7020_0000, 2048, true),
            ("P010", (1920, 1080), p010, 0x7000_0000, 0x7040_0000, 4096, true),
            ("odd width, chroma to its end", (1919, 1079), Sample::U8, 256, 512, 1920, true),
            ("odd width, chroma past the pitch", (1919, 1079), Sample::U8, 256, 512, 1919, false),
            ("pitch below the width", (1920, 1080), p010, 256, 512, 3836, false),
            ("luma not aligned", (64, 64), Sample::U8, 258, 512, 64, false),
            ("chroma not aligned", (64, 64), Sample::U8, 256, 513, 64, false),
            ("pitch not aligned", (64, 64), Sample::U8, 256, 512, 66, false),
            ("too wide", (8193, 64), Sample::U8, 256, 512, 8448, false),
            ("as wide as can be said", (u32::MAX, 64), Sample::U8, 256, 512, u32::MAX, false),
            ("no such samples", (64, 64), Sample::U16 { shift: 9 }, 256, 512, 128, false),
        ];
        for (name, (width, height), sample, luma, chroma, pitch, taken) in cases {
            let extent = Extent { width, height };
            // SAFETY: no device is given it.
            let picture =
                unsafe { DevicePicture::semi_planar(extent, sample, luma, chroma, pitch) };
            assert_eq!(picture.is_ok(), taken, "{name}");
        }
    }
}
