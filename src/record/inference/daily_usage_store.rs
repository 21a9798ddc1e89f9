//! Tokens used by each principal on a UTC day, on disk: a restart must not renew a budget.
//!
//! Usage is noted in memory and written by one task, so that no answer waits for the disk. A crash loses at
//! most the usage noted since the last write began.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use infer::scheduler::DailyUsage;
use parking_lot::Mutex;
use redb::{ReadableTable, TableDefinition};
use tokio::{sync::Notify, time::sleep};
use tokio_util::sync::CancellationToken;

use crate::base::{
    backoff::{Backoff, jitter},
    keys::Principal,
    meta_store::{MetaStore, MetaStoreError},
};

/// Principal to day, tokens, and true if the owner was told that they run low.
const TOKEN_DAYS: TableDefinition<'_, &str, (u64, u64, bool)> = TableDefinition::new("token_days");

/// Delays before retries of a failed write.
const AGAIN: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(60) };

/// Tokens that a principal has used on a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Record {
    day: u64,
    used: u64,
    low: bool,
    told: bool,
}

#[derive(Debug, Default)]
struct Book {
    /// One record per principal; the configuration bounds their number.
    records: BTreeMap<Arc<str>, Record>,
    /// True if the records differ from the disk.
    dirty: bool,
}

pub struct DailyUsageStore {
    ledger: MetaStore,
    book: Mutex<Book>,
    /// Held from the copy of the book to the end of its write, so that the newest copy is written last.
    writing: Mutex<()>,
    noted: Notify,
}

impl DailyUsageStore {
    /// Reads the usage of `today`; that of earlier days is dropped.
    pub fn open(ledger: MetaStore, today: u64) -> Result<DailyUsageStore, MetaStoreError> {
        let records = ledger.read(TOKEN_DAYS, |table| read(table, today))?;
        let book = Mutex::new(Book { records, dirty: false });
        Ok(DailyUsageStore { ledger, book, writing: Mutex::new(()), noted: Notify::new() })
    }

    /// Returns every principal with its day and the tokens used on it.
    pub fn used(&self) -> Vec<(Arc<str>, u64, u64)> {
        let book = self.book.lock();
        let used = book.records.iter();
        used.map(|(principal, record)| (Arc::clone(principal), record.day, record.used)).collect()
    }

    /// Notes the usage of a principal; returns true when its tokens have just run low.
    pub fn note(&self, found: &DailyUsage) -> bool {
        let DailyUsage { principal, day, used, .. } = found;
        let mut book = self.book.lock();
        let last = book.records.get(principal).copied();
        // A request of the day before may end after midnight, later than one of the new day.
        if last.is_some_and(|last| last.day > *day) {
            return false;
        }
        let before = last.filter(|last| last.day == *day);
        // Of two requests that end at once, the higher total counts.
        let used = before.map_or(*used, |before| before.used.max(*used));
        let told = before.is_some_and(|before| before.told);
        let was_low = before.is_some_and(|before| before.low);
        let low = was_low || found.is_low();
        book.records.insert(Arc::clone(principal), Record { day: *day, used, low, told });
        let is_news = before.is_none_or(|before| before.used != used);
        book.dirty |= is_news;
        drop(book);
        if is_news {
            self.noted.notify_one();
        }
        low && !was_low
    }

    /// Returns true if the owner was told that its tokens of `day` run low.
    pub fn was_told(&self, principal: &Principal, day: u64) -> bool {
        let book = self.book.lock();
        book.records.get(principal.as_str()).is_some_and(|record| record.day >= day && record.told)
    }

    /// Returns true once a day: the caller must then tell the owner that its tokens of `day` run low.
    pub fn tell(&self, principal: &Principal, day: u64) -> bool {
        let mut book = self.book.lock();
        let fresh = Record { day, used: 0, low: false, told: false };
        let record = book.records.entry(principal.as_str().into()).or_insert(fresh);
        if record.day < day {
            *record = fresh;
        }
        let tells = !std::mem::replace(&mut record.told, true);
        book.dirty |= tells;
        drop(book);
        self.noted.notify_one();
        tells
    }

