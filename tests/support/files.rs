//! Files of a folder.

use std::path::{Path, PathBuf};

pub fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("there").flatten();
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()) {
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

/// The files below `dir` by their paths in it, with their bytes.
pub fn contents(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("readable");
        (path.strip_prefix(dir).expect("below it").to_owned(), bytes)
    };
    files(dir).into_iter().map(read).collect()
}
