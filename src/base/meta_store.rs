//! Small durable records beside the log: what is looked up by key, or changes.
//!
//! One transactional file; each part of the server keeps tables of its own in it. A write is on
//! disk when it returns, whole or not at all. A read or write that the disk refuses closes the
//! file, and the next use opens it anew. Events never come here: they are the log's.

use std::{
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use media::ErrorKind;
use parking_lot::RwLock;
use redb::{
    Database, Key, ReadOnlyTable, ReadTransaction, ReadableDatabase, TableDefinition, TableError,
    Value, WriteTransaction,
};
use rustix::fs::Advice;
use timeline::held::HeldDir;

/// Memory that pages may stay in; the system's page cache is behind it.
const CACHE_BYTES: usize = 8 << 20;
/// Table that [`MetaStore::check`] writes, to see whether it can.
const PROBE: TableDefinition<'_, &str, u64> = TableDefinition::new("probe");

/// Failure to read or write records.
#[derive(Debug, thiserror::Error)]
#[error("{}", told(.0))]
pub struct MetaStoreError(#[from] redb::Error);

fn told(error: &redb::Error) -> String {
    match error {
        redb::Error::DatabaseAlreadyOpen => {
            "another server has this data directory open: each needs one of its own (SERVICE_DATA_DIR)"
                .to_owned()
        }
        error if is_damage(error) => {
            format!("the ledger is damaged, put the data directory back from a backup: {error}")
        }
        error => format!("the ledger failed: {error}"),
    }
}

impl MetaStoreError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        use io::ErrorKind::{QuotaExceeded, StorageFull};
        match &self.0 {
            redb::Error::DatabaseAlreadyOpen => ErrorKind::Conflict,
            error if is_damage(error) => ErrorKind::DataLoss,
            redb::Error::Io(error) if matches!(error.kind(), StorageFull | QuotaExceeded) => {
                ErrorKind::Exhausted
            }
            error if is_the_disks(error) => ErrorKind::Unavailable,
            _ => ErrorKind::Internal,
        }
    }
}

fn is_damage(error: &redb::Error) -> bool {
    match error {
        redb::Error::Corrupted(_) => true,
        redb::Error::Io(error) => error.kind() == io::ErrorKind::InvalidData,
        _ => false,
    }
}

/// Returns true for errors after which the open file takes nothing more, also when the disk would.
fn is_the_disks(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo)
}

/// The records; clones share one file. Every call waits for the disk.
#[derive(Clone)]
pub struct MetaStore(Arc<Shared>);

struct Shared {
    path: PathBuf,
    /// `None` after a failure of the disk, until the next use.
    database: RwLock<Option<Database>>,
    /// The disk failed after the last write that it took.
    failing: AtomicBool,
    /// Faults of the next writes.
    #[cfg(test)]
    faults: parking_lot::Mutex<std::collections::VecDeque<InjectedFault>>,
}

/// Failure of the disk that a test injects.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// Nothing of it is on disk.
    Lost,
    /// All of it is on disk, and the write fails all the same.
    Unclear,
}

impl MetaStore {
    /// Opens the file at `path`, made when there is none; its name is durable on return.
    pub fn open(path: &Path) -> Result<MetaStore, MetaStoreError> {
        let database = open(path)?;
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        let synced = File::open(dir.unwrap_or(Path::new("."))).and_then(|dir| dir.sync_all());
        synced.map_err(redb::Error::Io)?;
        Ok(MetaStore(Arc::new(Shared {
            path: path.to_owned(),
            database: RwLock::new(Some(database)),
            failing: AtomicBool::new(false),
            #[cfg(test)]
            faults: Default::default(),
        })))
    }

