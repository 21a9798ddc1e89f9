//! Corpora of the fuzz targets, as they are and broken in every way, for a stable compiler. Tests of several crates use
//! this file.

use std::path::Path;

use proptest::{collection::vec, prelude::*, sample::Index};

/// The corpus of `target`, in an order.
pub fn corpus(target: &str) -> Vec<Vec<u8>> {
    let folders = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors();
    let mut corpora = folders.map(|folder| folder.join("fuzz/corpus"));
    let dir = corpora.find(|corpora| corpora.is_dir()).expect("in the repository").join(target);
    let files =
        std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    let read = |file: std::io::Result<std::fs::DirEntry>| std::fs::read(file?.path());
    let mut found: Vec<Vec<u8>> = files.map(|file| read(file).expect("readable")).collect();
    found.sort();
    assert!(!found.is_empty(), "{}: no corpus", dir.display());
    found
}

/// Places and what happens there.
pub fn breaks() -> impl Strategy<Value = Vec<(Index, u8, u8)>> {
    vec((any::<Index>(), 0_u8..4, any::<u8>()), 1..12)
}

/// Bytes with a byte set, inserted or removed, or the end cut off, at each of these places.
pub fn broken(whole: &[u8], breaks: &[(Index, u8, u8)]) -> Vec<u8> {
    let mut bytes = whole.to_vec();
    for (at, how, byte) in breaks {
        if bytes.is_empty() {
            break;
        }
        let at = at.index(bytes.len());
        match how {
            0 => bytes[at] = *byte,
            1 => bytes.insert(at, *byte),
            2 => drop(bytes.remove(at)),
            _ => bytes.truncate(at),
        }
    }
    bytes
}
