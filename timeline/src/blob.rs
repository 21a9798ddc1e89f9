//! Content-addressed files: written aside, synced, renamed to their SHA-256, directory synced.
//!
//! What `put` returned survives a power cut, so an event that names it may follow. What `get`
//! returns has the hash that was asked for. A sweep removes what the caller says is not named
//! by any event; what a lease stored stays as long as the lease.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{BlobHash, WallTime};
use sha2::{Digest, Sha256};

use crate::{
    Result, TimelineError,
    disk::{create_dir_durably, open_dir_durably, sync_dir},
    error::unread,
    held::{FileError, HeldDir, Links, Size},
    pins::{Lease, Pins, Sweeping, Swept},
};

const TEMPORARY_SUFFIX: &str = ".tmp";
/// Holds the time before which blobs of events may have been removed, in epoch milliseconds.
const REMOVED_BEFORE: &str = "removed-before";
const MARK_BYTES_MAX: u64 = 64;

/// Content-addressed files in one directory; clones share it.
#[derive(Clone, Debug)]
pub struct BlobStore {
    dir: Arc<HeldDir>,
    pins: Arc<Pins>,
    unfinished: u64,
}

impl BlobStore {
    /// Opens the store in `dir`, created when there is none, and removes unfinished writes.
    pub fn open(dir: &Path) -> Result<BlobStore> {
        open_dir_durably(dir).map_err(TimelineError::io("create the blob directory", dir))?;
        let unfinished = remove_temporary(dir)?;
        let held = HeldDir::open(dir).map_err(TimelineError::io("open the blob directory", dir))?;
        Ok(BlobStore { dir: Arc::new(held), pins: Arc::default(), unfinished })
    }

    /// The store in `dir` as it is, for readers: creates and removes nothing.
    pub fn at(dir: &Path) -> BlobStore {
        let dir = Arc::new(HeldDir::new(dir));
        BlobStore { dir, pins: Arc::default(), unfinished: 0 }
    }

    /// Unfinished writes that opening removed.
    pub fn unfinished(&self) -> u64 {
        self.unfinished
    }

    /// Stores blobs for events that follow.
    pub fn lease(&self) -> BlobLease {
        BlobLease { blobs: self.clone(), lease: self.pins.lease(), made: Vec::new() }
    }

    /// Begins a sweep, before its caller reads what events name; `None` while there is one.
    pub fn sweep(&self) -> Option<BlobSweep> {
        Some(BlobSweep { blobs: self.clone(), sweeping: self.pins.sweep()? })
    }

    /// The time before which blobs that events name may have been removed.
    pub fn removed_before(&self) -> Result<Option<WallTime>> {
        let path = self.dir.path().join(REMOVED_BEFORE);
        let text = match self.dir.read(Path::new(REMOVED_BEFORE), Size::AtMost(MARK_BYTES_MAX)) {
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
        let (temporary, mut file) = Temporary::create(self.dir.path())?;
        let io = TimelineError::io("write a blob store's mark", temporary.path());
        writeln!(file, "{}", at.epoch_ms).map_err(io)?;
        temporary.publish(&file, &self.dir.path().join(REMOVED_BEFORE))
    }

    /// Stores `bytes` under `hash`, which is theirs; whether they were not there yet.
    fn put(&self, hash: BlobHash, bytes: &[u8]) -> Result<bool> {
        let path = self.path(&hash);
        let shard = self.shard(&hash);
        create_dir_durably(&shard).map_err(TimelineError::io("create a blob directory", &shard))?;
        if self.is_intact(&hash, bytes)? {
            // Its writer may not have synced its name yet.
            sync_dir(&shard).map_err(TimelineError::io("sync a blob directory", &shard))?;
            return Ok(false);
        }
        // Written at the top, so that opening finds what was left behind in one place.
        let (temporary, mut file) = Temporary::create(self.dir.path())?;
        file.write_all(bytes).map_err(TimelineError::io("write a blob", temporary.path()))?;
        temporary.publish(&file, &path)?;
        Ok(true)
    }

    /// Returns true where these bytes are stored already; a file of other bytes is written over.
    fn is_intact(&self, hash: &BlobHash, bytes: &[u8]) -> Result<bool> {
        match self.dir.read(&name(hash), Size::Recorded(bytes.len() as u64)) {
            Ok(stored) => Ok(stored == bytes),
            Err(FileError::Io(source)) => {
                Err(TimelineError::Io { what: "read a blob", path: self.path(hash), source })
            }
            Err(_) => Ok(false),
        }
    }

    /// Returns true where a file of this hash is there, whatever is in it.
    pub fn has(&self, hash: &BlobHash) -> bool {
        self.dir.file(&name(hash), Links::Never).is_ok()
    }

    /// The bytes with this hash, of which `size` are recorded, checked against both; `None` when
    /// there are none.
    pub fn get(&self, hash: &BlobHash, size: u64) -> Result<Option<Vec<u8>>> {
        let path = self.path(hash);
        let bytes = match self.dir.read(&name(hash), Size::Recorded(size)) {
            Err(FileError::NotFound) => return Ok(None),
            read => read.map_err(unread("read a blob", &path))?,
        };
        if self::hash(&bytes) == *hash {
            return Ok(Some(bytes));
        }
        let what = "the blob does not match its name";
        Err(TimelineError::Damaged { file: path, offset: 0, what })
    }

    /// Returns the path that the blob with this hash has or would have.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        self.dir.path().join(name(hash))
    }

