//! Errors of an RTSP source.

use std::io;

use decode::DecodeError;
use media::ErrorKind;

use crate::JobFault;

/// Reason that no more media comes from an RTSP server.
#[derive(Debug, thiserror::Error)]
pub(super) enum RtspError {
    #[error("the RTSP server asks for a user and a password: put them into the URL")]
    CredentialsRequired,
    /// The user name cannot be put into a request header; a password is never put there as it is.
    #[error("the user for the RTSP server has a quote or a control character in it")]
    User,
    #[error("the RTSP server does not accept the user or the password")]
    Unauthorized,
    #[error("the RTSP server asks for another authentication than Basic and Digest: {challenge}")]
    Challenge { challenge: String },
    #[error("the RTSP server answers {method} with status {status} {reason}")]
    Status { method: &'static str, status: u16, reason: String },
    #[error("the RTSP server redirects to {to}: redirects are not followed, use that address")]
    Redirected { to: String },
    /// A message of the server is not RTSP, or contradicts the protocol.
    #[error("the RTSP server's answer is malformed: {what}")]
    Malformed { what: &'static str },
    #[error("too large: an answer of the RTSP server is over {} KiB", .limit_bytes >> 10)]
    TooLarge { limit_bytes: usize },
    #[error("the RTSP server ended the connection early, {during}")]
    Ended { during: &'static str },
    #[error("timeout: the RTSP server was silent")]
    Silent,
    #[error("the connection to the RTSP server failed: {0}")]
    Connection(#[source] io::Error),
    #[error(transparent)]
    Media(#[from] DecodeError),
}

impl From<RtspError> for JobFault {
    fn from(error: RtspError) -> JobFault {
        let message = error.to_string();
        match error {
            RtspError::Media(error) => error.into(),
            RtspError::Malformed { .. } | RtspError::TooLarge { .. } => {
                JobFault::Other { kind: ErrorKind::InvalidInput, message }
            }
            RtspError::Ended { .. } | RtspError::Silent | RtspError::Connection(_) => {
                JobFault::Source { is_refused: false, message }
            }
            _ => JobFault::Source { is_refused: true, message },
        }
    }
}

/// Shortens a server's text for a message, and drops control characters.
pub(super) fn quoted(words: &str) -> String {
    words.chars().filter(|letter| !letter.is_control()).take(100).collect()
}
