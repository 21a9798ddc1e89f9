//! Errors of remote sources, apart from those of their media and the network.

use std::io;

use media::ErrorKind;

use super::playlist::PlaylistError;
use crate::JobFault;

/// Reason to stop reading a remote source.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteSourceError {
    /// The control socket failed; the server is gone, or will notice as well.
    #[error("the server cannot be asked for media: {0}")]
    Asking(#[source] io::Error),
    #[error("the remote media cannot be read: {0}")]
    Reading(#[source] io::Error),
    #[error("the server does not serve byte ranges, and this file cannot be read without")]
    NoRanges,
    #[error("timeout: the live playlist does not grow any more")]
    Silent,
    #[error("segments left the live playlist before they were read")]
    Missed,
    /// The URL of the playlist answers with something else.
    #[error("the playlist is not there any more")]
    Gone,
    /// A resumed playlist has ended, with nothing new.
    #[error("the playlist has ended")]
    Over,
    #[error("the remote file changed while it was read")]
    Changed,
    #[error(transparent)]
    Playlist(#[from] PlaylistError),
    #[error("too large: a playlist is over {} MiB", .limit_bytes >> 20)]
    PlaylistTooLarge { limit_bytes: u64 },
    #[error("too large: an initialization section is over {} MiB", .limit_bytes >> 20)]
    MapTooLarge { limit_bytes: usize },
    /// The playlist goes on with pictures of other parameters, which need another decoder.
    #[error("the playlist goes on with another initialization section (EXT-X-MAP)")]
    OtherMap,
    #[error("segment {number} of the playlist is no media but a page that begins with \"<\"")]
    Page { number: u64 },
    #[error("too large: playlists are nested more than {max} deep")]
    TooDeep { max: usize },
    #[error("malformed url: the playlist leads to {address} ({problem})")]
    Malformed { address: String, problem: url::ParseError },
    #[error("the playlist leads to {address}: only http and https are followed")]
    Address { address: String },
    #[error("the key of a segment has {bytes} bytes instead of 16")]
    Key { bytes: usize },
    /// The encrypted segment is truncated, or has another key.
    #[error("a segment does not decrypt with its key")]
    Decryption,
}

impl From<RemoteSourceError> for JobFault {
    fn from(error: RemoteSourceError) -> JobFault {
        let message = error.to_string();
        match error {
            RemoteSourceError::Over => JobFault::Over,
            RemoteSourceError::Reading(_)
            | RemoteSourceError::Silent
            | RemoteSourceError::Missed
            | RemoteSourceError::Gone
            | RemoteSourceError::OtherMap
            | RemoteSourceError::Page { .. } => JobFault::Source { is_refused: false, message },
            RemoteSourceError::Asking(_) => {
                JobFault::Other { kind: ErrorKind::Unavailable, message }
            }
            _ => JobFault::Other { kind: ErrorKind::InvalidInput, message },
        }
    }
}
