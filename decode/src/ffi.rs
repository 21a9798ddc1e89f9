//! The one place where libav is called: small owners over its C structures.
//!
//! Every owner frees what it owns, hands out only checked views and never opens a file or a socket, and
//! a device only in `device`. libav's own log is silenced: what matters comes back as errors.
#![expect(unsafe_code, reason = "libav is a C library")]

mod aes;
mod codec;
mod cuda;
mod device;
mod driver;
mod error;
mod format;
mod guard;
mod holes;
mod io;
mod kept;
mod mux;
mod packet;
mod parameters;
mod picture;
mod place;
mod raw;
mod size;

pub use aes::CbcDecryptor;
pub(crate) use codec::{Context, OnDamage, Output, decoder_name};
pub use device::{Device, DeviceSpec};
pub(crate) use error::AvError;
pub(crate) use format::{Format, StreamFacts};
pub(crate) use mux::Muxer;
pub(crate) use packet::Packet;
pub(crate) use parameters::Parameters;
pub(crate) use picture::{RawFrame, Shown};
pub(crate) use place::Place;
pub(crate) use raw::RawPictures;

use std::sync::Once;

use ffmpeg_next::ffi;

/// Hostile files would otherwise write to stderr as fast as they are read; what decoders complain
/// about is noted instead.
fn silence_log() {
    static ONCE: Once = Once::new();
    // SAFETY: sets one process-wide function, which may be called from any thread.
    ONCE.call_once(|| unsafe { ffi::av_log_set_callback(Some(guard::note_complaint)) });
}
