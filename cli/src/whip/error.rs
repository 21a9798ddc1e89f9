//! Reasons that end a publication early.

use media::ErrorKind;

/// Reason that a file is not published, or not completely; sessions are numbered from 1.
#[derive(Debug, thiserror::Error)]
pub enum WhipError {
    /// The file is no readable video.
    #[error("{0}")]
    Decode(#[from] decode::DecodeError),
    /// The codec has no supported RTP payload format.
    #[error("{codec} cannot be published; H.264, H.265, VP8, VP9 and AV1 can")]
    Codec { codec: &'static str },
    /// The file has no keyframe for a receiver to start from.
    #[error("the file has no keyframe")]
    NoKeyframe,
    /// The file is too large to be held in memory.
    #[error("the file holds more than {max} bytes of video")]
    TooLarge { max: usize },
    /// The value is not a number from 0 to 100.
    #[error("must be a number from 0 to 100")]
    Percent,
    /// The WebRTC library reported an error.
    #[error("session {session}: {problem}: {detail}")]
    Connection { session: usize, problem: &'static str, detail: String },
    /// The connection was not established in time.
    #[error("session {session} was accepted and never connected: no answer to ICE or DTLS")]
    NeverConnected { session: usize },
    /// The server ended the session or went away.
    #[error("session {session} was ended by the server")]
    Ended { session: usize },
    /// A UDP socket cannot be opened.
    #[error("cannot open a UDP socket: {0}")]
    Socket(std::io::Error),
}

impl WhipError {
    /// Returns the kind of the failure.
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
