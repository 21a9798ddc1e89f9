//! Limits of the pictures that a decoder may allocate, and the error of a refused one.

use std::sync::{Mutex, PoisonError};

use ffmpeg_next::ffi;
use media::Dimensions;

use super::{AvError, av_frame::named};
use crate::{DecodeError, DemuxLimits, demux::check_extent};

/// Alignment of picture rows in bytes.
const ALIGNMENT: i32 = 1;

/// Picture limits, shared by the threads of a decoder.
pub(super) struct FrameSizeLimit {
    limits: DemuxLimits,
    refused: Mutex<Option<DecodeError>>,
}

impl FrameSizeLimit {
    pub(super) fn new(limits: DemuxLimits) -> FrameSizeLimit {
        FrameSizeLimit { limits, refused: Mutex::default() }
    }

    /// Checks that a picture is within the limits, and stores the error if not.
    pub(super) fn admit(&self, extent: Dimensions, format: i32) -> Result<(), AvError> {
        let checked = check_extent(extent, self.limits)
            .and_then(|()| check_bytes(extent, format, self.limits.picture_bytes));
        checked.map_err(|error| {
            *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
            AvError::REFUSED
        })
    }

    /// Returns the error of a refused picture once.
    pub(super) fn take_refusal(&self) -> Option<DecodeError> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

fn check_bytes(
    Dimensions { width, height }: Dimensions,
    format: i32,
    max: u64,
) -> Result<(), DecodeError> {
    let bytes = bytes_of(width, height, format).unwrap_or(0);
    if bytes > max {
        return Err(DecodeError::TooManyBytes { width, height, bytes, max });
    }
    Ok(())
}

/// Returns the bytes of a picture; `None` for a format without a size, which is refused at output.
fn bytes_of(width: u32, height: u32, format: i32) -> Option<u64> {
    let (width, height) = (i32::try_from(width).ok()?, i32::try_from(height).ok()?);
    // SAFETY: computes from its arguments alone.
    let bytes = unsafe { ffi::av_image_get_buffer_size(named(format)?, width, height, ALIGNMENT) };
    u64::try_from(bytes).ok()
}

#[cfg(test)]
mod tests {
    use ffi::AVPixelFormat::*;

    use super::*;

    /// Limit of three bytes per pixel for the largest picture of a live session.
    #[test]
    fn the_largest_picture_may_have_ten_bits_or_all_of_its_colours() {
        let area_px = 4096 * 2304;
        let picture_bytes = 3 * area_px;
        let limits = DemuxLimits { side_px: 4096, area_px, picture_bytes, streams: 1 };
        let rows = [
            (AV_PIX_FMT_YUV420P, 2304, None),
            (AV_PIX_FMT_YUV420P10LE, 2304, None),
            (AV_PIX_FMT_P010LE, 2304, None),
            (AV_PIX_FMT_YUV444P, 2304, None),
            (AV_PIX_FMT_GBRP, 2304, None),
            (AV_PIX_FMT_YUV422P10LE, 2304, Some(4)),
            (AV_PIX_FMT_YUV444P10LE, 2304, Some(6)),
            (AV_PIX_FMT_YUV444P10LE, 1152, None),
            (AV_PIX_FMT_CUDA, 2304, None),
        ];
        for (format, height, bytes_a_pixel) in rows {
            let extent = Dimensions { width: 4096, height };
            let guard = FrameSizeLimit::new(limits);
            let admitted = guard.admit(extent, format as i32);
            let expected = bytes_a_pixel.map(|bytes| DecodeError::TooManyBytes {
                width: 4096,
                height,
                bytes: bytes * area_px,
                max: picture_bytes,
            });
            assert_eq!(admitted.is_err(), expected.is_some(), "{format:?}");
            assert_eq!(guard.take_refusal(), expected, "{format:?}");
            assert_eq!(guard.take_refusal(), None, "said once");
        }
    }

    #[test]
    fn no_file_is_refused_for_its_bytes() {
        let limits = DemuxLimits::default();
        let extent = Dimensions { width: limits.side_px, height: limits.side_px };
        for format in [AV_PIX_FMT_YUV444P16LE, AV_PIX_FMT_YUVA444P16LE, AV_PIX_FMT_RGBA64LE] {
            assert_eq!(
                FrameSizeLimit::new(limits).admit(extent, format as i32),
                Ok(()),
                "{format:?}"
            );
        }
    }
}
