//! Bindings to libav: small owners of its C structures. No other module calls libav.
//!
//! Every owner frees its structure, hands out only checked views and opens no file or socket; only `device`
//! opens a device. libav's own log is silenced: relevant faults are returned as errors.
#![expect(unsafe_code, reason = "libav is a C library")]

mod av_frame;
mod buffer_limit;
mod callbacks;
mod codec;
mod cuda;
mod device;
mod device_frame;
mod driver;
mod error;
mod format;
mod io;
mod mux;
mod nut_reader;
mod packet;
mod parameters;
mod place;
mod undecoded_blocks;

pub(crate) use av_frame::AvFrame;
pub(crate) use codec::{CodecContext, DamagePolicy, DecoderSetup, decoder_name};
pub use device::{HwDevice, HwDeviceSpec};
pub(crate) use error::{AvError, failed};
pub(crate) use format::{FormatContext, StreamParameters};
pub(crate) use mux::Muxer;
pub(crate) use nut_reader::NutFrames;
pub(crate) use packet::Packet;
pub(crate) use parameters::Parameters;
pub(crate) use place::Place;

use std::sync::Once;

use ffmpeg_next::ffi;

/// Replaces libav's logger: hostile files could otherwise flood stderr. Errors that decoders log set a flag.
fn silence_log() {
    static ONCE: Once = Once::new();
    // SAFETY: sets one process-wide function, which may be called from any thread.
    ONCE.call_once(|| unsafe { ffi::av_log_set_callback(Some(callbacks::note_complaint)) });
}
