//! Remote store of a directory's files, and the calls that the directory makes.
//!
//! A file is stored under its hash and never changes. Calls block on the network, each with a time limit, so
//! they are made only where that delays nothing else.

use std::{fmt, fs::File, path::PathBuf, time::Duration};

use media::BlobHash;

/// Least throughput to a store in bytes per second, from which time limits of calls are computed.
pub const SLOWEST: u64 = 128 << 10;

/// Files of one kind in an object store, by their hashes.
pub trait Remote: Send + Sync + fmt::Debug {
    /// Stores `files` in parallel within `limit`; returns the outcome of each, in their order. Does not send
    /// a file that does not match its hash.
    fn upload(
        &self,
        files: &[(BlobHash, PathBuf)],
        limit: Duration,
    ) -> Vec<Result<(), RemoteError>>;

    /// Returns the size in bytes of the file of each hash, in their order; `None` if there is none.
    fn sizes(&self, hashes: &[BlobHash]) -> Vec<Result<Option<u64>, RemoteError>>;

    /// Writes the file of `hash`, at most `size_max` bytes, to the empty file `to`; false if there is none.
    fn fetch(&self, hash: &BlobHash, to: &File, size_max: u64) -> Result<bool, RemoteError>;

    /// Removes the files of `hashes`; missing ones count as removed.
    fn remove(&self, hashes: &[BlobHash]) -> Result<(), RemoteError>;
}

/// Failure of a call to an object store.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the object store {fault}: {detail}")]
pub struct RemoteError {
    /// Class of the failure.
    pub fault: RemoteFault,
    /// Short answer of the store, without secrets and signatures.
    pub detail: String,
}

media::named! {
    /// Class of a failure of an object store.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, thiserror::Error)]
    #[allow(missing_docs, reason = "the messages say it")]
    pub enum RemoteFault {
        /// The connection failed or broke.
        #[error("cannot be reached")]
        Unreachable = "unreachable",
        #[error("does not answer in time")]
        Slow = "slow",
        #[error("denies access")]
        Denied = "denied",
        #[error("has no such bucket")]
        NoBucket = "no_bucket",
        /// The store confirmed a file that it does not have.
        #[error("did not keep what it took")]
        NotKept = "not_kept",
        /// The prefix belongs to another server.
        #[error("has files of another server under this prefix")]
        Foreign = "foreign",
        #[error("refuses")]
        Failed = "failed",
        /// The local file is damaged or inaccessible; the store was not asked.
        #[error("is not at fault")]
        Local = "local",
    }
}
