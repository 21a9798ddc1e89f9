//! Substring search over descriptions: case-folded text in chunks, scanned byte by byte.
//!
//! Promises that a result equals the naive one (fold both sides, look for the substring) and that memory
//! stays within a limit: the oldest chunks move to a cache file. Owners have separate chunks, so that one
//! owner's data does not slow down the others' searches. Knows no log, no HTTP and no clock; starts no
//! thread.
#![forbid(unsafe_code)]

mod case_fold;
mod chunk;
mod excerpt;
mod index;
mod scan;
mod spill;

use std::io;

pub use case_fold::FoldedPattern;
pub use excerpt::{CONTEXT_BYTES, excerpt};
pub use index::{IndexLimits, SearchIndex};
pub use scan::{Scan, ScanResult};

/// The cache file failed; the index must be rebuilt.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum SearchError {
    #[error("cannot {what} the search cache: {source}")]
    Cache { what: &'static str, source: io::Error },
    #[error("the search cache is damaged at byte {offset}")]
    Damaged { offset: u64 },
}