    /// Undoes a [`DailyUsageStore::tell`] of `day` whose event was not recorded.
    pub fn untell(&self, principal: &Principal, day: u64) {
        let mut book = self.book.lock();
        let record = book.records.get_mut(principal.as_str()).filter(|record| record.day == day);
        if let Some(record) = record {
            record.told = false;
            book.dirty = true;
        }
        drop(book);
        self.noted.notify_one();
    }

    /// Writes the noted usage; blocks on the disk. Returns false if the write failed.
    pub fn flush(&self) -> bool {
        let _writing = self.writing.lock();
        let records = {
            let mut book = self.book.lock();
            if !std::mem::take(&mut book.dirty) {
                return true;
            }
            book.records.clone()
        };
        let written = self.ledger.write(|change| {
            let mut table = change.open_table(TOKEN_DAYS)?;
            for (principal, Record { day, used, told, .. }) in &records {
                table.insert(&**principal, (*day, *used, *told))?;
            }
            Ok(())
        });
        if let Err(error) = &written {
            tracing::error!(%error, "could not persist token usage");
            self.book.lock().dirty = true;
        }
        written.is_ok()
    }

    /// Writes noted usage, with retries, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut failures = 0;
        loop {
            let due = async {
                match failures {
                    0 => self.noted.notified().await,
                    _ => sleep(AGAIN.delay(failures, jitter())).await,
                }
            };
            if stop.run_until_cancelled(due).await.is_none() {
                return;
            }
            let days = Arc::clone(&self);
            let written = tokio::task::spawn_blocking(move || days.flush()).await;
            if written.is_err() {
                tracing::error!("writing the use of tokens panicked");
            }
            failures = if written.unwrap_or(false) { 0 } else { failures + 1 };
        }
    }
}

fn read(
    table: &impl ReadableTable<&'static str, (u64, u64, bool)>,
    today: u64,
) -> Result<BTreeMap<Arc<str>, Record>, redb::Error> {
    let mut records = BTreeMap::new();
    for entry in table.iter()? {
        let (principal, record) = entry?;
        let (day, used, told) = record.value();
        if day >= today {
            let record = Record { day, used, low: told, told };
            records.insert(principal.value().into(), record);
        }
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_read_again_and_told_of_once() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("ledger");
        let open = |today| {
            DailyUsageStore::open(MetaStore::open(&path).expect("opens"), today).expect("readable")
        };
        let alice: Arc<str> = "alice".into();
        let owner = Principal::named("alice");
        let of = |day, used| {
            let principal = Arc::clone(&alice);
            DailyUsage { principal, day, used, reserved: 0, limit: 100 }
        };
        let days = open(7);
        assert!(!days.note(&of(7, 50)));
        assert!(days.note(&DailyUsage { reserved: 45, ..of(7, 50) }), "nine tenths may be spent");
        assert!(!days.note(&of(7, 95)), "and then are");
        assert!(!days.note(&of(7, 94)), "one that ended before, heard later");
        assert!(!days.was_told(&owner, 7));
        assert!(days.tell(&owner, 7) && !days.tell(&owner, 7) && days.was_told(&owner, 7));
        days.flush();
        drop(days);
        let days = open(7);
        assert_eq!(days.used(), [(Arc::clone(&alice), 7, 95)]);
        assert!(!days.tell(&owner, 7), "also after a start");
        assert!(days.tell(&owner, 8), "a day has its own");
        assert!(!days.note(&of(8, 10)) && days.note(&of(8, 90)));
        assert!(!days.note(&of(7, 99)), "one of the day before, heard after midnight");
        assert_eq!(days.used(), [(Arc::clone(&alice), 8, 90)], "and the new day stands");
        days.untell(&owner, 7);
        assert!(!days.tell(&owner, 8), "that was of another day");
        days.untell(&owner, 8);
        assert!(days.tell(&owner, 8), "a word that did not arrive is said again");
        drop(days);
        assert_eq!(open(8).used(), [], "what is not of today is not read");
    }
}
