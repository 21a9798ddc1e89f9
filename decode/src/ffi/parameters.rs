//! Copy of a stream's coding parameters, so that decoders open without the demuxer.

use std::{ffi::CStr, ptr};

use ffmpeg_next::ffi;
use media::{Codec, Dimensions, PixelLayout, SampleRange};

use super::{AvError, av_frame};

/// Owns an `AVCodecParameters` and the stream's timebase.
pub(crate) struct Parameters {
    raw: *mut ffi::AVCodecParameters,
    pub(super) timebase: ffi::AVRational,
}

// SAFETY: owned by this value and only read after `copy_of`.
unsafe impl Send for Parameters {}
// SAFETY: as above.
unsafe impl Sync for Parameters {}

impl Parameters {
    /// Copies `source`, which must point to valid parameters during the call.
    pub(super) unsafe fn copy_of(
        source: *const ffi::AVCodecParameters,
        timebase: ffi::AVRational,
    ) -> Result<Parameters, AvError> {
        // SAFETY: plain allocation.
        let raw = unsafe { ffi::avcodec_parameters_alloc() };
        if raw.is_null() {
            return Err(AvError::NO_MEMORY);
        }
        let parameters = Parameters { raw, timebase };
        // SAFETY: `raw` was just made; `source` is valid by this function's contract.
        AvError::check(unsafe { ffi::avcodec_parameters_copy(raw, source) })?;
        Ok(parameters)
    }

    pub(super) fn as_ptr(&self) -> *const ffi::AVCodecParameters {
        self.raw
    }

    fn raw(&self) -> &ffi::AVCodecParameters {
        // SAFETY: valid for as long as self.
        unsafe { &*self.raw }
    }

    pub(crate) fn codec(&self) -> Option<Codec> {
        Codec::from_name(&self.codec_name())
    }

    pub(crate) fn codec_name(&self) -> String {
        // SAFETY: always a static string, for unknown codecs too.
        let name = unsafe { CStr::from_ptr(ffi::avcodec_get_name(self.raw().codec_id)) };
        name.to_string_lossy().into_owned()
    }

    pub(crate) fn extent(&self) -> Option<Dimensions> {
        let raw = self.raw();
        Dimensions::new(u32::try_from(raw.width).ok()?, u32::try_from(raw.height).ok()?)
    }

    pub(crate) fn extradata(&self) -> &[u8] {
        let raw = self.raw();
        match usize::try_from(raw.extradata_size) {
            // SAFETY: libav keeps that many bytes there while the parameters live.
            Ok(size) if !raw.extradata.is_null() => unsafe {
                std::slice::from_raw_parts(raw.extradata, size)
            },
            _ => &[],
        }
    }

    pub(crate) fn profile(&self) -> i32 {
        self.raw().profile
    }

    /// Returns the number of pictures decoded before the first is presented.
    pub(crate) fn reorder_depth(&self) -> i64 {
        self.raw().video_delay.max(0).into()
    }

    /// Returns true for audio with a known sample rate.
    pub(crate) fn is_audio(&self) -> bool {
        self.raw().codec_type == ffi::AVMediaType::AVMEDIA_TYPE_AUDIO && self.raw().sample_rate > 0
    }

    /// Returns true if the pictures are whole frames, never fields.
    pub(crate) fn is_progressive(&self) -> bool {
        self.raw().field_order == ffi::AVFieldOrder::AV_FIELD_PROGRESSIVE
    }

    pub(crate) fn layout(&self) -> Option<PixelLayout> {
        av_frame::layout_of(self.raw().format, self.raw().color_range)
    }

    pub(crate) fn is_full_range(&self) -> bool {
        self.layout().is_some_and(|layout| layout.range == SampleRange::Full)
    }

    pub(crate) fn pixel_format(&self) -> String {
        av_frame::format_name(self.raw().format)
    }
}

impl Drop for Parameters {
    fn drop(&mut self) {
        // SAFETY: made by `avcodec_parameters_alloc`, freed once.
        unsafe { ffi::avcodec_parameters_free(ptr::addr_of_mut!(self.raw)) };
    }
}
