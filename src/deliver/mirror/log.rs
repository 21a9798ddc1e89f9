//! Copies all events into the database: one COPY per batch, in one transaction with the batch's
//! last number, so that a repeated batch adds no rows.

use std::{
    collections::BTreeMap,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use media::{RunId, Seq, WallTime};
use timeline::{Event, EventKind, StreamedEvent, TimelineError};
use tokio_postgres::{
    binary_copy::BinaryCopyInWriter,
    types::{ToSql, Type},
};

use super::rows::{IDENTITY, Row};
use crate::{
    base::database::{Database, DatabaseError},
    deliver::search::description,
    runs::lifecycle::RunState,
};

/// Key of the advisory lock for creating partitions: "sightlog" in ASCII.
const LOCK: i64 = 0x7369_6768_746c_6f67;
const DAY_MS: i64 = 86_400_000;

/// Changes that an event makes to the row of its run.
#[derive(Clone, Debug, Default)]
pub(super) struct Told {
    /// Searchable text of the event.
    description: Option<String>,
    principal: Option<String>,
    label: Option<String>,
}

impl Told {
    /// Reads `event`; returns its payload as text, and its changes.
    pub(super) fn of(event: StreamedEvent) -> Result<(String, Told), TimelineError> {
        event.damage().map_or(Ok(()), Err)?;
        let (kind, mut told) = (event.head.kind, Told::default());
        if matches!(kind, EventKind::RunCreated | EventKind::RunLabelled) {
            match event.decode()? {
                Event::RunCreated(made) => told.principal = Some(made.principal_key),
                Event::SessionRunCreated(made) => told.principal = Some(made.principal_key),
                Event::RunLabelled(named) => {
                    told.label =
                        Some(named.label.map_or_else(String::new, |it| it.as_str().to_owned()));
                }
                _ => {}
            }
        }
        let payload = event.into_outline();
        // PostgreSQL text cannot hold NUL.
        told.description = description(kind, &payload).map(|text| text.replace('\0', ""));
        Ok((payload, told))
    }
}

/// Row of a run, as the events of a batch change it.
struct RunRow<'a> {
    principal: &'a str,
    /// `None` if the batch sets no label; empty if it removes the label.
    label: Option<&'a str>,
    /// State by the events of the batch alone, from `pending` on.
    lifecycle: RunState,
    first: WallTime,
    last: WallTime,
}

fn runs(rows: &[Row]) -> BTreeMap<RunId, RunRow<'_>> {
    let mut runs = BTreeMap::new();
    for Row { head, told, .. } in rows {
        let run = runs.entry(head.run).or_insert(RunRow {
            principal: "",
            label: None,
            lifecycle: RunState::Pending,
            first: head.at,
            last: head.at,
        });
        run.principal = told.principal.as_deref().unwrap_or(run.principal);
        run.label = told.label.as_deref().or(run.label);
        run.lifecycle = run.lifecycle.after(head.kind);
        run.last = head.at;
    }
    runs
}

fn time(at: WallTime) -> SystemTime {
    UNIX_EPOCH + Duration::from_millis(at.epoch_ms.max(0).unsigned_abs())
}

impl Database {
    /// Copies rows into the database `identity`, and no other; returns the number of new rows.
    pub(super) async fn copy_events(
        &self,
        identity: &str,
        node: &str,
        rows: &[Row],
    ) -> Result<u64, DatabaseError> {
        const LAST: &str = "SELECT seq FROM sightline_log_progress WHERE node_id = $1";
        const NOTE: &str = "INSERT INTO sightline_log_progress (node_id, seq) VALUES ($1, $2) \
             ON CONFLICT (node_id) DO UPDATE SET seq = excluded.seq";
        const COPY: &str = "COPY sightline_log (node_id, seq, run_id, kind, appended_at, payload, \
             description) FROM STDIN BINARY";
        // The binary form of a payload is its text.
        const TYPES: [Type; 7] = [
            Type::TEXT,
            Type::INT8,
            Type::TEXT,
            Type::TEXT,
            Type::TIMESTAMPTZ,
            Type::TEXT,
            Type::TEXT,
        ];
        let work = async {
            let mut lease = self.connection().await?;
            let found: String = lease.query_one(IDENTITY, &[]).await?.try_get(0)?;
            if found != identity {
                return Err(DatabaseError::Replaced);
            }
            for at in days(rows) {
                make_partition(&lease, at).await?;
            }
            let transaction = lease.transaction().await?;
            let last = transaction.query_opt(LAST, &[&node]).await?;
            let last: i64 = last.map_or(Ok(0), |row| row.try_get(0))?;
            let known = rows.partition_point(|row| row.head.seq <= Seq(last.unsigned_abs()));
            let rows = &rows[known..];
            let Some(end) = rows.last() else {
                transaction.rollback().await?;
                return Ok((lease, 0));
            };
            let sink = transaction.copy_in(COPY).await?;
            let mut writer = std::pin::pin!(BinaryCopyInWriter::new(sink, &TYPES));
            for Row { head, payload, told } in rows {
                let (seq, run, at) = (head.seq.0 as i64, head.run.to_string(), time(head.at));
                let row: [&(dyn ToSql + Sync); 7] =
                    [&node, &seq, &run, &head.kind.as_str(), &at, payload, &told.description];
                writer.as_mut().write(&row).await?;
            }
            let copied = writer.finish().await?;
            transaction.execute(NOTE, &[&node, &(end.head.seq.0 as i64)]).await?;
            note_runs(&transaction, node, rows).await?;
            transaction.commit().await?;
            Ok((lease, copied))
        };
        self.bounded(work).await
    }
}