    /// Blobs are spread over 256 directories by the first byte of their hash.
    fn shard(&self, hash: &BlobHash) -> PathBuf {
        self.dir.path().join(shard_name(hash))
    }
}

fn shard_name(hash: &BlobHash) -> String {
    format!("{:02x}", hash.as_bytes()[0])
}

/// The path of a blob in its store.
fn name(hash: &BlobHash) -> PathBuf {
    Path::new(&shard_name(hash)).join(hash.to_string())
}

/// Stores blobs and keeps them from being swept, until it is dropped: after the events that
/// name them are durable.
#[derive(Debug)]
pub struct BlobLease {
    blobs: BlobStore,
    lease: Lease,
    /// Those that were not there before.
    made: Vec<BlobHash>,
}

impl BlobLease {
    /// Stores `bytes` under their hash; durable on return.
    pub fn put(&mut self, bytes: &[u8]) -> Result<BlobHash> {
        let hash = hash(bytes);
        self.lease.pin(hash);
        if self.blobs.put(hash, bytes)? {
            self.made.push(hash);
        }
        Ok(hash)
    }

    /// Keeps the blob of this hash, which is stored; tells whether it is.
    pub fn keep(&mut self, hash: BlobHash) -> bool {
        self.lease.pin(hash);
        self.blobs.has(&hash)
    }

    /// Takes back what it stored and nobody else did: no event will name it.
    pub fn discard(self) -> Result<()> {
        for hash in &self.made {
            let path = self.blobs.path(hash);
            self.lease
                .remove_own(hash, &path)
                .map_err(TimelineError::io("remove a blob", &path))?;
        }
        Ok(())
    }
}

/// A sweep under way.
#[derive(Debug)]
pub struct BlobSweep {
    blobs: BlobStore,
    sweeping: Sweeping,
}

impl BlobSweep {
    /// Removes every blob for which `named` does not hold, but those that a lease stored since
    /// the sweep began; calls `pace` after each directory of them.
    pub fn finish(
        self,
        named: impl Fn(&BlobHash) -> bool,
        mut pace: impl FnMut(),
    ) -> Result<Swept> {
        let mut swept = Swept::default();
        for shard in list(self.blobs.dir.path())? {
            if shard.is_dir() {
                sweep_dir(&self.sweeping, &shard, &named, &mut swept)?;
                pace();
            }
        }
        Ok(swept)
    }
}

/// Removes the files in `dir` that are called by a hash for which `named` does not hold.
pub(crate) fn sweep_dir(
    sweeping: &Sweeping,
    dir: &Path,
    named: impl Fn(&BlobHash) -> bool,
    swept: &mut Swept,
) -> Result<()> {
    for path in list(dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(hash) = name.and_then(|name| name.parse().ok()).filter(|hash| !named(hash)) {
            let io = TimelineError::io("remove a file that no event names", &path);
            sweeping.remove(&hash, &path, swept).map_err(io)?;
        }
    }
    Ok(())
}

pub(crate) fn hash(bytes: &[u8]) -> BlobHash {
    BlobHash::from_bytes(Sha256::digest(bytes).into())
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(TimelineError::io("list a directory", dir))
}

/// Removes what writes that never finished left in `dir`; returns how many files.
pub(crate) fn remove_temporary(dir: &Path) -> Result<u64> {
    let mut removed = 0;
    for path in list(dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(TEMPORARY_SUFFIX)) {
            fs::remove_file(&path)
                .map_err(TimelineError::io("remove an unfinished file", &path))?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// A file that is being written; removed unless it is published.
pub(crate) struct Temporary {
    path: PathBuf,
    published: bool,
}

impl Temporary {
    pub(crate) fn create(dir: &Path) -> Result<(Temporary, File)> {
        let mut random = [0; 16];
        getrandom::fill(&mut random).map_err(|error| TimelineError::Io {
            what: "draw a random name",
            path: dir.to_owned(),
            source: io::Error::other(error),
        })?;
        let name = format!("{:032x}{TEMPORARY_SUFFIX}", u128::from_le_bytes(random));
        let path = dir.join(name);
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(TimelineError::io("create a file", &path))?;
        Ok((Temporary { path, published: false }, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes `file`, which is this one, durable under the name `target`.
    pub(crate) fn publish(mut self, file: &File, target: &Path) -> Result<()> {
        // The bytes before the name: a name must never stand for less than its content.
        file.sync_data().map_err(TimelineError::io("sync a file", &self.path))?;
        fs::rename(&self.path, target).map_err(TimelineError::io("name a file", target))?;
        self.published = true;
        let dir = target.parent().unwrap_or(Path::new("."));
        sync_dir(dir).map_err(TimelineError::io("sync a directory", dir))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.published {
            // Best effort: what stays is removed when the store is opened next.
            drop(fs::remove_file(&self.path));
        }
    }
}
