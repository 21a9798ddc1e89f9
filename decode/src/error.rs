//! Everything that can go wrong between coded bytes and frames.

use media::{Codec, ErrorKind};

/// Reason that a file or a live stream does not decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum DecodeError {
    /// The input holds no byte.
    #[error("the file is empty")]
    Empty,
    /// The bytes are no container that is served; `name` is what they look like, if anything.
    #[error("unsupported container: {}", .name.as_deref().unwrap_or("not recognised as media"))]
    UnsupportedContainer {
        /// Short name of the recognised format.
        name: Option<String>,
    },
    /// A playlist, or a container that asks for another resource.
    #[error("playlists and references to other resources are refused: {name}")]
    NestedResource {
        /// Short name of the playlist format, or of the container with the reference.
        name: String,
    },
    /// Reading the input failed before anything was recognised.
    #[error("the input cannot be read: {detail}")]
    Input {
        /// Error of the system.
        detail: String,
    },
    /// The container was recognised but its header cannot be read.
    #[error("damaged or truncated {container} header: {detail}")]
    DamagedHeader {
        /// Short name of the container.
        container: String,
        /// Error of libav.
        detail: String,
    },
    /// No stream of the container is video.
    #[error("no video stream (streams: {streams})")]
    NoVideoStream {
        /// Streams of any kind.
        streams: usize,
    },
    /// More streams than [`crate::DemuxLimits`] allows.
    #[error("{count} streams in the container, at most {max} are allowed")]
    TooManyStreams {
        /// Streams found.
        count: usize,
        /// Streams allowed.
        max: usize,
    },
    /// A codec outside [`media::Codec`], or one that this libav cannot decode.
    #[error("unsupported video codec: {name}")]
    UnsupportedCodec {
        /// Short name of the codec.
        name: String,
    },
    /// A picture beyond the size limit.
    #[error("picture of {width}x{height} is larger than {max}x{max}")]
    PictureTooLarge {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Most columns and most rows allowed.
        max: u32,
    },
    /// A picture of more pixels than are allowed, neither side being too long.
    #[error("picture of {width}x{height} has more than {max} pixels")]
    TooManyPixels {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Most pixels allowed.
        max: u64,
    },
    /// A picture whose samples take more bytes than are allowed, though it has not too many pixels.
    #[error(
        "a picture of {width}x{height} needs {bytes} bytes; the limit for this stream is {max}"
    )]
    TooManyBytes {
        /// Columns.
        width: u32,
        /// Rows.
        height: u32,
        /// Bytes of its samples.
        bytes: u64,
        /// Most bytes allowed.
        max: u64,
    },
    /// A pixel format other than planar or semi-planar YUV and grey.
    #[error("unsupported pixel format: {name}")]
    UnsupportedPixelFormat {
        /// Name of the format.
        name: String,
    },
    /// The stream ended without one decodable picture.
    #[error("truncated or damaged: no frame could be decoded ({damaged_packets} damaged packets)")]
    NothingDecoded {
        /// Packets that the demuxer or the decoder refused.
        damaged_packets: u64,
    },
    /// No keyframe is where one is looked for.
    #[error("no picture was found that a decoder can start with")]
    NoKeyframe,
    /// The file ends before the part that is asked for.
    #[error("the source ends at {end_ms} ms")]
    PastEnd {
        /// Media time of its end.
        end_ms: i64,
    },
    /// The file begins after the part that is asked for.
    #[error("the source begins at {start_ms} ms")]
    BeforeStart {
        /// Media time of its first keyframe.
        start_ms: i64,
    },
    /// One access unit of a live stream was refused; decoding resumes at the next clean start.
    #[error("damaged access unit: {detail}")]
    DamagedUnit {
        /// Error of libav.
        detail: String,
    },
    /// An access unit of another codec than the decoder's.
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
        /// The libav function.
        call: String,
        /// Error of libav.
        detail: String,
    },
    /// A worker thread could not be started.
    #[error("cannot start a decoding thread: {detail}")]
    Thread {
        /// Error of the system.
        detail: String,
    },
}

impl DecodeError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            DecodeError::Empty
            | DecodeError::NestedResource { .. }
            | DecodeError::DamagedHeader { .. }
            | DecodeError::NoVideoStream { .. }
            | DecodeError::TooManyStreams { .. }
            | DecodeError::PictureTooLarge { .. }
            | DecodeError::TooManyPixels { .. }
            | DecodeError::NothingDecoded { .. }
            | DecodeError::DamagedUnit { .. }
            | DecodeError::NoKeyframe
            | DecodeError::PastEnd { .. }
            | DecodeError::BeforeStart { .. }
            | DecodeError::UnsupportedContainer { .. }
            | DecodeError::UnsupportedCodec { .. }
            | DecodeError::UnsupportedPixelFormat { .. } => ErrorKind::InvalidInput,
            DecodeError::TooManyBytes { .. } => ErrorKind::Unsupported,
            DecodeError::WrongCodec { .. } | DecodeError::Libav { .. } => ErrorKind::Internal,
            DecodeError::Input { .. } => ErrorKind::Unavailable,
            DecodeError::Thread { .. } => ErrorKind::Exhausted,
        }
    }
}
