//! A container file to the packets of its one video stream.

use std::io::{Read, Seek};

use media::{Codec, Extent, PixelLayout, Rate, Rotation, Timebase, Timestamp};

use crate::DecodeError;

/// Where a container's bytes come from; nothing else is ever opened.
pub trait Input: Read + Seek + Send {}

impl<T: Read + Seek + Send> Input for T {}

/// What a file may ask for at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most columns and most rows of a picture.
    pub side_px: u32,
    /// Most streams of any kind in a container.
    pub streams: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { side_px: 8192, streams: 16 }
    }
}

/// What the container and a look at the first pictures say about the video stream.
#[derive(Clone, Debug, PartialEq)]
pub struct StreamInfo {
    /// How the stream is coded.
    pub codec: Codec,
    /// libav's short name of the demuxer, such as `mov,mp4,m4a,3gp,3g2,mj2`.
    pub container: String,
    /// Size of the coded pictures, before any rotation.
    pub extent: Extent,
    /// Turn that the container asks for.
    pub rotation: Rotation,
    /// How samples are stored; `None` when the probed format is not one that can be served.
    pub layout: Option<PixelLayout>,
    /// Average frame rate.
    pub source_rate: Option<Rate>,
    /// Length of the stream, or of the container when the stream does not say.
    pub duration: Option<Timestamp>,
    /// Unit of the presentation times.
    pub timebase: Timebase,
    /// libav's name of the pixel format.
    pub pixel_format: String,
    /// Number of frames that the container declares.
    pub declared_frames: Option<u64>,
}

/// An opened container.
pub struct Demuxer {
    stream: StreamInfo,
}

impl Demuxer {
    /// Recognises the container and looks at its first packets.
    pub fn open(input: Box<dyn Input>, limits: Limits) -> Result<Demuxer, DecodeError> {
        let (_, _) = (input, limits);
        Err(DecodeError::Empty)
    }

    /// The video stream that will be decoded: the first that is not a cover picture.
    pub fn stream(&self) -> &StreamInfo {
        &self.stream
    }
}
