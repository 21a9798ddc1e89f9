//! Directory of content-addressed files, sharded or flat, with or without an object store.
//!
//! A file is durable when the call that stores it returns, and is read by its hash, wherever it is.

mod backed;
mod cache;
mod settle;

use std::{
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
    sync::Arc,
};

use media::{BlobHash, ErrorKind};

use crate::{
    Result, TimelineError, blob,
    error::unread,
    held::{FileError, HeldDir, Links, Size},
    pins::{PinGuard, PinTable, SweepGuard, SweepStats},
    storage::{Temporary, create_dir_durably, list_dir, open_dir, sync_dir},
};
use backed::Backed;
pub use backed::{Backing, Standing};

const NOTE_BYTES_MAX: u64 = 4096;
/// Suffix of the marker of a file that the object store does not have yet.
const UNSENT: &str = "unsent";
/// Suffix of the marker of a file that the object store has and that may be absent here.
const AWAY: &str = "away";
/// Suffix of the marker of a file that is removed here and possibly still in the object store.
const GONE: &str = "gone";

type Read<T> = std::result::Result<T, FileError>;

/// Files of one directory, shared by all holders.
#[derive(Debug)]
pub(crate) struct Files {
    dir: HeldDir,
    /// Number of unfinished files that opening removed.
    pub(crate) unfinished: u64,
    layout: Layout,
    pins: Arc<PinTable>,
    backed: Option<Backed>,
}

/// Layout of the files in their directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// All in one directory.
    Flat,
    /// In 256 subdirectories, by the first byte of their hashes.
    Sharded,
}

impl Files {
    /// Opens or creates `dir`, and determines which of its files `backing` has.
    pub(crate) fn open(dir: &Path, layout: Layout, backing: Option<Backing>) -> Result<Files> {
        let (dir, unfinished) = open_dir(dir)?;
        let mut files = Files { dir, unfinished, layout, pins: Arc::default(), backed: None };
        files.backed = files.settle(backing)?;
        Ok(files)
    }

    /// Returns the files in `dir` for readers: creates and removes nothing.
    pub(crate) fn at(dir: &Path, layout: Layout) -> Files {
        let dir = HeldDir::new(dir);
        Files { dir, unfinished: 0, layout, pins: Arc::default(), backed: None }
    }

    pub(crate) fn dir(&self) -> &HeldDir {
        &self.dir
    }

    pub(crate) fn lease(&self) -> PinGuard {
        self.pins.lease()
    }

    /// Begins a sweep, before the caller reads the names in events; `None` while another runs.
    pub(crate) fn begin_sweep(&self) -> Option<SweepGuard> {
        self.pins.sweep()
    }

    /// Returns the path of the file of `hash`, whether it exists or not.
    pub(crate) fn path(&self, hash: &BlobHash) -> PathBuf {
        self.dir.path().join(self.name(hash))
    }

    fn name(&self, hash: &BlobHash) -> PathBuf {
        match self.layout {
            Layout::Flat => hash.to_string().into(),
            Layout::Sharded => format!("{:02x}/{hash}", hash.as_bytes()[0]).into(),
        }
    }

    fn folder(&self, hash: &BlobHash) -> PathBuf {
        let mut folder = self.path(hash);
        folder.pop();
        folder
    }

    fn folders(&self) -> Result<Vec<PathBuf>> {
        Ok(match self.layout {
            Layout::Flat => vec![self.dir.path().to_owned()],
            Layout::Sharded => {
                let mut shards = list_dir(self.dir.path())?;
                shards.retain(|path| path.is_dir());
                shards
            }
        })
    }

    /// Returns true if the file of `hash` exists here, even damaged, or in the object store.
    pub(crate) fn has(&self, hash: &BlobHash) -> bool {
        self.is_here(hash) || self.is_away(hash)
    }

    /// Opens the file of `hash`, of at most `size_max` bytes; fetches it if only the object store has it.
    pub(crate) fn open_file(&self, hash: &BlobHash, size_max: u64) -> Result<Read<File>> {
        self.here(hash, size_max, || self.dir.file(&self.name(hash), Links::Never))
    }

    /// Reads the file of `hash` and of `size` recorded bytes, and checks both; `None` if there is none.
    /// Fetches it if it is missing here or damaged.
    pub(crate) fn read(&self, hash: &BlobHash, size: u64) -> Result<Option<Vec<u8>>> {
        let read = || self.dir.read(&self.name(hash), Size::Recorded(size));
        let found = self.checked(hash, self.here(hash, size, read)?);
        let is_damaged = found.as_ref().is_err_and(|error| error.kind() == ErrorKind::DataLoss);
        if !is_damaged || !self.is_sent(hash) {
            return found;
        }
        let mut lease = self.lease();
        lease.pin(*hash);
        match self.bring(&lease, hash, size) {
            Ok(true) => self.checked(hash, read()),
            // The local damage is the error to report.
            _ => found,
        }
    }

