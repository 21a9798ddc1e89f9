//! Content-addressed files: written aside, synced, renamed to their SHA-256, directory synced.
//!
//! What `put` returned survives a power cut, so an event that names it may follow. What `get`
//! returns has the hash that was asked for. Nothing is ever removed here.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use media::BlobHash;
use sha2::{Digest, Sha256};

use crate::{
    Result, TimelineError,
    disk::{create_dir_durably, open_dir_durably, sync_dir},
};

const TEMPORARY_SUFFIX: &str = ".tmp";

/// Content-addressed files in one directory; clones share it.
#[derive(Clone, Debug)]
pub struct BlobStore {
    dir: PathBuf,
}

impl BlobStore {
    /// Opens the store in `dir`, created when there is none, and removes unfinished writes.
    pub fn open(dir: &Path) -> Result<BlobStore> {
        open_dir_durably(dir).map_err(TimelineError::io("create the blob directory", dir))?;
        remove_temporary(dir)?;
        Ok(BlobStore { dir: dir.to_owned() })
    }

    /// The store in `dir` as it is, for readers: creates and removes nothing.
    pub fn at(dir: &Path) -> BlobStore {
        BlobStore { dir: dir.to_owned() }
    }

    /// Stores `bytes` under their hash; durable on return.
    pub fn put(&self, bytes: &[u8]) -> Result<BlobHash> {
        let hash = hash(bytes);
        let path = self.path(&hash);
        let shard = self.shard(&hash);
        create_dir_durably(&shard).map_err(TimelineError::io("create a blob directory", &shard))?;
        if is_intact(&path, bytes)? {
            // Whoever wrote it may not have synced its name yet.
            sync_dir(&shard).map_err(TimelineError::io("sync a blob directory", &shard))?;
            return Ok(hash);
        }
        // Written at the top, so that opening finds what was left behind in one place.
        let (temporary, mut file) = Temporary::create(&self.dir)?;
        file.write_all(bytes).map_err(TimelineError::io("write a blob", temporary.path()))?;
        temporary.publish(&file, &path)?;
        Ok(hash)
    }

    /// The bytes with this hash, checked against it; `None` when there are none.
    pub fn get(&self, hash: &BlobHash) -> Result<Option<Vec<u8>>> {
        let path = self.path(hash);
        let bytes = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            read => read.map_err(TimelineError::io("read a blob", &path))?,
        };
        if self::hash(&bytes) == *hash {
            return Ok(Some(bytes));
        }
        let what = "the blob does not match its name";
        Err(TimelineError::Damaged { file: path, offset: 0, what })
    }

    /// The stored blobs for which `referenced` does not hold: their event never followed.
    pub fn orphans(&self, referenced: impl Fn(&BlobHash) -> bool) -> Result<Vec<BlobHash>> {
        let mut orphans = Vec::new();
        for shard in list(&self.dir)? {
            if !shard.is_dir() {
                continue;
            }
            let names = list(&shard)?;
            let hashes = names.iter().filter_map(|path| path.file_name()?.to_str()?.parse().ok());
            orphans.extend(hashes.filter(|hash| !referenced(hash)));
        }
        orphans.sort_unstable();
        Ok(orphans)
    }

    /// Where the blob with this hash is or would be.
    pub fn path(&self, hash: &BlobHash) -> PathBuf {
        self.shard(hash).join(hash.to_string())
    }

    /// Blobs are spread over 256 directories by the first byte of their hash.
    fn shard(&self, hash: &BlobHash) -> PathBuf {
        self.dir.join(format!("{:02x}", hash.as_bytes()[0]))
    }
}

pub(crate) fn hash(bytes: &[u8]) -> BlobHash {
    BlobHash::from_bytes(Sha256::digest(bytes).into())
}

fn is_intact(path: &Path, bytes: &[u8]) -> Result<bool> {
    match fs::read(path) {
        Ok(stored) => Ok(stored == bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(source) => {
            Err(TimelineError::Io { what: "read a blob", path: path.to_owned(), source })
        }
    }
}

fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(TimelineError::io("list a directory", dir))
}

/// Removes what writes that never finished left in `dir`.
pub(crate) fn remove_temporary(dir: &Path) -> Result<()> {
    for path in list(dir)? {
        let name = path.file_name().and_then(|name| name.to_str());
        if name.is_some_and(|name| name.ends_with(TEMPORARY_SUFFIX)) {
            fs::remove_file(&path)
                .map_err(TimelineError::io("remove an unfinished file", &path))?;
        }
    }
    Ok(())
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
