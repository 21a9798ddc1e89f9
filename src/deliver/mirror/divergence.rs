//! Compares the database with the log: a restored log reuses numbers of events that the database
//! has, so that all of the database's events from there on belong to another history.

use media::Seq;
use timeline::{EventMeta, Timeline};

use super::Scope;
use crate::base::database::{Database, DatabaseError};

/// Maximum reads, of 256 rows each, in search of an event that log and database share.
const PAGES: usize = 64;

/// Number, run, kind and time of an event, as a row of the database has them.
type KnownRow = (Seq, String, String, i64);

impl Database {
    /// Returns the first event of `node`, up to `last`, that differs from the log's.
    pub(super) async fn diverges(
        &self,
        (scope, node): (Scope, &str),
        timeline: &Timeline,
        last: Seq,
    ) -> Result<Option<Seq>, DatabaseError> {
        let head = timeline.head();
        let (mut below, mut first) = (last, (last > head).then_some(Seq(head.0 + 1)));
        for _ in 0..PAGES {
            let rows = self.newest(scope, node, below).await?;
            for row in &rows {
                let (seq, ..) = *row;
                match timeline.heads(seq, 1).pop() {
                    Some(told) if *row == known(&told) => return Ok(first),
                    // A purged event proves nothing.
                    None if seq <= head => {}
                    _ => first = Some(seq),
                }
            }
            let Some((seq, ..)) = rows.last() else { return Ok(first) };
            below = Seq(seq.0.saturating_sub(1));
        }
        Ok(first)
    }

    /// Returns events of `node` up to `last`, newest first, one page.
    async fn newest(
        &self,
        scope: Scope,
        node: &str,
        last: Seq,
    ) -> Result<Vec<KnownRow>, DatabaseError> {
        let (table, at) = match scope {
            Scope::Descriptions => ("sightline_events", "pts_ms"),
            Scope::All => ("sightline_log", "(extract(epoch FROM appended_at) * 1000)::bigint"),
        };
        let query = format!(
            "SELECT seq, run_id, kind, {at} FROM {table} WHERE node_id = $1 AND seq <= $2 \
             ORDER BY seq DESC LIMIT 256"
        );
        let work = async {
            let lease = self.connection().await?;
            let found = lease.query(&query, &[&node, &(last.0 as i64)]).await?;
            let row = |row: &tokio_postgres::Row| -> Result<KnownRow, tokio_postgres::Error> {
                let seq: i64 = row.try_get(0)?;
                Ok((Seq(seq.unsigned_abs()), row.try_get(1)?, row.try_get(2)?, row.try_get(3)?))
            };
            Ok((lease, found.iter().map(row).collect::<Result<_, _>>()?))
        };
        self.bounded(work).await
    }
}

fn known(head: &EventMeta) -> KnownRow {
    (head.seq, head.run.to_string(), head.kind.as_str().to_owned(), head.at.epoch_ms)
}
