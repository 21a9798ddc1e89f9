//! Queries over the runs and descriptions of all servers that mirror every event to the database.

use media::WallTime;
use tokio_postgres::Row;

use super::{Database, DatabaseError};
use crate::base::keys::Principal;

/// A run of one of the servers, mirrored to the database.
#[derive(Clone, Debug)]
pub struct FleetRun {
    pub node: String,
    pub run: String,
    /// Label of the run; empty if it has none.
    pub label: String,
    /// State of the run, derived from its mirrored events.
    pub status: String,
    /// Time of the run's first event.
    pub created_at: WallTime,
    pub last_event_at: WallTime,
}

/// A description that contains the searched text.
#[derive(Clone, Debug)]
pub struct FleetHit {
    pub node: String,
    pub run: String,
    /// Label of the run; empty if it has none.
    pub label: String,
    /// Sequence number of the event in the log of that server.
    pub seq: u64,
    pub kind: String,
    pub appended_at: WallTime,
    /// First 1024 characters of the description.
    pub description: String,
}

impl Database {
    /// Returns the newest runs of `principal` on all servers.
    pub async fn fleet_runs(
        &self,
        principal: &Principal,
        limit: usize,
    ) -> Result<Vec<FleetRun>, DatabaseError> {
        const SELECT: &str = "SELECT node_id, run_id, label, status, \
             (extract(epoch FROM created_at) * 1000)::bigint, \
             (extract(epoch FROM last_event_at) * 1000)::bigint FROM sightline_runs \
             WHERE principal = $1 AND status <> 'deleted' ORDER BY created_at DESC LIMIT $2";
        let work = async {
            let lease = self.connection().await?;
            let select = lease.prepare_cached(SELECT).await?;
            let rows = lease.query(&select, &[&principal.as_str(), &(limit as i64)]).await?;
            Ok((lease, rows.iter().map(run).collect::<Result<_, _>>()?))
        };
        self.bounded(work).await
    }

    /// Returns the newest descriptions in runs of `principal`, on all servers, that contain `text`.
    pub async fn fleet_search(
        &self,
        principal: &Principal,
        text: &str,
        limit: usize,
    ) -> Result<Vec<FleetHit>, DatabaseError> {
        const SELECT: &str = "SELECT node_id, run_id, run.label, log.seq, log.kind, \
             (extract(epoch FROM log.appended_at) * 1000)::bigint, left(log.description, 1024) \
             FROM sightline_log log JOIN sightline_runs run USING (node_id, run_id) \
             WHERE log.description ILIKE $2 AND run.principal = $1 AND run.status <> 'deleted' \
             ORDER BY log.appended_at DESC LIMIT $3";
        // Escapes the wildcards of LIKE.
        let escaped = text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
        let pattern = format!("%{escaped}%");
        let work = async {
            let lease = self.connection().await?;
            let wanted: [&(dyn tokio_postgres::types::ToSql + Sync); 3] =
                [&principal.as_str(), &pattern, &(limit as i64)];
            // Not prepared, so that the planner sees the pattern.
            let rows = lease.query(SELECT, &wanted).await?;
            Ok((lease, rows.iter().map(hit).collect::<Result<_, _>>()?))
        };
        self.bounded(work).await
    }
}

fn time(row: &Row, column: usize) -> Result<WallTime, tokio_postgres::Error> {
    Ok(WallTime { epoch_ms: row.try_get(column)? })
}

fn run(row: &Row) -> Result<FleetRun, tokio_postgres::Error> {
    Ok(FleetRun {
        node: row.try_get(0)?,
        run: row.try_get(1)?,
        label: row.try_get(2)?,
        status: row.try_get(3)?,
        created_at: time(row, 4)?,
        last_event_at: time(row, 5)?,
    })
}

fn hit(row: &Row) -> Result<FleetHit, tokio_postgres::Error> {
    Ok(FleetHit {
        node: row.try_get(0)?,
        run: row.try_get(1)?,
        label: row.try_get(2)?,
        // Sequence numbers start at 1.
        seq: row.try_get::<_, i64>(3)?.unsigned_abs(),
        kind: row.try_get(4)?,
        appended_at: time(row, 5)?,
        description: row.try_get(6)?,
    })
}
