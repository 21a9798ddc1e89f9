//! Coded video to frames: container files segment-parallel and exact, live access units one by one.
//!
//! Promises: the frames and presentation times of a file are those of a sequential decode,
//! whatever the thread count and whether or not packets were skipped by the sampling plan.
//! Nothing but the given [`Input`] is ever read. Opens no file and no socket, and no device but the one
//! asked for; computes no pixel.
#![deny(unsafe_code)]

mod backend;
#[cfg(test)]
#[path = "tests/bit_writer.rs"]
mod bit_writer;
mod decoder;
mod demux;
mod error;
mod ffi;
mod ffmpeg_cli;
mod file;
mod frame_num;
mod keyframe_gate;
mod live;
mod nal;
mod plan;
mod probe;
mod pts_pairing;
mod random_access;
mod sampling;
mod segment;
mod timestamp_offset;
mod units;

pub use backend::{Backend, BackendError};
pub use decoder::Decoders;
pub use demux::{
    Demuxer, Earlier, ExcerptContainer, ExcerptStart, Input, Limits, PLAYLIST_HEAD_BYTES,
    StreamInfo, is_playlist,
};
pub use error::DecodeError;
pub use ffi::{CbcDecryptor, Device, DeviceSpec};
pub use ffmpeg_cli::{FfmpegPipes, ProgramInput, SpawnFn, arguments as program_arguments};
pub use file::{
    FileOptions, FileReport, FrameSink, SegmentInfo, SinkStop, decode_file, decode_file_by,
};
pub use live::{Decoder, LiveOptions, open_decoder, open_decoder_by};
pub use probe::{CodecProbeResult, try_clips};
pub use sampling::Sampling;
pub use units::{CodedPicture, CodedPictures};
