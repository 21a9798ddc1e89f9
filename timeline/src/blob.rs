//! Content-addressed files: written aside, synced, renamed to their SHA-256, directory synced.
//!
//! A blob that `put` returned survives a power cut, so an event that names it may follow. Bytes from `get`
//! match the requested hash. A sweep removes blobs that no event names, by the caller's word; blobs stored
//! under a lease stay as long as the lease.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{BlobHash, WallTime};
use sha2::{Digest, Sha256};

use crate::{
    Result, TimelineError,
    files::{Backing, Files, Layout, Standing},
    pins::{PinGuard, SweepGuard, SweepStats},
};

/// Note with the time, in epoch milliseconds, before which blobs of events may have been removed.
const REMOVED_BEFORE: &str = "removed-before";

/// Content-addressed files in one directory; clones share it.
#[derive(Clone, Debug)]
pub struct BlobStore {
    files: Arc<Files>,
}

impl BlobStore {
    /// Opens or creates the store in `dir` and removes unfinished writes; `backing` is its object store.
    pub fn open(dir: &Path, backing: Option<Backing>) -> Result<BlobStore> {
        Ok(BlobStore { files: Arc::new(Files::open(dir, Layout::Sharded, backing)?) })
    }

    /// Returns the store in `dir` for readers: creates and removes nothing.
    pub fn at(dir: &Path) -> BlobStore {
        BlobStore { files: Arc::new(Files::at(dir, Layout::Sharded)) }
    }

    /// Returns the number of unfinished writes that opening removed.
    pub fn unfinished(&self) -> u64 {
        self.files.unfinished
    }

    /// Returns a lease for storing blobs that later events name.
    pub fn lease(&self) -> BlobWriteLease {
        let (files, lease) = (Arc::clone(&self.files), self.files.lease());
        BlobWriteLease { files, lease, made: Vec::new(), put: Vec::new() }
    }

    /// Begins a sweep, before the caller reads the names in events; `None` while another runs.
    pub fn sweep(&self) -> Option<BlobSweep> {
        let sweeping = self.files.begin_sweep()?;
        Some(BlobSweep { files: Arc::clone(&self.files), sweeping })
    }

    /// Returns the time before which blobs that events name may have been removed.
    pub fn removed_before(&self) -> Result<Option<WallTime>> {
        let Some(text) = self.files.note(REMOVED_BEFORE)? else { return Ok(None) };
        let (file, what) =
            (self.files.dir().path().join(REMOVED_BEFORE), "no time in milliseconds");
        let damaged = |_| TimelineError::Damaged { file, offset: 0, what };
        Ok(Some(WallTime { epoch_ms: text.parse().map_err(damaged)? }))
    }

    /// Records durably that blobs of events before `at` may be gone; call before removing them.
    pub fn remember_removed_before(&self, at: WallTime) -> Result<()> {
        self.files.write_note(REMOVED_BEFORE, &at.epoch_ms.to_string())
    }

    /// Returns true if a blob of this hash exists here, even damaged, or in the object store.
    pub fn has(&self, hash: &BlobHash) -> bool {
        self.files.has(hash)
    }

    /// Returns true if the blob of this hash is here, so that reading it does not wait for the object store.
    pub fn is_here(&self, hash: &BlobHash) -> bool {
        self.files.is_here(hash)
    }

    /// Reads the blob of this hash and of `size` recorded bytes, and checks both; `None` if there is none.
    /// Waits for the object store if only that has the blob.
    pub fn get(&self, hash: &BlobHash, size: u64) -> Result<Option<Vec<u8>>> {
        self.files.read(hash, size)
    }

    /// Returns the path of the blob with this hash, whether it exists or not.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        self.files.path(hash)
    }

    /// Returns the numbers of blobs by location; `None` without an object store.
    pub fn standing(&self) -> Option<Standing> {
        self.files.standing()
    }

    /// Does one round of work for the object store: sends some missing blobs, removes some local ones beyond
    /// the cache limit. Returns true if there is more to do.
    pub fn turn(&self) -> Result<bool> {
        self.files.turn()
    }
}

/// Stores blobs and protects them from sweeps until it is dropped, which must be after the events that name
/// them are durable.
#[derive(Debug)]
pub struct BlobWriteLease {
    files: Arc<Files>,
    lease: PinGuard,
    /// Blobs that did not exist before.
    made: Vec<BlobHash>,
    /// All blobs stored under the lease.
    put: Vec<BlobHash>,
}

impl BlobWriteLease {
    /// Stores `bytes` under their hash; durable on return.
    pub fn put(&mut self, bytes: &[u8]) -> Result<BlobHash> {
        let hash = hash(bytes);
        self.lease.pin(hash);
        if self.files.put(&hash, bytes)? {
            self.made.push(hash);
        }
        self.put.push(hash);
        Ok(hash)
    }

    /// Sends the stored blobs to the object store before events name them; waits for a limited time.
    pub fn send(&self) {
        self.files.send(&self.lease, &self.put);
    }

    /// Removes blobs that this lease alone stored, because no event will name them.
    pub fn discard(self) -> Result<()> {
        self.made.iter().try_for_each(|hash| self.files.take_back(&self.lease, hash))
    }
}

/// Sweep in progress.
#[derive(Debug)]
pub struct BlobSweep {
    files: Arc<Files>,
    sweeping: SweepGuard,
}

impl BlobSweep {
    /// Removes every blob for which `named` is false, except those stored under a lease since the sweep
    /// began; calls `pace` after each directory.
    pub fn finish(
        self,
        named: impl Fn(&BlobHash) -> bool,
        pace: impl FnMut(),
    ) -> Result<SweepStats> {
        self.files.sweep(&self.sweeping, named, pace)
    }
}

pub(crate) fn hash(bytes: &[u8]) -> BlobHash {
    BlobHash::from_bytes(Sha256::digest(bytes).into())
}
