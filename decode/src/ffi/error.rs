//! libav's negative return codes.

use std::{ffi::CStr, fmt};

use ffmpeg_next::ffi;

use crate::DecodeError;

/// A negative return code of libav.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct AvError(pub i32);

impl AvError {
    pub(crate) const AGAIN: AvError = AvError(ffi::AVERROR(ffi::EAGAIN));
    pub(crate) const END: AvError = AvError(ffi::AVERROR_EOF);
    pub(crate) const INVALID: AvError = AvError(ffi::AVERROR_INVALIDDATA);
    pub(crate) const NO_MEMORY: AvError = AvError(ffi::AVERROR(ffi::ENOMEM));
    pub(crate) const IO: AvError = AvError(ffi::AVERROR(ffi::EIO));
    pub(crate) const REFUSED: AvError = AvError(ffi::AVERROR(ffi::EPERM));

    /// Returns an error for a negative code.
    pub(crate) fn check(code: i32) -> Result<(), AvError> {
        if code < 0 { Err(AvError(code)) } else { Ok(()) }
    }
}

/// Returns a function that makes the error of `call` for a failure that is not the input's fault.
pub(crate) fn failed(call: &'static str) -> impl Fn(AvError) -> DecodeError {
    move |error| DecodeError::Libav { call: call.to_owned(), detail: error.to_string() }
}

impl fmt::Display for AvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; 64];
        // SAFETY: the buffer is writable for the length given; libav terminates it with a zero.
        let known = unsafe { ffi::av_strerror(self.0, text.as_mut_ptr().cast(), text.len()) };
        match CStr::from_bytes_until_nul(&text) {
            Ok(words) if known >= 0 => f.write_str(&words.to_string_lossy().to_lowercase()),
            _ => write!(f, "libav error {}", self.0),
        }
    }
}

impl fmt::Debug for AvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
