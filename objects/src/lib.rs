//! Stored files in an S3-compatible object store: `timeline::Remote` with the crate `object_store`.
//!
//! A server keeps its files under a prefix that it has claimed, by their hashes. Every call has a timeout, at
//! most sixteen requests of a client are in progress, and no error contains a secret or a signature. Calls of
//! `Remote` block: they must run on no thread of a runtime.
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

/// Bytes of a part of an upload; a file up to this size is one request.
pub const PART_BYTES: u64 = 8 * 1024 * 1024;

/// Maximum concurrent requests.
pub const REQUESTS_MAX: usize = 16;

/// Timeout for the start of an answer, and between two pieces of it.
pub const ANSWER_TIME: Duration = Duration::from_secs(10);

/// Timeout of one request.
pub const REQUEST_TIME: Duration = Duration::from_secs(10 + PART_BYTES / SLOWEST);

/// Number of uploads after which one is read back as a check.
pub const UPLOADS_PER_CHECK: u64 = 64;

/// Observer of finished calls: kind, result, and duration with the wait for a permit.
pub type Observe = Arc<dyn Fn(Operation, Result<(), RemoteFault>, Duration) + Send + Sync>;

media::named! {
    /// Kinds of calls to an object store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    #[allow(missing_docs, reason = "the text of each says it")]
    pub enum Operation {
        /// Uploads a file, in one request or in parts, and reads it back if due.
        Upload = "upload",
        Size = "size",
        Fetch = "fetch",
        Remove = "remove",
        /// Claims a prefix, or lists the files that are there.
        Claim = "claim",
    }
}