    fn checked(&self, hash: &BlobHash, read: Read<Vec<u8>>) -> Result<Option<Vec<u8>>> {
        let path = self.path(hash);
        let bytes = match read {
            Err(FileError::NotFound) => return Ok(None),
            read => read.map_err(unread("read a file", &path))?,
        };
        if blob::hash(&bytes) == *hash {
            return Ok(Some(bytes));
        }
        let what = "the file does not match its name";
        Err(TimelineError::Damaged { file: path, offset: 0, what })
    }

    fn here<T>(
        &self,
        hash: &BlobHash,
        size_max: u64,
        read: impl Fn() -> Read<T>,
    ) -> Result<Read<T>> {
        let found = read();
        if !matches!(found, Err(FileError::NotFound)) || !self.is_away(hash) {
            return Ok(found);
        }
        // Pinned until it is read: no sweep removes the file and no eviction either.
        let mut lease = self.lease();
        lease.pin(*hash);
        if self.bring(&lease, hash, size_max)? { Ok(read()) } else { Ok(found) }
    }

    pub(crate) fn is_here(&self, hash: &BlobHash) -> bool {
        self.dir.file(&self.name(hash), Links::Never).is_ok()
    }

    /// Stores `bytes` under their hash; returns true if they were not here yet.
    pub(crate) fn put(&self, hash: &BlobHash, bytes: &[u8]) -> Result<bool> {
        if self.is_intact(hash, bytes)? {
            if self.backed.is_some() {
                // A power cut may have kept the marker of a removal that did not come about.
                self.unmark(hash, GONE)?;
            }
            // Its writer may not have synced the name yet.
            self.sync_folder(&self.folder(hash))?;
            return Ok(false);
        }
        // Written in the top directory, so that opening finds leftovers in one place.
        let (temporary, mut file) = Temporary::create(self.dir.path())?;
        file.write_all(bytes).map_err(TimelineError::io("write a file", temporary.path()))?;
        self.publish(temporary, &file, hash, bytes.len() as u64)?;
        Ok(true)
    }

    /// Makes `file`, which `temporary` names and which has `bytes` bytes, durable as the file of `hash`.
    pub(crate) fn publish(
        &self,
        temporary: Temporary,
        file: &File,
        hash: &BlobHash,
        bytes: u64,
    ) -> Result<()> {
        let folder = self.folder(hash);
        create_dir_durably(&folder).map_err(TimelineError::io("create a directory", &folder))?;
        let path = self.path(hash);
        let Some(backed) = &self.backed else { return temporary.publish(file, &path) };
        // Before the file: the sync of its name makes both durable.
        self.mark(hash, UNSENT)?;
        temporary.publish(file, &path)?;
        backed.enqueue(*hash, bytes);
        // The file exists again, so the marker of its removal is obsolete.
        self.unmark(hash, GONE)
    }

    /// Returns true if these bytes are here already; a file with other bytes is to be overwritten.
    fn is_intact(&self, hash: &BlobHash, bytes: &[u8]) -> Result<bool> {
        match self.dir.read(&self.name(hash), Size::Recorded(bytes.len() as u64)) {
            Ok(stored) => Ok(stored == bytes),
            Err(FileError::Io(source)) => {
                Err(TimelineError::Io { what: "read a file", path: self.path(hash), source })
            }
            Err(_) => Ok(false),
        }
    }

    /// Removes the file of `hash`, stored under `lease`, unless others pinned it; if the object store has it,
    /// the next sweep removes it there.
    pub(crate) fn take_back(&self, lease: &PinGuard, hash: &BlobHash) -> Result<()> {
        if self.backed.is_some() {
            self.mark(hash, GONE)?;
            self.sync_folder(&self.folder(hash))?;
        }
        let path = self.path(hash);
        let forget = || self.backed.iter().for_each(|backed| self.forget(backed, hash));
        let removed = lease.remove_own(hash, &path, forget);
        let removed = removed.map_err(TimelineError::io("remove a file", &path))?;
        let Some(backed) = &self.backed else { return Ok(()) };
        backed.fewer(removed.unwrap_or_default());
        // A file that others hold is not to be removed.
        if removed.is_none() && self.has(hash) { self.unmark(hash, GONE) } else { Ok(()) }
    }

    /// Removes every file for which `named` is false, except those pinned since the sweep began; calls `pace`
    /// after each directory. Files left in the object store are removed by a later sweep.
    pub(crate) fn sweep(
        &self,
        sweeping: &SweepGuard,
        named: impl Fn(&BlobHash) -> bool,
        mut pace: impl FnMut(),
    ) -> Result<SweepStats> {
        let mut swept = SweepStats::default();
        for folder in self.folders()? {
            let unnamed = self.unnamed(&folder, &named)?;
            if !unnamed.is_empty() {
                self.sweep_folder(&folder, sweeping, &unnamed, &mut swept)?;
            }
            pace();
        }
        Ok(swept)
    }

