//! Durable cursors into the log, by the name of their reader.

use media::Seq;
use redb::{ReadableTable, TableDefinition, WriteTransaction};

use crate::base::meta_store::{MetaStore, MetaStoreError};

/// Reader's name to the first sequence number that it has not delivered.
const CURSORS: TableDefinition<'_, &str, u64> = TableDefinition::new("cursors");

/// Cursors in the ledger; every call blocks on the disk.
#[derive(Clone)]
pub struct Cursors(pub MetaStore);

impl Cursors {
    /// Returns the first event that `name` has not delivered; `None` if it has no cursor.
    pub fn of(&self, name: &str) -> Result<Option<Seq>, MetaStoreError> {
        self.0.read(CURSORS, |table| Ok(table.get(name)?.map(|next| Seq(next.value()))))
    }

    /// Returns the lowest cursor of the readers whose names begin with `start`.
    pub fn lowest(&self, start: &str) -> Result<Option<Seq>, MetaStoreError> {
        self.0.read(CURSORS, |table| {
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

    /// Moves cursors beyond `next`, the first event that the log lacks, back to it; returns their names.
    pub fn pull_back(&self, next: Seq) -> Result<Vec<String>, MetaStoreError> {
        let beyond: Vec<String> = self.0.read(CURSORS, |table| {
            let rows = table
                .iter()?
                .map(|row| row.map(|(name, at)| (name.value().to_owned(), at.value())));
            let rows = rows.collect::<Result<Vec<_>, _>>()?.into_iter();
            Ok(rows.filter(|(_, at)| *at > next.0).map(|(name, _)| name).collect())
        })?;
        if !beyond.is_empty() {
            self.0
                .write(|change| beyond.iter().try_for_each(|name| move_to(change, name, next)))?;
        }
        Ok(beyond)
    }

    /// Moves the cursor of `name` to `next`: everything before is delivered.
    pub fn advance(&self, name: &str, next: Seq) -> Result<(), MetaStoreError> {
        self.0.write(|change| move_to(change, name, next))
    }
}

/// Moves the cursor of `name` within a transaction.
pub fn move_to(change: &WriteTransaction, name: &str, next: Seq) -> Result<(), redb::Error> {
    change.open_table(CURSORS)?.insert(name, next.0)?;
    Ok(())
}

/// Removes the cursor of `name` within a transaction.
pub fn forget(change: &WriteTransaction, name: &str) -> Result<(), redb::Error> {
    change.open_table(CURSORS)?.remove(name)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cursors_beyond_a_log_that_lost_its_end_go_on_where_it_does() {
        let dir = tempfile::tempdir().expect("a directory");
        let cursors = Cursors(MetaStore::open(&dir.path().join("ledger")).expect("made"));
        assert_eq!(cursors.pull_back(Seq(1)).expect("read"), Vec::<String>::new());
        for (name, at) in [("behind", 7), ("at the end", 81), ("beyond", 121)] {
            cursors.advance(name, Seq(at)).expect("written");
        }
        assert_eq!(cursors.pull_back(Seq(81)).expect("written"), ["beyond"]);
        let at = |name| cursors.of(name).expect("read");
        assert_eq!(["behind", "at the end", "beyond"].map(at), [7, 81, 81].map(|at| Some(Seq(at))));
    }
}
