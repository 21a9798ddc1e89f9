//! Limits of the resources that a file may take, and the check of a picture's size.

use media::Dimensions;

use crate::DecodeError;

/// Limits of the resources that a file may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DemuxLimits {
    /// Most columns and most rows of a picture.
    pub side_px: u32,
    /// Most pixels of a picture.
    pub area_px: u64,
    /// Most bytes of a picture's samples. An AV1 decoder checks them when it outputs a picture, others before
    /// they allocate it.
    pub picture_bytes: u64,
    /// Most streams of any kind in a container.
    pub streams: usize,
}

impl Default for DemuxLimits {
    fn default() -> DemuxLimits {
        // No format has more than four 16-bit samples per pixel: the byte limit refuses none by default.
        let area_px = 8192 * 8192;
        DemuxLimits { side_px: 8192, area_px, picture_bytes: area_px * 8, streams: 16 }
    }
}

pub(crate) fn check_extent(extent: Dimensions, limits: DemuxLimits) -> Result<(), DecodeError> {
    let Dimensions { width, height } = extent;
    if width.max(height) > limits.side_px {
        return Err(DecodeError::PictureTooLarge { width, height, max: limits.side_px });
    }
    if u64::from(width) * u64::from(height) > limits.area_px {
        return Err(DecodeError::TooManyPixels { width, height, max: limits.area_px });
    }
    Ok(())
}
