//! Rows for the database, and records of events that cannot be copied.

use media::Seq;
use timeline::EventMeta;
use tokio_postgres::types::ToSql;

use super::{Scope, log::Told};
use crate::base::database::{Database, DatabaseError};

/// Rows to insert, and the event number to read on from.
#[derive(Default)]
pub(super) struct RowBatch {
    pub(super) rows: Vec<Row>,
    /// Events that the log cannot read.
    pub(super) unreadable: Vec<SkippedEvent>,
    pub(super) next: Seq,
    pub(super) is_last: bool,
}

impl RowBatch {
    /// Returns true if the batch has nothing for the database.
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.unreadable.is_empty()
    }
}

#[derive(Clone)]
pub(super) struct Row {
    pub(super) head: EventMeta,
    pub(super) payload: String,
    /// Changes to the row of the run; empty unless all events are copied.
    pub(super) told: Told,
}

pub(super) struct SkippedEvent {
    pub(super) head: EventMeta,
    pub(super) reason: String,
}

impl Database {
    /// Returns the identity of this database, and the last event of `node` in it; 0 if there is none.
    pub(super) async fn known(
        &self,
        scope: Scope,
        node: &str,
    ) -> Result<(String, Seq), DatabaseError> {
        let progress = match scope {
            Scope::Descriptions => "sightline_progress",
            Scope::All => "sightline_log_progress",
        };
        let last = format!("SELECT coalesce(max(seq), 0) FROM {progress} WHERE node_id = $1");
        let work = async {
            let lease = self.connection().await?;
            let database: String = lease.query_one(IDENTITY, &[]).await?.try_get(0)?;
            let last: i64 = lease.query_one(&last, &[&node]).await?.try_get(0)?;
            Ok((lease, (database, Seq(last.unsigned_abs()))))
        };
        self.bounded(work).await
    }

    /// Inserts rows into the database `identity`, and no other; returns the number of new rows.
    pub(super) async fn insert_events(
        &self,
        identity: &str,
        node: &str,
        rows: &[Row],
    ) -> Result<u64, DatabaseError> {
        const INSERT: &str = "WITH copied AS (INSERT INTO sightline_events \
             (node_id, seq, run_id, kind, pts_ms, payload) \
             SELECT $1, seq, run_id, kind, pts_ms, payload::json FROM unnest \
             ($2::bigint[], $3::text[], $4::text[], $5::bigint[], $6::text[]) \
             AS event (seq, run_id, kind, pts_ms, payload) \
             ON CONFLICT (node_id, seq) DO NOTHING RETURNING seq), \
             noted AS (INSERT INTO sightline_progress AS known (node_id, seq) \
             SELECT $1, max(seq) FROM unnest($2::bigint[]) AS seq \
             ON CONFLICT (node_id) DO UPDATE SET seq = greatest(known.seq, excluded.seq)) \
             SELECT count(*) FROM copied";
        let seqs: Vec<i64> = rows.iter().map(|row| row.head.seq.0 as i64).collect();
        let runs: Vec<String> = rows.iter().map(|row| row.head.run.to_string()).collect();
        let kinds: Vec<&str> = rows.iter().map(|row| row.head.kind.as_str()).collect();
        let times: Vec<i64> = rows.iter().map(|row| row.head.at.epoch_ms).collect();
        let payloads: Vec<&str> = rows.iter().map(|row| row.payload.as_str()).collect();
        let work = async {
            let lease = self.connection().await?;
            let found: String = lease.query_one(IDENTITY, &[]).await?.try_get(0)?;
            if found != identity {
                return Err(DatabaseError::Replaced);
            }
            let insert = lease.prepare_cached(INSERT).await?;
            let columns: [&(dyn ToSql + Sync); 6] =
                [&node, &seqs, &runs, &kinds, &times, &payloads];
            let copied: i64 = lease.query_one(&insert, &columns).await?.try_get(0)?;
            Ok((lease, copied.unsigned_abs()))
        };
        self.bounded(work).await
    }

    /// Lists an event as skipped; returns false if it was listed already.
    pub(super) async fn insert_skipped(
        &self,
        node: &str,
        skipped: &SkippedEvent,
    ) -> Result<bool, DatabaseError> {
        const INSERT: &str = "INSERT INTO sightline_skipped (node_id, seq, run_id, kind, reason) \
             VALUES ($1, $2, $3, $4, $5) ON CONFLICT (node_id, seq) DO NOTHING";
        let EventMeta { seq, run, kind, .. } = skipped.head;
        let (seq, run, kind) = (seq.0 as i64, run.to_string(), kind.as_str());
        // PostgreSQL text cannot hold NUL.
        let reason = skipped.reason.replace('\0', "");
        let work = async {
            let lease = self.connection().await?;
            let listed = lease.execute(INSERT, &[&node, &seq, &run, &kind, &reason]).await?;
            Ok((lease, listed == 1))
        };
        self.bounded(work).await
    }
}

pub(super) const IDENTITY: &str = "SELECT id FROM sightline_database";