    /// Result of `look`, in one unchanging view of all tables.
    pub fn read<T>(
        &self,
        look: impl FnOnce(&ReadTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, MetaStoreError> {
        self.using(|database| Ok(database.begin_read()?), |view| look(&view))
    }

    /// Makes all changes of `change` or, when it fails, none; one writer at a time.
    ///
    /// Where the disk fails while they are made durable, they may be there later all the same.
    pub fn write<T>(
        &self,
        change: impl FnOnce(&WriteTransaction) -> Result<T, redb::Error>,
    ) -> Result<T, MetaStoreError> {
        let act = |transaction: WriteTransaction| {
            let changed = change(&transaction)?;
            #[cfg(test)]
            let transaction = self.faulty(transaction)?;
            transaction.commit()?;
            Ok(changed)
        };
        let changed = self.using(|database| Ok(database.begin_write()?), act)?;
        self.0.failing.store(false, Ordering::Relaxed);
        Ok(changed)
    }

    /// Has the next writes fail, one each.
    #[cfg(test)]
    pub(crate) fn fail_next(&self, faults: &[InjectedFault]) {
        self.0.faults.lock().extend(faults);
    }

    #[cfg(test)]
    fn faulty(&self, transaction: WriteTransaction) -> Result<WriteTransaction, redb::Error> {
        let fault = self.0.faults.lock().pop_front();
        match fault {
            None => return Ok(transaction),
            Some(InjectedFault::Lost) => drop(transaction),
            Some(InjectedFault::Unclear) => transaction.commit()?,
        }
        Err(redb::Error::Io(io::Error::other("a fault")))
    }

    /// Fails while records cannot be written; tries it out where the disk failed lately.
    pub fn check(&self) -> Result<(), MetaStoreError> {
        if !self.0.failing.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.write(|change| Ok(change.open_table(PROBE)?.insert("written", 1).map(drop)?))
    }

    fn using<B, T, A>(
        &self,
        begin: impl Fn(&Database) -> Result<B, redb::Error>,
        act: A,
    ) -> Result<T, MetaStoreError>
    where
        A: FnOnce(B) -> Result<T, redb::Error>,
    {
        let attempt = |act: A| {
            self.opened(|database| match begin(database) {
                Ok(begun) => Ok(act(begun)),
                Err(error) => Err((error, act)),
            })
        };
        let done = match attempt(act)? {
            // Another's use failed since the file was opened; nothing of this one has begun.
            Err((redb::Error::PreviousIo, act)) => {
                self.close();
                attempt(act)?
            }
            done => done,
        };
        done.unwrap_or_else(|(error, _)| Err(error)).map_err(|error| {
            if is_the_disks(&error) {
                tracing::error!(%error, "the ledger is closed until its next use");
                self.close();
            }
            MetaStoreError(error)
        })
    }

    /// Calls `act` with the open file, opened where it is not.
    fn opened<T>(&self, act: impl FnOnce(&Database) -> T) -> Result<T, MetaStoreError> {
        let Shared { path, database, .. } = &*self.0;
        loop {
            if let Some(database) = &*database.read() {
                return Ok(act(database));
            }
            let mut closed = database.write();
            if closed.is_none() {
                forget_cached(path)?;
                *closed = Some(open(path)?);
            }
        }
    }

    /// Closes the file once it is in no use.
    fn close(&self) {
        self.0.failing.store(true, Ordering::Relaxed);
        // A failure here is not the first: a file that is not closed well is repaired as it opens.
        drop(self.0.database.write().take());
    }
}

/// The table, or none before its first record.
pub fn table<K: Key + 'static, V: Value + 'static>(
    view: &ReadTransaction,
    definition: TableDefinition<'_, K, V>,
) -> Result<Option<ReadOnlyTable<K, V>>, redb::Error> {
    match view.open_table(definition) {
        Ok(table) => Ok(Some(table)),
        Err(TableError::TableDoesNotExist(_)) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn open(path: &Path) -> Result<Database, redb::Error> {
    let file = file(path)?;
    let mut builder = Database::builder();
    Ok(builder.set_cache_size(CACHE_BYTES).create_file(file)?)
}

/// The file of the ledger, made when there is none: a regular file, and none that a link names.
fn file(path: &Path) -> Result<File, redb::Error> {
    let dir = HeldDir::new(path.parent().unwrap_or(Path::new("")));
    let opened = dir.file_to_write(Path::new(path.file_name().unwrap_or_default()));
    opened.map_err(|error| redb::Error::Io(error.into()))
}

/// Forgets pages in the system's memory, which after a failed sync may hold what the disk does not:
/// the file is to be judged by what is on disk.
fn forget_cached(path: &Path) -> Result<(), redb::Error> {
    let dropped = rustix::fs::fadvise(file(path)?, 0, None, Advice::DontNeed);
    dropped.map_err(|error| redb::Error::Io(error.into()))
}

#[cfg(test)]
mod tests {
    use redb::ReadableTable;

    use super::*;

    const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

    fn get(ledger: &MetaStore, key: &str) -> Option<u64> {
        let look = |view: &ReadTransaction| match table(view, NUMBERS)? {
            Some(table) => Ok(table.get(key)?.map(|found| found.value())),
            None => Ok(None),
        };
        ledger.read(look).expect("readable")
    }

    #[test]
    fn a_change_is_there_whole_or_not_at_all() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger");
        let ledger = MetaStore::open(&path).expect("made");
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
        let again = MetaStore::open(&path).expect("opens");
        assert_eq!((get(&again, "a"), get(&again, "b")), (Some(1), None));
        let listed = again.read(|view| Ok(view.open_table(NUMBERS)?.iter()?.count()));
        assert_eq!(listed.expect("readable"), 1);
    }
}
