//! libav's callbacks during decoding: choice of the format, allocation of pictures, log messages.
//!
//! [`CallbackState`] is shared by the callbacks, which run on any of libav's threads, and the decoder's
//! owner.

use std::{
    ffi::{CStr, c_char, c_int, c_void},
    sync::{
        OnceLock,
        atomic::{AtomicBool, Ordering},
    },
};

use ffmpeg_next::ffi;
use media::Dimensions;

use super::{AvError, buffer_limit::FrameSizeLimit, codec::DamagePolicy};

/// State shared with the decoder's threads, and with its pictures in device memory.
pub(super) struct CallbackState {
    pub(super) size: FrameSizeLimit,
    pub(super) on_damage: DamagePolicy,
    /// True after a log message that undamaged bytes do not cause.
    pub(super) complained: AtomicBool,
    /// libav's number of the device's picture format; `None` for decoding on the CPU.
    pub(super) device_format: Option<i32>,
    /// Reason that the device is lost.
    pub(super) lost: OnceLock<String>,
}

impl CallbackState {
    /// Marks the device lost on an error that the media cannot cause; returns the error.
    pub(super) fn note_device(&self, error: AvError) -> AvError {
        let of_media = [AvError::AGAIN, AvError::END, AvError::INVALID, AvError::REFUSED];
        if self.device_format.is_some() && !of_media.contains(&error) {
            self.lose(format!("the device failed: {error}"));
        }
        error
    }

    /// Marks the device lost; only the first reason is kept.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }
}

/// Receives libav's log messages, on any thread, and flags the decoder that logs an error.
///
/// `V` is the platform's type of variadic arguments, which are not read.
pub(super) unsafe extern "C" fn note_complaint<V>(
    who: *mut c_void,
    level: c_int,
    format: *const c_char,
    _arguments: V,
) {
    if who.is_null() || format.is_null() {
        return;
    }
    // SAFETY: every logging object begins with a pointer to its class, and the message is a C string; only
    // codec contexts have the codec class, and those with our `get_buffer` have our guard.
    unsafe {
        if *who.cast::<*const ffi::AVClass>() != ffi::avcodec_get_class() {
            return;
        }
        let context = who.cast::<ffi::AVCodecContext>();
        let ours: unsafe extern "C" fn(_, _, _) -> _ = get_buffer;
        let is_ours = (*context).get_buffer2.is_some_and(|set| std::ptr::fn_addr_eq(set, ours));
        // H.264 logs pictures that end early below the error level.
        let conceals = || CStr::from_ptr(format).to_bytes().starts_with(b"concealing");
        if is_ours && (level <= ffi::AV_LOG_ERROR as c_int || conceals()) {
            let guard = &*(*context).opaque.cast::<CallbackState>();
            guard.complained.store(true, Ordering::Relaxed);
        }
    }
}

/// Selects the device's format, or none: a stream that the device does not support must not be decoded by
/// libav's own decoder here.
pub(super) unsafe extern "C" fn pick_format(
    context: *mut ffi::AVCodecContext,
    offered: *const ffi::AVPixelFormat,
) -> ffi::AVPixelFormat {
    // SAFETY: libav passes valid pointers; `opaque` is the guard set in `make`.
    let guard = unsafe { &*(*context).opaque.cast::<CallbackState>() };
    for index in 0.. {
        // SAFETY: the list ends with NONE, where the loop ends too.
        let format = unsafe { *offered.add(index) };
        if format == ffi::AVPixelFormat::AV_PIX_FMT_NONE {
            break;
        }
        if Some(format as i32) == guard.device_format {
            return format;
        }
    }
    guard.lose("the device does not decode this kind of stream".to_owned());
    ffi::AVPixelFormat::AV_PIX_FMT_NONE
}

/// Allocates pictures within the limits with libav's default allocator, and clears them if damage may be
/// shown, because a decoder may leave parts unwritten. May run on any decoder thread.
pub(super) unsafe extern "C" fn get_buffer(
    context: *mut ffi::AVCodecContext,
    frame: *mut ffi::AVFrame,
    flags: c_int,
) -> c_int {
    // SAFETY: libav passes valid pointers; `opaque` is the guard set in `open`, which is only
    // ever shared.
    let (guard, width, height, format) = unsafe {
        let guard = &*(*context).opaque.cast::<CallbackState>();
        // The format of a device's picture does not give its size.
        let format = match guard.device_format {
            None => (*frame).format,
            Some(_) => (*context).sw_pix_fmt as i32,
        };
        (guard, (*frame).width.max(0) as u32, (*frame).height.max(0) as u32, format)
    };
    let extent = Dimensions { width, height };
    if let Err(error) = guard.size.admit(extent, format) {
        return error.0;
    }
    // SAFETY: the arguments are libav's own.
    let code = unsafe { ffi::avcodec_default_get_buffer2(context, frame, flags) };
    // Uncleared memory holds zeros or an earlier picture of the same stream: buffers belong to one decoder,
    // and libav clears new ones.
    // A device's buffers are not in host memory.
    if code >= 0 && guard.on_damage != DamagePolicy::Discard && guard.device_format.is_none() {
        // SAFETY: libav just gave the frame these buffers, each valid for its size and not yet shared.
        unsafe {
            for buffer in (*frame).buf.into_iter().filter(|buffer| !buffer.is_null()) {
                std::ptr::write_bytes((*buffer).data, 0, (*buffer).size);
            }
        }
    }
    code
}
