//! Check of the ledger beside a log.

use std::{
    env, io,
    panic::{self, AssertUnwindSafe},
    path::Path,
};

use redb::{DatabaseError, StorageError};
use timeline::TimelineError;

use crate::{backup, error::CliError};

/// Size of redb's page cache, bytes.
const CACHE_BYTES: usize = 8 << 20;

/// Opens a copy of the ledger in `data_dir` as a start would, and checks every page in use by its checksum;
/// returns the damage. A ledger that was not closed may be repaired by that to its last commit but one.
pub fn check(data_dir: &Path) -> Result<Option<TimelineError>, CliError> {
    let file = data_dir.join("ledger");
    if !file.exists() {
        return Ok(None);
    }
    let scratch =
        tempfile::tempdir().map_err(|source| CliError::Write { path: env::temp_dir(), source })?;
    backup::copy_ledger(data_dir, scratch.path())?;
    match is_sound(&scratch.path().join("ledger")) {
        Ok(true) => Ok(None),
        Err(DatabaseError::Storage(StorageError::Io(source)))
            if source.kind() == io::ErrorKind::StorageFull =>
        {
            Err(CliError::Write { path: scratch.path().to_owned(), source })
        }
        Ok(false) | Err(_) => {
            let what = "the ledger is not intact (put the data directory back from a backup)";
            Ok(Some(TimelineError::Damaged { file, offset: 0, what }))
        }
    }
}

/// Returns false for a damaged ledger, also where redb panics on a page.
fn is_sound(copy: &Path) -> Result<bool, DatabaseError> {
    let hook = panic::take_hook();
    panic::set_hook(Box::new(|_| {}));
    let checked = panic::catch_unwind(AssertUnwindSafe(|| {
        redb::Builder::new().set_cache_size(CACHE_BYTES).open(copy)?.check_integrity()
    }));
    panic::set_hook(hook);
    checked.unwrap_or(Ok(false))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use redb::{Database, TableDefinition};

    use super::*;

    #[test]
    fn a_damaged_ledger_is_found_and_left_as_it_is() {
        const TEXTS: TableDefinition<'_, &str, &str> = TableDefinition::new("texts");
        const TEXT: &str = "a text that is known";
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger");
        let is_damaged = || check(dir.path()).expect("readable").is_some();
        assert!(!is_damaged(), "there is none");
        let ledger = Database::create(&path).expect("made");
        let change = ledger.begin_write().expect("begun");
        change.open_table(TEXTS).expect("opened").insert("key", TEXT).expect("put");
        change.commit().expect("committed");
        assert!(!is_damaged(), "a server has it open");
        drop(ledger);
        assert!(!is_damaged(), "it is closed");
        let whole = fs::read(&path).expect("readable");
        let at = whole.windows(TEXT.len()).position(|bytes| bytes == TEXT.as_bytes());
        let at = at.expect("there");
        let (mut flipped, mut zeroed) = (whole.clone(), whole.clone());
        flipped[at] ^= 1;
        zeroed[4096..].fill(0);
        for bytes in [flipped, zeroed, whole[..4096].to_vec(), Vec::new()] {
            fs::write(&path, &bytes).expect("written");
            assert!(is_damaged(), "{} bytes", bytes.len());
            assert!(fs::read(&path).expect("readable") == bytes, "it is changed");
        }
    }
}
