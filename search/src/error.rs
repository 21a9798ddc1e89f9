//! Errors of search; only the cache file has any.

use std::io;

use media::ErrorKind;

/// The cache file failed; the index must be rebuilt.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The file system failed.
    #[error("cannot {what} the search cache: {source}")]
    Cache {
        /// Operation that failed.
        what: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// The file does not contain what was written.
    #[error("the search cache is damaged at byte {offset}")]
    Damaged {
        /// Offset of the chunk.
        offset: u64,
    },
}

impl SearchError {
    /// Kind of the error: unavailable until the index is rebuilt.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}
