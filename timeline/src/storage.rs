//! Interface between the journal and a disk: named files that are written and synced.
//!
//! `DirStorage` is a directory. Tests use a simulated disk that loses unsynced sectors, under the same
//! journal code. Nothing is durable before a sync returns.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use crate::{
    Result, TimelineError,
    held::{self, HeldDir, Links},
};

/// Extension of a file that is being written.
const TEMPORARY: &str = "tmp";

/// Flat set of named files.
pub trait Storage: Send + Sync {
    /// Returns the names of all files.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Creates an empty file, replacing one of that name.
    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Opens an existing file.
    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>>;
    /// Renames a file.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;
    /// Removes a file.
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_names(&self) -> io::Result<()>;
    /// Returns the path of a file, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// File of a [`Storage`].
pub trait StorageFile: Send + Sync {
    /// Returns the size in bytes.
    fn size(&self) -> io::Result<u64>;
    /// Truncates the file, or extends it with zeros.
    fn set_size(&self, size: u64) -> io::Result<()>;
    /// Fills `into` from `offset`; an error if the file ends before.
    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()>;
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()>;
    /// Makes written bytes and the size durable.
    fn sync(&self) -> io::Result<()>;
    /// Returns true if the file is still the one at `path`; always, on a disk without paths.
    fn is_at(&self, _path: &Path) -> io::Result<bool> {
        Ok(true)
    }
}

/// Directory of the real file system.
pub struct DirStorage {
    dir: HeldDir,
    writable: bool,
}

impl DirStorage {
    /// Opens `dir` for writing, creating it durably if needed.
    pub fn create(dir: &Path) -> io::Result<DirStorage> {
        Ok(DirStorage { dir: open_dir_durably(dir)?, writable: true })
    }

    /// Opens `dir` for reading only.
    pub fn read_only(dir: &Path) -> DirStorage {
        DirStorage { dir: HeldDir::new(dir), writable: false }
    }
}

impl Storage for DirStorage {
    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(self.dir.path())? {
            // No file of ours has a name that is not UTF-8.
            if let Ok(name) = entry?.file_name().into_string() {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let file = File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(self.path(name))?;
        Ok(Arc::new(file))
    }

    fn open(&self, name: &str) -> io::Result<Arc<dyn StorageFile>> {
        let name = Path::new(name);
        let file = if self.writable {
            self.dir.file_to_change(name)
        } else {
            self.dir.file(name, Links::Never)
        };
        Ok(Arc::new(file?))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path(from), self.path(to))
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn sync_names(&self) -> io::Result<()> {
        sync_dir(self.dir.path())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl StorageFile for File {
    fn size(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len())
    }

    fn set_size(&self, size: u64) -> io::Result<()> {
        self.set_len(size)
    }

    fn read_exact_at(&self, into: &mut [u8], offset: u64) -> io::Result<()> {
        FileExt::read_exact_at(self, into, offset)
    }

    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        FileExt::write_all_at(self, bytes, offset)
    }

    fn sync(&self) -> io::Result<()> {
        self.sync_data()
    }

    fn is_at(&self, path: &Path) -> io::Result<bool> {
        held::is_at(self, path)
    }
}

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Opens `dir`, creating it if needed. On return its name and those in it are durable, even if a process died
/// before it synced them.
fn open_dir_durably(dir: &Path) -> io::Result<HeldDir> {
    create_dir_durably(dir)?;
    sync_dir(parent(dir))?;
    sync_dir(dir)?;
    HeldDir::open(dir)
}

/// Opens `dir`, as [`open_dir_durably`], for files that are written under a temporary name; removes those
/// left unfinished, and returns their number.
pub(crate) fn open_dir(dir: &Path) -> Result<(HeldDir, u64)> {
    let held = open_dir_durably(dir).map_err(TimelineError::io("open a directory", dir))?;
    let mut unfinished = list_dir(dir)?;
    unfinished.retain(|path| path.extension().is_some_and(|suffix| suffix == TEMPORARY));
    for path in &unfinished {
        fs::remove_file(path).map_err(TimelineError::io("remove an unfinished file", path))?;
    }
    Ok((held, unfinished.len() as u64))
}

pub(crate) fn list_dir(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(TimelineError::io("list a directory", dir))
}

/// Creates `dir` and its missing ancestors, each name durable in its parent.
pub(crate) fn create_dir_durably(dir: &Path) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    let parent = parent(dir);
    create_dir_durably(parent)?;
    match fs::create_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    sync_dir(parent)
}

fn parent(dir: &Path) -> &Path {
    match dir.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    }
}

/// File that is written under a temporary name; removed unless it is published.
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
        let name = format!("{:032x}.{TEMPORARY}", u128::from_le_bytes(random));
        let path = dir.join(name);
        let file = File::options().write(true).create_new(true).open(&path);
        let file = file.map_err(TimelineError::io("create a file", &path))?;
        Ok((Temporary { path, published: false }, file))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes this file, open as `file`, durable under the name `target`.
    pub(crate) fn publish(mut self, file: &File, target: &Path) -> Result<()> {
        // Syncs the bytes before the rename: a name must never refer to incomplete content.
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
            // Best effort: the next opening of the store removes a leftover.
            drop(fs::remove_file(&self.path));
        }
    }
}
