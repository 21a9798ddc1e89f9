//! Ledger: small durable records beside the log that are looked up by key or change.
//!
//! One transactional redb file, in which each part of the server has its own tables. A write is
//! atomic, and durable on return. A read or write that fails at the disk closes the file; the next
//! use opens it again. Events are stored in the log only.

use std::{
    fs::File,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
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

/// Size of redb's page cache, bytes; the operating system's page cache backs it.
const CACHE_BYTES: usize = 8 << 20;
/// Table that [`MetaStore::check`] writes to, as a probe.
const PROBE: TableDefinition<'_, &str, u64> = TableDefinition::new("probe");

/// Error of reading or writing the ledger.
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
    /// Returns the error kind, which decides the answer to the caller.
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

/// Returns true for I/O errors, after which redb refuses every further use of the open file.
fn is_the_disks(error: &redb::Error) -> bool {
    matches!(error, redb::Error::Io(_) | redb::Error::PreviousIo)
}

/// Handle of the ledger; clones share one file. Every call blocks on the disk.
#[derive(Clone)]
pub struct MetaStore(Arc<Shared>);

struct Shared {
    path: PathBuf,
    /// The open file; `None` after a disk failure, until the next use.
    database: RwLock<Option<Database>>,
    /// True from a failure of the disk until the next successful write.
    failing: AtomicBool,
    /// Faults that the next writes return.
    #[cfg(test)]
    faults: parking_lot::Mutex<std::collections::VecDeque<InjectedFault>>,
}

/// Disk failure injected by a test.
#[cfg(test)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InjectedFault {
    /// The write fails and nothing of it is on disk.
    Lost,
    /// The write fails although all of it is on disk.
    Unclear,
}

impl MetaStore {
    /// Opens the file at `path`, or creates it; its directory entry is durable on return.
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

    /// Runs `look` on a snapshot of a table; returns the default if nothing was ever written to the table.
    pub fn read<K: Key + 'static, V: Value + 'static, T: Default>(
        &self,
        definition: TableDefinition<'_, K, V>,
        look: impl FnOnce(&ReadOnlyTable<K, V>) -> Result<T, redb::Error>,
    ) -> Result<T, MetaStoreError> {
        let act = |view: ReadTransaction| match view.open_table(definition) {
            Ok(table) => look(&table),
            Err(TableError::TableDoesNotExist(_)) => Ok(T::default()),
            Err(error) => Err(error.into()),
        };
        self.using(|database| Ok(database.begin_read()?), act)
    }

    /// Applies all changes of `change` or, if it fails, none; writers are serialized.
    ///
    /// If the disk fails during the commit, the changes may become visible later nevertheless.
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

    /// Makes the next writes fail, one for each fault.
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

    /// Fails if records cannot be written; after a disk failure, probes with a write.
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
            self.opened(|database| match unpanicked(|| begin(database)) {
                Ok(begun) => Ok(unpanicked(|| act(begun))),
                Err(error) => Err((error, act)),
            })
        };
        let done = match attempt(act)? {
            // Another use failed since the file was opened; this use has not begun.
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
            MetaStoreError(match error {
                redb::Error::Corrupted(text) => {
                    redb::Error::Corrupted(format!("{text}: {}", self.0.path.display()))
                }
                error => error,
            })
        })
    }

    /// Calls `act` with the open file; opens the file first if necessary.
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

    /// Closes the file once no call uses it.
    fn close(&self) {
        self.0.failing.store(true, Ordering::Relaxed);
        close(self.0.database.write().take());
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        close(self.database.get_mut().take());
    }
}

/// Closes the file. An error is ignored: redb repairs an unclean file when it opens it.
fn close(database: Option<Database>) {
    let closed = unpanicked(|| {
        drop(database);
        Ok(())
    });
    drop(closed);
}

/// Runs `act`, which uses redb; its panic on a damaged page becomes an error.
fn unpanicked<T>(act: impl FnOnce() -> Result<T, redb::Error>) -> Result<T, redb::Error> {
    catch_unwind(AssertUnwindSafe(act))
        .unwrap_or_else(|_| Err(redb::Error::Corrupted("a page of it cannot be read".to_owned())))
}

fn open(path: &Path) -> Result<Database, redb::Error> {
    let file = file(path)?;
    let mut builder = Database::builder();
    unpanicked(|| Ok(builder.set_cache_size(CACHE_BYTES).create_file(file)?))
}

/// Returns the directory of the ledger and the name in it.
fn place(path: &Path) -> (HeldDir, &Path) {
    let dir = HeldDir::new(path.parent().unwrap_or(Path::new("")));
    (dir, Path::new(path.file_name().unwrap_or_default()))
}

/// Opens or creates the file of the ledger, which must be a regular file and no symbolic link.
fn file(path: &Path) -> Result<File, redb::Error> {
    let (dir, name) = place(path);
    let opened = dir.file_to_write(name);
    opened.map_err(|error| redb::Error::Io(error.into()))
}

/// Drops the file's pages from the page cache: after a failed sync they may differ from the disk, whose
/// content decides. Fails if there is no file: none is made in its place while the server runs.
fn forget_cached(path: &Path) -> Result<(), redb::Error> {
    let (dir, name) = place(path);
    let dropped = dir
        .file_to_change(name)
        .map_err(io::Error::from)
        .and_then(|file| Ok(rustix::fs::fadvise(file, 0, None, Advice::DontNeed)?));
    dropped.map_err(redb::Error::Io)
}

#[cfg(test)]
mod tests {
    use redb::ReadableTable;

    use super::*;

    const NUMBERS: TableDefinition<'_, &str, u64> = TableDefinition::new("numbers");

    fn get(ledger: &MetaStore, key: &str) -> Option<u64> {
        let found = ledger.read(NUMBERS, |table| Ok(table.get(key)?.map(|found| found.value())));
        found.expect("readable")
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
        let listed = again.read(NUMBERS, |table| Ok(table.iter()?.count()));
        assert_eq!(listed.expect("readable"), 1);
    }

    #[test]
    fn a_damaged_page_is_an_error_and_no_panic() {
        const PAGE: usize = 4096;
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger");
        let ledger = MetaStore::open(&path).expect("made");
        let filled = ledger.write(|change| {
            let mut table = change.open_table(NUMBERS)?;
            for at in 0..500_u64 {
                table.insert(&*at.to_string(), at)?;
            }
            Ok(())
        });
        filled.expect("written");
        drop(ledger);
        let whole = std::fs::read(&path).expect("readable");
        let found = (0..whole.len() / PAGE).filter(|page| {
            let mut bytes = whole.clone();
            bytes[page * PAGE..][..PAGE].fill(0);
            std::fs::write(&path, bytes).expect("written");
            let read = MetaStore::open(&path)
                .and_then(|ledger| ledger.read(NUMBERS, |table| Ok(table.iter()?.count())));
            read.is_err_and(|error| error.kind() == ErrorKind::DataLoss)
        });
        assert!(found.count() > 2, "the header, a root and a leaf");
    }
}
