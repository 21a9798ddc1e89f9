//! Callbacks of libav while it decodes: about formats, room for pictures, and logged errors.
//!
//! [`CallbackState`] is what these calls and the decoder's owner know of each other; they come on any of libav's
//! threads.

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

/// State shared with the decoder's threads, and with the pictures that its device keeps.
pub(super) struct CallbackState {
    pub(super) size: FrameSizeLimit,
    pub(super) on_damage: DamagePolicy,
    /// Something was logged that undamaged bytes give no cause for.
    pub(super) complained: AtomicBool,
    /// libav's number of the format in which a device gives its pictures; none for the CPU.
    pub(super) device_format: Option<i32>,
    /// Reason that the device is of no use any more.
    pub(super) lost: OnceLock<String>,
}

impl CallbackState {
    /// An error that the media gives no cause for is the device's.
    pub(super) fn note_device(&self, error: AvError) -> AvError {
        let of_media = [AvError::AGAIN, AvError::END, AvError::INVALID, AvError::REFUSED];
        if self.device_format.is_some() && !of_media.contains(&error) {
            self.lose(format!("the device failed: {error}"));
        }
        error
    }

    /// Only the first reason is kept.
    pub(super) fn lose(&self, reason: String) {
        self.lost.get_or_init(|| reason);
    }
}

/// Takes libav's log messages; sets the mark of the decoder that complains, on any of its threads.
///
/// `V` is the platform's list of arguments, which is not looked at.
pub(super) unsafe extern "C" fn note_complaint<V>(
    who: *mut c_void,
    level: c_int,
    format: *const c_char,
    _arguments: V,
) {
    if who.is_null() || format.is_null() {
        return;
    }
    // SAFETY: what logs begins with a pointer to its class, and the message is a C string; of a
    // codec's class are codec contexts alone, and those with our `get_buffer` have our guard.
    unsafe {
        if *who.cast::<*const ffi::AVClass>() != ffi::avcodec_get_class() {
            return;
        }
        let context = who.cast::<ffi::AVCodecContext>();
        let ours: unsafe extern "C" fn(_, _, _) -> _ = get_buffer;
        let is_ours = (*context).get_buffer2.is_some_and(|set| std::ptr::fn_addr_eq(set, ours));
        // H.264 tells of pictures that end early in passing.
        let conceals = || CStr::from_ptr(format).to_bytes().starts_with(b"concealing");
        if is_ours && (level <= ffi::AV_LOG_ERROR as c_int || conceals()) {
            let guard = &*(*context).opaque.cast::<CallbackState>();
            guard.complained.store(true, Ordering::Relaxed);
        }
    }
}

/// Has libav decode on the device, or not at all: what the device does not take, it does not get to
/// decode by itself.
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

/// libav's own allocation for every picture within the limit, cleared where damage may be shown, as it
/// may leave parts unwritten; may run on any decoder thread.
pub(super) unsafe extern "C" fn get_buffer(
    context: *mut ffi::AVCodecContext,
    frame: *mut ffi::AVFrame,
    flags: c_int,
) -> c_int {
    // SAFETY: libav passes valid pointers; `opaque` is the guard set in `open`, which is only
    // ever shared.
    let (guard, width, height, format) = unsafe {
        let guard = &*(*context).opaque.cast::<CallbackState>();
        // The format of a device's picture says nothing of its size.
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
    // Memory that is not cleared has zeros or an earlier picture of the same stream: buffers of one
    // decoder are its own, and libav clears them when it makes them.
    // A device's buffers are not this machine's memory.
    if code >= 0 && guard.on_damage != DamagePolicy::Discard && guard.device_format.is_none() {
        // SAFETY: libav just gave the frame these buffers, each valid for its size and not yet
        // shared with anyone.
        unsafe {
            for buffer in (*frame).buf.into_iter().filter(|buffer| !buffer.is_null()) {
                std::ptr::write_bytes((*buffer).data, 0, (*buffer).size);
            }
        }
    }
    code
}
