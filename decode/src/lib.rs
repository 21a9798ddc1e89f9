//! Coded video to frames: container files segment-parallel and exact, live access units one by one.
//!
//! Promises: the frames and presentation times of a file are those of a sequential decode,
//! whatever the thread count and whether or not packets were skipped by the sampling plan.
//! Nothing but the given [`ByteSource`] is ever read. Opens no file and no socket, and no device but the one
//! asked for; computes no pixel.
#![deny(unsafe_code)]

mod backend;
#[cfg(test)]
#[path = "tests/bit_writer.rs"]
mod bit_writer;
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
pub use codec_probe::{CodecProbeResult, try_clips};
pub use coded_pictures::{CodedPicture, CodedPictures};
pub use decoder::DecoderChain;
pub use demux::{
    ByteSource, DemuxLimits, Demuxer, Earlier, ExcerptContainer, ExcerptStart, PLAYLIST_HEAD_BYTES,
    StreamInfo, is_playlist,
};
pub use error::DecodeError;
pub use ffi::{CbcDecryptor, HwDevice, HwDeviceSpec};
pub use ffmpeg_cli::{FfmpegPipes, FfmpegStdin, SpawnFn, arguments as program_arguments};
pub use file::{
    FileOptions, FileReport, FrameSink, SegmentInfo, SinkStop, decode_file, decode_file_by,
};
pub use live::{Decoder, LiveOptions, open_decoder, open_decoder_by};
pub use sampling::Sampling;
