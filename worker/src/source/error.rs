//! Everything that can be wrong with a remote source, apart from its media and the network.

use std::io;

use media::ErrorKind;

use super::playlist::PlaylistError;
use crate::JobFault;

/// Reason for not reading a remote source any further.
#[derive(Debug, thiserror::Error)]
pub(super) enum RemoteSourceError {
    /// The control socket failed; the server is gone or will see it too.
    #[error("the server cannot be asked for media: {0}")]
    Asking(#[source] io::Error),
    /// The bytes did not come.
    #[error("the remote media cannot be read: {0}")]
    Reading(#[source] io::Error),
    /// A file that is read back and forth, from a server that gives it only from the beginning.
    #[error("the server does not serve byte ranges, and this file cannot be read without")]
    NoRanges,
    /// A live playlist that does not grow.
    #[error("timeout: the live playlist does not grow any more")]
    Silent,
    /// Something else answers where a playlist was.
    #[error("the playlist is not there any more")]
    Gone,
    /// A playlist that was live has been read to its end.
    #[error("the playlist has ended")]
    Over,
    /// Another file answers to the same URL now.
    #[error("the remote file changed while it was read")]
    Changed,
    /// The text is no playlist.
    #[error(transparent)]
    Playlist(#[from] PlaylistError),
    /// A playlist over the limit.
    #[error("too large: a playlist is over {} MiB", .limit_bytes >> 20)]
    PlaylistTooLarge { limit_bytes: u64 },
    /// Playlists that lead to playlists that lead to playlists.
    #[error("too large: playlists are nested more than {max} deep")]
    TooDeep { max: usize },
    /// An address that does not parse, or that leads where nothing is fetched from.
    #[error("the playlist leads to {address}: only http and https are followed")]
    Address { address: String },
    /// A segment key of a wrong size.
    #[error("the key of a segment has {bytes} bytes instead of 16")]
    Key { bytes: usize },
    /// An encrypted segment that is cut short, or has another key.
    #[error("a segment does not decrypt with its key")]
    Decryption,
}

impl RemoteSourceError {
    /// The closed kind that decides what the caller is told.
    pub(super) fn kind(&self) -> ErrorKind {
        match self {
            RemoteSourceError::Asking(_) => ErrorKind::Unavailable,
            _ => ErrorKind::InvalidInput,
        }
    }
}

impl From<RemoteSourceError> for JobFault {
    fn from(error: RemoteSourceError) -> JobFault {
        let (kind, message) = (error.kind(), error.to_string());
        match error {
            RemoteSourceError::Over => JobFault::Over,
            RemoteSourceError::Reading(_) | RemoteSourceError::Silent | RemoteSourceError::Gone => {
                JobFault::Source { is_refused: false, message }
            }
            _ => JobFault::Other { kind, message },
        }
    }
}
