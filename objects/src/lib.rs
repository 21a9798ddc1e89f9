//! Stored files in an S3-compatible object store: `timeline::Remote` over the crate `object_store`.
//!
//! A server keeps its files under a prefix that it has claimed, by their hashes. No call waits
//! without a bound, no more than sixteen requests of a client wait for their answer at a time, and no
//! error holds a secret or a signature. Calls of `Remote` block: they are made from no thread of a runtime.
#![forbid(unsafe_code)]

mod failure;
mod folder;
mod owner;
mod settings;
mod store;
mod transfer;
mod wire;

use std::{sync::Arc, time::Duration};

use timeline::{RemoteFault, SLOWEST};

pub use url::Url;

pub use self::{
    settings::{Credentials, Place, SetupError, Writer},
    store::Objects,
};

/// Size of a part of an upload; a file up to this size is one request.
pub const PART_BYTES: u64 = 8 * 1024 * 1024;

/// Most requests at a time.
pub const REQUESTS_MAX: usize = 16;

/// Time for an answer to begin, and between two pieces of one.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Longest time of one request.
pub const REQUEST_TIME: Duration = Duration::from_secs(10 + PART_BYTES / SLOWEST);

/// A file is read back whole after this many uploads that were not.
pub const UPLOADS_PER_CHECK: u64 = 64;

/// Told of each call that ended: its kind, its outcome, its time with the wait for its turn.
pub type Observe = Arc<dyn Fn(Operation, Result<(), RemoteFault>, Duration) + Send + Sync>;

media::named! {
    /// Kinds of calls to an object store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Operation {
        /// Stores a file, in one request or in parts, and reads it back where that is due.
        Upload = "upload",
        /// Asks for the size of a file.
        Size = "size",
        /// Fetches a file.
        Fetch = "fetch",
        /// Removes files.
        Remove = "remove",
        /// Claims a prefix.
        Claim = "claim",
    }
}
