//! Everything that can go wrong with an RTSP server.

use std::io;

use decode::DecodeError;
use media::ErrorKind;

use crate::JobFault;

/// Reason that no more media comes from an RTSP server.
#[derive(Debug, thiserror::Error)]
pub(super) enum RtspError {
    /// It wants to know who asks, and nobody said.
    #[error("the RTSP server asks for a user and a password: put them into the URL")]
    CredentialsRequired,
    /// A name that cannot stand in a request; passwords never do.
    #[error("the user for the RTSP server has a quote or a control character in it")]
    User,
    /// It does not let this user in.
    #[error("the RTSP server does not accept the user or the password")]
    Unauthorized,
    /// It asks in a way that is not known here.
    #[error("the RTSP server asks for another authentication than Basic and Digest: {challenge}")]
    Challenge { challenge: String },
    /// It refuses a request.
    #[error("the RTSP server answers {method} with status {status} {reason}")]
    Status { method: &'static str, status: u16, reason: String },
    /// It sends elsewhere.
    #[error("the RTSP server redirects to {to}: redirects are not followed, use that address")]
    Redirected { to: String },
    /// A message of it is not RTSP, or makes no sense.
    #[error("the RTSP server's answer is malformed: {what}")]
    Malformed { what: &'static str },
    /// An answer over the bound.
    #[error("too large: an answer of the RTSP server is over {} KiB", .limit_bytes >> 10)]
    TooLarge { limit_bytes: usize },
    /// It closed the connection.
    #[error("the RTSP server ended the connection early, {during}")]
    Ended { during: &'static str },
    /// It neither answered nor sent.
    #[error("timeout: the RTSP server was silent")]
    Silent,
    /// The connection failed.
    #[error("the connection to the RTSP server failed: {0}")]
    Connection(#[source] io::Error),
    /// There is no video, or none that can be decoded.
    #[error(transparent)]
    Media(#[from] DecodeError),
}

impl From<RtspError> for JobFault {
    fn from(error: RtspError) -> JobFault {
        use RtspError::{
            Challenge, Connection, CredentialsRequired, Ended, Malformed, Media, Redirected,
            Silent, Status, TooLarge, Unauthorized, User,
        };
        let message = error.to_string();
        match error {
            Media(error) => error.into(),
            CredentialsRequired
            | User
            | Unauthorized
            | Challenge { .. }
            | Status { .. }
            | Redirected { .. } => JobFault::Source { is_refused: true, message },
            Ended { .. } | Silent | Connection(_) => {
                JobFault::Source { is_refused: false, message }
            }
            Malformed { .. } | TooLarge { .. } => {
                JobFault::Other { kind: ErrorKind::InvalidInput, message }
            }
        }
    }
}

/// Words of a server as they may stand in a message: short and printable.
pub(super) fn quoted(words: &str) -> String {
    words.chars().filter(|letter| !letter.is_control()).take(100).collect()
}
