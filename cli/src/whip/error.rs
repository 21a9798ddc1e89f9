//! Reasons that end a publication early.

use media::ErrorKind;

/// Reason that a file is not published, or not to its end.
#[derive(Debug, thiserror::Error)]
pub enum WhipError {
    /// The file is no video that can be read.
    #[error("{0}")]
    Decode(#[from] decode::DecodeError),
    /// A codec that no RTP payload format is served for.
    #[error("{codec} cannot be published; H.264, H.265, VP8, VP9 and AV1 can")]
    Codec {
        /// Name of the codec.
        codec: &'static str,
    },
    /// The file has no picture from which a receiver could start.
    #[error("the file has no keyframe")]
    NoKeyframe,
    /// The file is held in memory, and is too large for that.
    #[error("the file holds more than {max} bytes of video")]
    TooLarge {
        /// Most bytes of coded pictures.
        max: usize,
    },
    /// The value is not a number from 0 to 100.
    #[error("must be a number from 0 to 100")]
    Percent,
    /// The WebRTC stack refused something.
    #[error("session {session}: {problem}: {detail}")]
    Connection {
        /// Number of the session, from 1.
        session: usize,
        /// Step that failed.
        problem: &'static str,
        /// Message of the stack.
        detail: String,
    },
    /// No media path came up.
    #[error("session {session} was accepted and never connected: no answer to ICE or DTLS")]
    NeverConnected {
        /// Number of the session, from 1.
        session: usize,
    },
    /// The other side ended it or went away.
    #[error("session {session} was ended by the server")]
    Ended {
        /// Number of the session, from 1.
        session: usize,
    },
    /// No socket.
    #[error("cannot open a UDP socket: {0}")]
    Socket(std::io::Error),
}

impl WhipError {
    /// Kind of the failure.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WhipError::Decode(error) => error.kind(),
            WhipError::Codec { .. } => ErrorKind::Unsupported,
            WhipError::NoKeyframe | WhipError::Percent => ErrorKind::InvalidInput,
            WhipError::TooLarge { .. } => ErrorKind::Exhausted,
            WhipError::NeverConnected { .. } => ErrorKind::Unavailable,
            WhipError::Ended { .. } | WhipError::Connection { .. } | WhipError::Socket(_) => {
                ErrorKind::Internal
            }
        }
    }
}
