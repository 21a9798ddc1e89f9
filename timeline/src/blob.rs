//! Content-addressed files: written aside, synced, renamed to their SHA-256, directory synced.
//!
//! What `put` returned survives a power cut, so an event that names it may follow. What `get`
//! returns has the hash that was asked for. A sweep removes what the caller says is not named
//! by any event; what a lease stored stays as long as the lease.

use std::{
    io::Write,
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{BlobHash, WallTime};
use sha2::{Digest, Sha256};

use crate::{
    Result, TimelineError,
    error::unread,
    files::{Backing, Files, Layout, Standing},
    held::{FileError, HeldDir, Size},
    pins::{PinGuard, SweepGuard, SweepStats},
    storage::open_dir_durably,
    temporary::{Temporary, remove_temporary},
};

/// Holds the time before which blobs of events may have been removed, in epoch milliseconds.
const REMOVED_BEFORE: &str = "removed-before";
const MARK_BYTES_MAX: u64 = 64;

/// Content-addressed files in one directory; clones share it.
#[derive(Clone, Debug)]
pub struct BlobStore {
    files: Arc<Files>,
    unfinished: u64,
}

impl BlobStore {
    /// Opens the store in `dir`, created when there is none, and removes unfinished writes; `backing` has the files too.
    pub fn open(dir: &Path, backing: Option<Backing>) -> Result<BlobStore> {
        open_dir_durably(dir).map_err(TimelineError::io("create the blob directory", dir))?;
        let unfinished = remove_temporary(dir)?;
        let held = HeldDir::open(dir).map_err(TimelineError::io("open the blob directory", dir))?;
        let files = Arc::new(Files::open(held, Layout::Sharded, backing)?);
        Ok(BlobStore { files, unfinished })
    }

    /// The store in `dir` as it is, for readers: creates and removes nothing.
    pub fn at(dir: &Path) -> BlobStore {
        BlobStore { files: Arc::new(Files::at(dir, Layout::Sharded)), unfinished: 0 }
    }

    /// Unfinished writes that opening removed.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// Stores blobs for events that follow.
    pub fn lease(&self) -> BlobWriteLease {
        let (files, lease) = (Arc::clone(&self.files), self.files.lease());
        BlobWriteLease { files, lease, made: Vec::new(), put: Vec::new() }
    }

    /// Begins a sweep, before its caller reads what events name; `None` while there is one.
    pub fn sweep(&self) -> Option<BlobSweep> {
        let sweeping = self.files.begin_sweep()?;
        Some(BlobSweep { files: Arc::clone(&self.files), sweeping })
    }

    /// The time before which blobs that events name may have been removed.
    pub fn removed_before(&self) -> Result<Option<WallTime>> {
        let path = self.files.dir().path().join(REMOVED_BEFORE);
        let text =
            match self.files.dir().read(Path::new(REMOVED_BEFORE), Size::AtMost(MARK_BYTES_MAX)) {
                Err(FileError::NotFound) => return Ok(None),
                read => read.map_err(unread("read a blob store's mark", &path))?,
            };
        let what = "not a time in milliseconds";
        let epoch_ms = str::from_utf8(&text).ok().and_then(|text| text.trim_end().parse().ok());
        let epoch_ms = epoch_ms.ok_or(TimelineError::Damaged { file: path, offset: 0, what })?;
        Ok(Some(WallTime { epoch_ms }))
    }

    /// Remembers durably that blobs of events before `at` may be gone, before they go.
    pub fn remember_removed_before(&self, at: WallTime) -> Result<()> {
        let (temporary, mut file) = Temporary::create(self.files.dir().path())?;
        let io = TimelineError::io("write a blob store's mark", temporary.path());
        writeln!(file, "{}", at.epoch_ms).map_err(io)?;
        temporary.publish(&file, &self.files.dir().path().join(REMOVED_BEFORE))
    }

    /// Returns true where the blob of this hash is there, whatever is in it, or in the object store.
    pub fn has(&self, hash: &BlobHash) -> bool {
        self.files.has(hash)
    }

    /// Returns true where the blob of this hash is here, so that reading it waits for no object store.
    pub fn is_here(&self, hash: &BlobHash) -> bool {
        self.files.is_here(hash)
    }

    /// The bytes with this hash, of which `size` are recorded, checked against both; `None` when there are none.
    /// Waits for the object store where only that has them.
    pub fn get(&self, hash: &BlobHash, size: u64) -> Result<Option<Vec<u8>>> {
        self.files.read(hash, size)
    }

    /// Returns the path that the blob with this hash has or would have.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        self.files.path(hash)
    }

    /// Returns the numbers of blobs by place; `None` without an object store.
    pub fn standing(&self) -> Option<Standing> {
        self.files.standing()
    }

    /// One turn of the object store's work: sends some blobs that it lacks, removes some here that are more than stay.
    /// Returns true if there is more to do.
    pub fn turn(&self) -> Result<bool> {
        self.files.turn()
    }
}

/// Stores blobs and keeps them from being swept, until it is dropped: after the events that
/// name them are durable.
#[derive(Debug)]
pub struct BlobWriteLease {
    files: Arc<Files>,
    lease: PinGuard,
    /// Those that were not there before.
    made: Vec<BlobHash>,
    /// All of them.
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

    /// Has the object store take what was stored, before events name it; waits for that within a bound.
    pub fn send(&self) {
        self.files.send(&self.lease, &self.put);
    }

    /// Takes back what it stored and nobody else did: no event will name it.
    pub fn discard(self) -> Result<()> {
        self.made.iter().try_for_each(|hash| self.files.take_back(&self.lease, hash))
    }
}

/// A sweep under way.
#[derive(Debug)]
pub struct BlobSweep {
    files: Arc<Files>,
    sweeping: SweepGuard,
}

impl BlobSweep {
    /// Removes every blob for which `named` does not hold, but those that a lease stored since
    /// the sweep began; calls `pace` after each directory of them.
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
