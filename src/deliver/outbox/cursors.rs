//! Durable positions in the log, by name: where each reader goes on after a restart.

use media::Seq;
use redb::{TableDefinition, WriteTransaction};

use crate::base::meta_store::{self, MetaStore, MetaStoreError};

/// Name of a reader to the seq that it has not handed over yet.
const CURSORS: TableDefinition<'_, &str, u64> = TableDefinition::new("cursors");

/// The cursors of the readers; every call waits for the disk.
#[derive(Clone)]
pub struct Cursors(MetaStore);

impl Cursors {
    /// The cursors kept in `ledger`.
    pub fn new(ledger: MetaStore) -> Cursors {
        Cursors(ledger)
    }

    /// The first event that `name` has not handed over; `None` when it has none yet.
    pub fn of(&self, name: &str) -> Result<Option<Seq>, MetaStoreError> {
        self.0.read(|view| match meta_store::table(view, CURSORS)? {
            Some(table) => Ok(table.get(name)?.map(|next| Seq(next.value()))),
            None => Ok(None),
        })
    }

    /// The lowest cursor of the readers whose names begin with `start`.
    pub fn lowest(&self, start: &str) -> Result<Option<Seq>, MetaStoreError> {
        self.0.read(|view| {
            let Some(table) = meta_store::table(view, CURSORS)? else { return Ok(None) };
            let mut lowest: Option<u64> = None;
            for row in table.range(start..)? {
                let (name, next) = row?;
                if !name.value().starts_with(start) {
                    break;
                }
                lowest = Some(lowest.map_or(next.value(), |known| known.min(next.value())));
            }
            Ok(lowest.map(Seq))
        })
    }

    /// Everything before `next` is handed over.
    pub fn advance(&self, name: &str, next: Seq) -> Result<(), MetaStoreError> {
        self.0.write(|change| move_to(change, name, next))
    }
}

/// Moves the cursor of `name` as part of a larger change.
pub fn move_to(change: &WriteTransaction, name: &str, next: Seq) -> Result<(), redb::Error> {
    change.open_table(CURSORS)?.insert(name, next.0)?;
    Ok(())
}

/// Forgets the cursor of `name` as part of a larger change.
pub fn forget(change: &WriteTransaction, name: &str) -> Result<(), redb::Error> {
    change.open_table(CURSORS)?.remove(name)?;
    Ok(())
}
