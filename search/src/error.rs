//! Errors of search: only the cache file has any.

use std::io;

use media::ErrorKind;

/// The cache file failed; the index must be built again.
#[derive(Debug, thiserror::Error)]
pub enum SearchError {
    /// The file system refused.
    #[error("cannot {what} the search cache: {source}")]
    Cache {
        /// Operation that failed.
        what: &'static str,
        /// The system's answer.
        source: io::Error,
    },
    /// The file does not hold what was written.
    #[error("the search cache is damaged at byte {offset}")]
    Damaged {
        /// Offset of the chunk.
        offset: u64,
    },
}

impl SearchError {
    /// The closed kind that decides what the caller is told: it passes once the index is rebuilt.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}
