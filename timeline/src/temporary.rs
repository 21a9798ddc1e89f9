//! Files that are written under a temporary name, synced, and then renamed.

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use crate::{Result, TimelineError, storage::sync_dir};

const TEMPORARY_SUFFIX: &str = ".tmp";

pub(crate) fn list(dir: &Path) -> Result<Vec<PathBuf>> {
    let paths = |entries: fs::ReadDir| entries.map(|entry| Ok(entry?.path())).collect();
    fs::read_dir(dir).and_then(paths).map_err(TimelineError::io("list a directory", dir))
}

/// Removes the leftovers of unfinished writes in `dir`; returns their number.
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

/// File that is being written; removed unless it is published.
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
