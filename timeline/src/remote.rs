//! Store of the same files away from this machine: the calls that a directory of them makes.
//!
//! A file goes there under its hash and never changes. Calls wait for the network, each within
//! its bound, so they are made where that holds nobody up.

use std::{fmt, fs::File, path::PathBuf, time::Duration};

use media::BlobHash;

/// Bytes that the slowest line to a store carries in a second: bounds of calls go by it.
pub const SLOWEST: u64 = 128 << 10;

/// Files of one kind in an object store, by their hashes.
pub trait Remote: Send + Sync + fmt::Debug {
    /// Stores `files`, side by side, and ends within `limit`; returns the outcome of each, in their order. A file that
    /// is not that of its hash is not sent.
    fn upload(
        &self,
        files: &[(BlobHash, PathBuf)],
        limit: Duration,
    ) -> Vec<Result<(), RemoteError>>;

    /// Returns the size of the file of each hash in bytes, in their order; `None` where there is none.
    fn sizes(&self, hashes: &[BlobHash]) -> Vec<Result<Option<u64>, RemoteError>>;

    /// Writes the file of `hash` to `to`, which is empty, no more than `size_max` bytes of it; false where there is
    /// none.
    fn fetch(&self, hash: &BlobHash, to: &File, size_max: u64) -> Result<bool, RemoteError>;

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

media::named! {
    /// Class of a failure of an object store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
    pub enum RemoteFault {
        /// No connection, or one that broke.
        #[error("cannot be reached")]
        Unreachable = "unreachable",
        /// No answer within the bound.
        #[error("does not answer in time")]
        Slow = "slow",
        /// Wrong credentials, or no permission.
        #[error("denies access")]
        Denied = "denied",
        /// There is no such bucket.
        #[error("has no such bucket")]
        NoBucket = "no_bucket",
        /// It said that it stored a file and does not have it.
        #[error("did not keep what it took")]
        NotKept = "not_kept",
        /// The prefix belongs to another server.
        #[error("has files of another server under this prefix")]
        Foreign = "foreign",
        /// Any other refusal.
        #[error("refuses")]
        Failed = "failed",
        /// The file here is damaged, or cannot be read or written; the store was not asked.
        #[error("is not at fault")]
        Local = "local",
    }
}
