//! Store of the same files away from this machine: the calls that a directory of them makes.
//!
//! A file goes there under its hash and never changes. Calls wait for the network, each within
//! its bound, so they are made where that holds nobody up.

use std::{fmt, io, path::PathBuf, time::Duration};

use media::BlobHash;

/// Files of one kind in an object store, by their hashes.
pub trait Remote: Send + Sync + fmt::Debug {
    /// Stores `files`, side by side, and ends within `limit`; returns the outcome of each, in their order.
    fn upload(
        &self,
        files: &[(BlobHash, PathBuf)],
        limit: Duration,
    ) -> Vec<Result<(), RemoteError>>;

    /// Returns the size of the file of `hash` in bytes; `None` where there is none.
    fn size(&self, hash: &BlobHash) -> Result<Option<u64>, RemoteError>;

    /// Opens the file of `hash`; `None` where there is none.
    fn open(&self, hash: &BlobHash) -> Result<Option<Box<dyn io::Read + Send>>, RemoteError>;

    /// Removes the files of `hashes`; those that are not there count as removed.
    fn remove(&self, hashes: &[BlobHash]) -> Result<(), RemoteError>;
}

/// Failure of a call to an object store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object store {fault}: {detail}")]
pub struct RemoteError {
    /// Class of the failure.
    pub fault: RemoteFault,
    /// Answer of the store in short; no secret and no signature.
    pub detail: String,
}

/// Class of a failure of an object store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum RemoteFault {
    /// No connection, or one that broke.
    Unreachable,
    /// No answer within the bound.
    Slow,
    /// Wrong credentials, or no permission.
    Denied,
    /// There is no such bucket.
    NoBucket,
    /// It said that it stored a file and does not have it.
    NotKept,
    /// The prefix belongs to another server.
    Foreign,
    /// Any other refusal.
    Failed,
}

impl RemoteFault {
    /// Every class.
    pub const ALL: [RemoteFault; 7] = [
        RemoteFault::Unreachable,
        RemoteFault::Slow,
        RemoteFault::Denied,
        RemoteFault::NoBucket,
        RemoteFault::NotKept,
        RemoteFault::Foreign,
        RemoteFault::Failed,
    ];

    /// Name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            RemoteFault::Unreachable => "unreachable",
            RemoteFault::Slow => "slow",
            RemoteFault::Denied => "denied",
            RemoteFault::NoBucket => "no_bucket",
            RemoteFault::NotKept => "not_kept",
            RemoteFault::Foreign => "foreign",
            RemoteFault::Failed => "failed",
        }
    }
}

impl fmt::Display for RemoteFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RemoteFault::Unreachable => "cannot be reached",
            RemoteFault::Slow => "does not answer in time",
            RemoteFault::Denied => "denies access",
            RemoteFault::NoBucket => "has no such bucket",
            RemoteFault::NotKept => "did not keep what it took",
            RemoteFault::Foreign => "has files of another server under this prefix",
            RemoteFault::Failed => "refuses",
        })
    }
}
