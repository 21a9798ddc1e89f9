//! Errors of search; only the cache file has any.

use std::io;

use media::ErrorKind;

/// The cache file failed; the index must be rebuilt.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SearchError {
    #[error("cannot {what} the search cache: {source}")]
    Cache { what: &'static str, source: io::Error },
    #[error("the search cache is damaged at byte {offset}")]
    Damaged { offset: u64 },
}

impl SearchError {
    /// Kind of the error: unavailable until the index is rebuilt.
    pub fn kind(&self) -> ErrorKind {
        ErrorKind::Unavailable
    }
}
