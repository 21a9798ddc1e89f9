//! Decodes coded video: container files in parallel segments and exactly, live access units one by one.
//!
//! The frames and presentation times of a file are those of a sequential decode, for any number of threads
//! and whether or not the sampling plan skipped packets. Reads only the given [`ByteSource`]; opens no file,
//! no socket and no device but the requested one; computes no pixels.
#![deny(unsafe_code)]

mod backend;
#[cfg(test)]
#[path = "tests/bit_writer.rs"]
mod bit_writer;
mod cbc;
mod codec_probe;
mod coded_pictures;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
mod decoder;
mod demux;
mod error;
mod ffi;
mod ffmpeg_cli;
mod file;
mod frame_num;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod keyframe_gate;
mod live;
mod nal;
mod pts_pairing;
mod random_access;
mod sampling;
mod segment;
mod skip_plan;
mod timestamp_offset;

pub use backend::{BackendError, DecodeBackend};
pub use cbc::CbcDecryptor;
pub use codec_probe::{CodecProbeResult, try_clips};
pub use coded_pictures::{CodedPicture, CodedPictures};
pub use decoder::{DecoderChain, software_decoder};
pub use demux::{
    ByteSource, DemuxLimits, Demuxer, Earlier, ExcerptContainer, ExcerptStart, PLAYLIST_HEAD_BYTES,
    StreamInfo, is_playlist,
};
pub use error::DecodeError;
pub use ffi::{HwDevice, HwDeviceSpec};
pub use ffmpeg_cli::{FfmpegPipes, SpawnFn, arguments as program_arguments};
pub use file::{
    FileOptions, FileReport, FrameCollector, FrameSink, SegmentInfo, SinkStop, decode_file,
};
pub use live::LiveDecoder;
pub use nal::annex_b_units;
pub use sampling::Sampling;
