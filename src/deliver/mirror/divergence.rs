//! Compares the database with the log: a restored log reuses numbers of events that the database
//! has, so that all of the database's events from there on belong to another history.

use media::Seq;
use timeline::{EventMeta, Timeline};

use super::Scope;
use crate::base::database::{Database, DatabaseError};

/// Maximum reads, of 256 rows each, in search of an event that log and database share.
const PAGES: usize = 64;

/// Row of the database, with the fields that identify its event.
#[derive(PartialEq, Eq)]
struct KnownRow {
    seq: Seq,
    run: String,
    kind: String,
    at_ms: i64,
}

impl KnownRow {
    fn of(head: &EventMeta) -> KnownRow {
        let (run, kind) = (head.run.to_string(), head.kind.as_str().to_owned());
        KnownRow { seq: head.seq, run, kind, at_ms: head.at.epoch_ms }
    }
}

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
                match timeline.heads(row.seq, 1).pop() {
                    Some(told) if *row == KnownRow::of(&told) => return Ok(first),
                    // A purged event proves nothing.
                    None if row.seq <= head => {}
                    _ => first = Some(row.seq),
                }
            }
            let Some(row) = rows.last() else { return Ok(first) };
            below = Seq(row.seq.0.saturating_sub(1));
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
                let (run, kind, at_ms) = (row.try_get(1)?, row.try_get(2)?, row.try_get(3)?);
                Ok(KnownRow { seq: Seq(seq.unsigned_abs()), run, kind, at_ms })
            };
            Ok((lease, found.iter().map(row).collect::<Result<_, _>>()?))
        };
        self.bounded(work).await
    }
}
