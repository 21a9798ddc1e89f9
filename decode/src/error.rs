//! Errors between coded bytes and frames.

use media::{Codec, ErrorKind};

/// Reason that a file or a live stream does not decode. A `detail` is an error of libav.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum DecodeError {
    #[error("the file is empty")]
    Empty,
    /// The bytes are no supported container; with the short name of the recognised format, if any.
    #[error("unsupported container: {}", .0.as_deref().unwrap_or("not recognised as media"))]
    UnsupportedContainer(Option<String>),
    /// A playlist, or a container that refers to another resource; with the short name of its format.
    #[error("playlists and references to other resources are refused: {0}")]
    NestedResource(String),
    /// Reading the input failed with this error before the container was recognised.
    #[error("the input cannot be read: {0}")]
    Input(String),
    #[error("damaged or truncated {container} header: {detail}")]
    DamagedHeader { container: String, detail: String },
    #[error("no video stream (streams: {0})")]
    NoVideoStream(usize),
    /// The container has more streams than [`crate::DemuxLimits`] allows.
    #[error("{count} streams in the container, at most {max} are allowed")]
    TooManyStreams { count: usize, max: usize },
    /// The codec of this short name is outside [`media::Codec`], or this libav cannot decode it.
    #[error("unsupported video codec: {0}")]
    UnsupportedCodec(String),
    #[error("picture of {width}x{height} is larger than {max}x{max}")]
    PictureTooLarge { width: u32, height: u32, max: u32 },
    /// The picture has more pixels than allowed, although neither side is too long.
    #[error("picture of {width}x{height} has more than {max} pixels")]
    TooManyPixels { width: u32, height: u32, max: u64 },
    /// The samples of the picture take more bytes than allowed, although its pixels are within the limit.
    #[error(
        "a picture of {width}x{height} needs {bytes} bytes; the limit for this stream is {max}"
    )]
    TooManyBytes { width: u32, height: u32, bytes: u64, max: u64 },
    /// The pixel format of this name is neither planar or semi-planar YUV nor grey.
    #[error("unsupported pixel format: {0}")]
    UnsupportedPixelFormat(String),
    /// The stream ended without one decodable picture; with the number of packets that were refused.
    #[error("truncated or damaged: no frame could be decoded ({0} damaged packets)")]
    NothingDecoded(u64),
    #[error("no picture was found that a decoder can start with")]
    NoKeyframe,
    /// The file ends, at this media time in milliseconds, before the requested part.
    #[error("the source ends at {0} ms")]
    PastEnd(i64),
    /// The file begins, with a keyframe at this media time in milliseconds, after the requested part.
    #[error("the source begins at {0} ms")]
    BeforeStart(i64),
    /// An access unit of a live stream was refused for this reason; decoding resumes at the next clean start.
    #[error("damaged access unit: {0}")]
    DamagedUnit(String),
    #[error("access unit of codec {}, the decoder is for {}", .got.as_str(), .expected.as_str())]
    WrongCodec { expected: Codec, got: Codec },
    /// libav failed in a way that is not the input's fault.
    #[error("{call} failed: {detail}")]
    Libav { call: String, detail: String },
    #[error("cannot start a decoding thread: {0}")]
    Thread(String),
}

impl DecodeError {
    /// Returns the error kind, which decides the answer to the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            DecodeError::Empty
            | DecodeError::NestedResource(_)
            | DecodeError::DamagedHeader { .. }
            | DecodeError::NoVideoStream(_)
            | DecodeError::TooManyStreams { .. }
            | DecodeError::PictureTooLarge { .. }
            | DecodeError::TooManyPixels { .. }
            | DecodeError::NothingDecoded(_)
            | DecodeError::DamagedUnit(_)
            | DecodeError::NoKeyframe
            | DecodeError::PastEnd(_)
            | DecodeError::BeforeStart(_)
            | DecodeError::UnsupportedContainer(_)
            | DecodeError::UnsupportedCodec(_)
            | DecodeError::UnsupportedPixelFormat(_) => ErrorKind::InvalidInput,
            DecodeError::TooManyBytes { .. } => ErrorKind::Unsupported,
            DecodeError::WrongCodec { .. } | DecodeError::Libav { .. } => ErrorKind::Internal,
            DecodeError::Input(_) => ErrorKind::Unavailable,
            DecodeError::Thread(_) => ErrorKind::Exhausted,
        }
    }
}