/// Returns one time of each day that has rows.
fn days(rows: &[Row]) -> Vec<WallTime> {
    let mut days: Vec<WallTime> = rows.iter().map(|row| row.head.at).collect();
    days.dedup_by_key(|at| at.epoch_ms.div_euclid(DAY_MS));
    days
}

/// Creates the partition for the day of `at` if missing; concurrent servers wait for each other.
async fn make_partition(
    client: &tokio_postgres::Client,
    at: WallTime,
) -> Result<(), tokio_postgres::Error> {
    let (day, next) = (at.date(), WallTime { epoch_ms: at.epoch_ms + DAY_MS }.date());
    let name = format!("sightline_log_{}", day.replace('-', ""));
    let known = client.query_one("SELECT to_regclass($1) IS NOT NULL", &[&name]).await?;
    if known.try_get(0)? {
        return Ok(());
    }
    let make = format!(
        "SELECT pg_advisory_xact_lock({LOCK}); CREATE TABLE IF NOT EXISTS {name} PARTITION OF \
         sightline_log FOR VALUES FROM ('{day} 00:00+00') TO ('{next} 00:00+00')"
    );
    client.batch_execute(&make).await
}

async fn note_runs(
    transaction: &deadpool_postgres::Transaction<'_>,
    node: &str,
    rows: &[Row],
) -> Result<(), tokio_postgres::Error> {
    const NOTE: &str = "INSERT INTO sightline_runs AS known \
         (node_id, run_id, principal, label, status, created_at, last_event_at) \
         SELECT $1, run_id, principal, coalesce(label, ''), status, created_at, last_event_at \
         FROM unnest ($2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], \
         $7::timestamptz[]) AS run (run_id, principal, label, status, created_at, last_event_at) \
         ON CONFLICT (node_id, run_id) DO UPDATE SET last_event_at = excluded.last_event_at, \
         label = CASE WHEN known.run_id = ANY ($8::text[]) THEN excluded.label ELSE known.label END, \
         status = CASE WHEN excluded.status = 'deleted' THEN 'deleted' \
         WHEN excluded.status <> 'pending' AND known.status IN ('pending', 'processing') \
         THEN excluded.status ELSE known.status END";
    let runs = runs(rows);
    let ids: Vec<String> = runs.keys().map(ToString::to_string).collect();
    let principals: Vec<&str> = runs.values().map(|run| run.principal).collect();
    let labels: Vec<Option<&str>> = runs.values().map(|run| run.label).collect();
    let statuses: Vec<&str> = runs.values().map(|run| run.lifecycle.as_str()).collect();
    let created: Vec<SystemTime> = runs.values().map(|run| time(run.first)).collect();
    let last: Vec<SystemTime> = runs.values().map(|run| time(run.last)).collect();
    let labelled: Vec<&String> =
        ids.iter().zip(&labels).filter_map(|(id, label)| label.map(|_| id)).collect();
    let columns: [&(dyn ToSql + Sync); 8] =
        [&node, &ids, &principals, &labels, &statuses, &created, &last, &labelled];
    let note = transaction.prepare_cached(NOTE).await?;
    transaction.execute(&note, &columns).await.map(drop)
}
