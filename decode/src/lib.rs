//! Coded video to frames: container files segment-parallel and exact, live access units one by one.
//!
//! Promises: the frames and presentation times of a file are those of a sequential decode,
//! whatever the thread count and whether or not packets were skipped by the sampling plan.
//! Nothing but the given [`Input`] is ever read. Opens no file and no socket, and no device but the one
//! asked for; computes no pixel.
#![deny(unsafe_code)]

mod backend;
mod continuity;
mod demux;
mod engine;
mod error;
mod ffi;
mod file;
mod frame_num;
mod gop;
mod live;
mod nal;
mod plan;
mod probe;
mod program;
mod pts_pairing;
mod sampling;
mod segment;
mod start;
mod units;

pub use backend::{Backend, BackendError};
pub use demux::{
    Demuxer, Earlier, ExcerptContainer, ExcerptStart, Input, Limits, PLAYLIST_HEAD_BYTES,
    StreamInfo, is_playlist,
};
pub use engine::Decoders;
pub use error::DecodeError;
pub use ffi::{CbcDecryptor, Device, DeviceSpec};
pub use file::{
    FileOptions, FileReport, FrameSink, SegmentInfo, Stop, decode_file, decode_file_by,
};
pub use live::{Decoder, LiveOptions, open_decoder, open_decoder_by};
pub use probe::{Tried, try_clips};
pub use program::{Conversation, ProgramInput, Start, arguments as program_arguments};
pub use sampling::Sampling;
pub use units::{CodedPicture, CodedPictures};
