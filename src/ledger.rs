//! Small durable records beside the log: what is looked up by key, or changes.
//!
//! One transactional file; each part of the server keeps tables of its own in it. A write is on
//! disk when it returns, whole or not at all. Events never come here: they are the log's.

use std::{path::Path, sync::Arc};

use media::ErrorKind;
use redb::{Database, ReadTransaction, ReadableDatabase, WriteTransaction};

/// Memory that pages may stay in; the system's page cache is behind it.
const CACHE_BYTES: usize = 8 << 20;

/// Why records cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[error("the ledger failed: {0}")]
pub struct LedgerError(#[from] redb::Error);

impl LedgerError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self.0 {
            redb::Error::Corrupted(_) => ErrorKind::DataLoss,
            _ => ErrorKind::Internal,
        }
    }
}

/// The records; clones share one file. Every call waits for the disk.
#[derive(Clone)]
pub struct Ledger(Arc<Database>);

impl Ledger {
    /// Opens the file at `path`, made when there is none.
    pub fn open(path: &Path) -> Result<Ledger, LedgerError> {
        let mut builder = Database::builder();
        let database =
            builder.set_cache_size(CACHE_BYTES).create(path).map_err(redb::Error::from)?;
        Ok(Ledger(Arc::new(database)))
    }

    /// What `look` finds, in one unchanging view of all tables.
    pub fn read<T>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, LedgerError> {
        let view = self.0.begin_read().map_err(redb::Error::from)?;
        Ok(look(&view)?)
    }

    /// Makes all changes of `change` or, when it fails, none; one writer at a time.
    pub fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, LedgerError> {
        let transaction = self.0.begin_write().map_err(redb::Error::from)?;
        let changed = change(&transaction)?;
        transaction.commit().map_err(redb::Error::from)?;
        Ok(changed)
    }
}

#[cfg(test)]
mod tests {
    use redb::{ReadableTable, TableDefinition, TableError};

    use super::*;

    const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

    fn get(ledger: &Ledger, key: &str) -> Option<u64> {
        let look = |view: &ReadTransaction| match view.open_table(NUMBERS) {
            Ok(table) => Ok(table.get(key)?.map(|found| found.value())),
            Err(TableError::TableDoesNotExist(_)) => Ok(None),
            Err(error) => Err(error.into()),
        };
        ledger.read(look).expect("readable")
    }

    #[test]
    fn a_change_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger");
        let ledger = Ledger::open(&path).expect("made");
        assert_eq!(get(&ledger, "a"), None);
        let put = |key: &'static str, fails: bool| {
            ledger.write(|change| {
                change.open_table(NUMBERS)?.insert(key, 1)?;
                if fails {
                    Err(redb::Error::LockPoisoned(std::panic::Location::caller()))
                } else {
                    Ok(())
                }
            })
        };
        put("a", false).expect("written");
        put("b", true).expect_err("refused");
        assert_eq!((get(&ledger, "a"), get(&ledger, "b")), (Some(1), None));
        drop(ledger);
        let again = Ledger::open(&path).expect("opens");
        assert_eq!((get(&again, "a"), get(&again, "b")), (Some(1), None));
        let listed = again.read(|view| Ok(view.open_table(NUMBERS)?.iter()?.count()));
        assert_eq!(listed.expect("readable"), 1);
    }
}