    /// Removes `hashes`, all of `folder`, except those pinned since the sweep began: first here, so that they are
    /// not read, then in the object store, if there is one, unless that has failed before.
    fn sweep_folder(
        &self,
        folder: &Path,
        sweeping: &SweepGuard,
        hashes: &[BlobHash],
        swept: &mut SweepStats,
    ) -> Result<()> {
        let Some(backed) = &self.backed else {
            let removed = self.remove_here(sweeping, hashes, swept)?;
            sweeping.end_removing(&removed);
            return Ok(());
        };
        // Before the local removal: afterwards only the marker tells that the store has the file.
        hashes.iter().try_for_each(|hash| self.mark(hash, GONE))?;
        self.sync_folder(folder)?;
        let before = swept.bytes;
        let removing = self.remove_here(sweeping, hashes, swept);
        backed.fewer(swept.bytes - before);
        let removing = removing?;
        if swept.left.is_none() && !removing.is_empty() {
            swept.left = backed.backing.remote.remove(&removing).err();
        }
        if swept.left.is_none() {
            removing.iter().try_for_each(|hash| self.unmark(hash, GONE))?;
        }
        sweeping.end_removing(&removing);
        Ok(())
    }

    fn remove_here(
        &self,
        sweeping: &SweepGuard,
        hashes: &[BlobHash],
        swept: &mut SweepStats,
    ) -> Result<Vec<BlobHash>> {
        let mut removing = Vec::with_capacity(hashes.len());
        for hash in hashes {
            let path = self.path(hash);
            let io = TimelineError::io("remove a file that no event names", &path);
            // If the file is stored again from here on, it is queued again.
            let forget = || self.backed.iter().for_each(|backed| self.forget(backed, hash));
            let is_gone = sweeping.begin_removing(hash, &path, swept, forget).map_err(io)?;
            removing.extend(is_gone.then_some(*hash));
            if self.backed.is_some() && (is_gone || self.has(hash)) {
                self.unmark(hash, if is_gone { AWAY } else { GONE })?;
            }
        }
        Ok(removing)
    }

    fn unnamed(&self, folder: &Path, named: impl Fn(&BlobHash) -> bool) -> Result<Vec<BlobHash>> {
        let mut unnamed: Vec<BlobHash> = list_dir(folder)?
            .iter()
            .filter_map(|path| Some(of_name(path.file_name()?.to_str()?)?.0))
            .filter(|hash| !named(hash))
            .collect();
        // A file and its markers count once.
        unnamed.sort_unstable();
        unnamed.dedup();
        Ok(unnamed)
    }

    fn is_away(&self, hash: &BlobHash) -> bool {
        self.dir.file(&self.name(hash).with_extension(AWAY), Links::Never).is_ok()
    }

    /// Makes a marker; the caller syncs its name.
    fn mark(&self, hash: &BlobHash, mark: &str) -> Result<()> {
        let path = self.path(hash).with_extension(mark);
        let made = File::options().create(true).append(true).open(&path);
        made.map(drop).map_err(TimelineError::io("mark a file", &path))
    }

    fn unmark(&self, hash: &BlobHash, mark: &str) -> Result<()> {
        let path = self.path(hash).with_extension(mark);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                Err(TimelineError::io("remove the mark of a file", &path)(error))
            }
            _ => Ok(()),
        }
    }

    /// Reads the note `name` of the directory, a line of text; `None` if there is none.
    pub(crate) fn note(&self, name: &str) -> Result<Option<String>> {
        match self.dir.read(Path::new(name), Size::AtMost(NOTE_BYTES_MAX)) {
            Err(FileError::NotFound) => Ok(None),
            read => {
                let text = read.map_err(unread("read a note", self.dir.path().join(name)))?;
                Ok(Some(String::from_utf8_lossy(&text).trim_end().to_owned()))
            }
        }
    }

    /// Writes the note `name` of the directory durably.
    pub(crate) fn write_note(&self, name: &str, text: &str) -> Result<()> {
        let (temporary, mut file) = Temporary::create(self.dir.path())?;
        writeln!(file, "{text}").map_err(TimelineError::io("write a note", temporary.path()))?;
        temporary.publish(&file, &self.dir.path().join(name))
    }

    fn sync_folder(&self, folder: &Path) -> Result<()> {
        sync_dir(folder).map_err(TimelineError::io("sync a directory", folder))
    }

    /// Calls `visit` with every file and every marker.
    fn walk(
        &self,
        mut visit: impl FnMut(BlobHash, Option<&'static str>, &fs::DirEntry),
    ) -> Result<()> {
        for folder in self.folders()? {
            let io = |error| TimelineError::io("list a directory", &folder)(error);
            for entry in fs::read_dir(&folder).map_err(io)? {
                let entry = entry.map_err(io)?;
                if let Some((hash, mark)) = entry.file_name().to_str().and_then(of_name) {
                    visit(hash, mark, &entry);
                }
            }
        }
        Ok(())
    }
}

/// Parses the hash and the marker from a file name.
fn of_name(name: &str) -> Option<(BlobHash, Option<&'static str>)> {
    let (stem, mark) = match name.split_once('.') {
        None => (name, None),
        Some((stem, UNSENT)) => (stem, Some(UNSENT)),
        Some((stem, AWAY)) => (stem, Some(AWAY)),
        Some((stem, GONE)) => (stem, Some(GONE)),
        Some(_) => return None,
    };
    Some((stem.parse().ok()?, mark))
}
