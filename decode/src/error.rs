//! Errors between coded bytes and frames.

use media::{Codec, ErrorKind};

/// Reason that a file or a live stream does not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum DecodeError {
    /// The input has no bytes.
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
    /// The container was recognised, but its header is unreadable.
    #[error("damaged or truncated {container} header: {detail}")]
    DamagedHeader {
        /// Short name of the container.
        container: String,
        /// Error of libav.
        detail: String,
    },
    /// None of this many streams of the container is video.
    #[error("no video stream (streams: {0})")]
    NoVideoStream(usize),
    /// The container has more streams than [`crate::DemuxLimits`] allows.
    #[error("{count} streams in the container, at most {max} are allowed")]
    TooManyStreams {
        /// Number of streams found.
        count: usize,
        /// Number of streams allowed.
        max: usize,
    },
    /// The codec of this short name is outside [`media::Codec`], or this libav cannot decode it.
    #[error("unsupported video codec: {0}")]
    UnsupportedCodec(String),
    /// A side of the picture is longer than allowed.
    #[error("picture of {width}x{height} is larger than {max}x{max}")]
    PictureTooLarge {
        /// Columns of the picture.
        width: u32,
        /// Rows of the picture.
        height: u32,
        /// Most columns and most rows allowed.
        max: u32,
    },
    /// The picture has more pixels than allowed, although neither side is too long.
    #[error("picture of {width}x{height} has more than {max} pixels")]
    TooManyPixels {
        /// Columns of the picture.
        width: u32,
        /// Rows of the picture.
        height: u32,
        /// Most pixels allowed.
        max: u64,
    },
    /// The samples of the picture take more bytes than allowed, although its pixels are within the limit.
    #[error(
        "a picture of {width}x{height} needs {bytes} bytes; the limit for this stream is {max}"
    )]
    TooManyBytes {
        /// Columns of the picture.
        width: u32,
        /// Rows of the picture.
        height: u32,
        /// Bytes of the picture's samples.
        bytes: u64,
        /// Most bytes allowed.
        max: u64,
    },
    /// The pixel format of this name is neither planar or semi-planar YUV nor grey.
    #[error("unsupported pixel format: {0}")]
    UnsupportedPixelFormat(String),
    /// The stream ended without one decodable picture; with the number of packets that were refused.
    #[error("truncated or damaged: no frame could be decoded ({0} damaged packets)")]
    NothingDecoded(u64),
    /// No keyframe was found in the part searched.
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
    /// The access unit's codec differs from the decoder's.
    #[error("access unit of codec {}, the decoder is for {}", .got.as_str(), .expected.as_str())]
    WrongCodec {
        /// Codec of the decoder.
        expected: Codec,
        /// Codec of the unit.
        got: Codec,
    },
    /// libav failed in a way that is not the input's fault.
    #[error("{call} failed: {detail}")]
    Libav {
        /// Name of the libav function.
        call: String,
        /// Error of libav.
        detail: String,
    },
    /// A worker thread could not be started, by this error of the system.
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
