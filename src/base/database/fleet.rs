//! Queries over the runs and descriptions of all servers that mirror every event to the database.

use tokio_postgres::{Row, types::ToSql};

use super::{Database, DatabaseError};
use crate::base::keys::Principal;

impl Database {
    /// Returns the newest runs of `principal` on all servers, as `read` from `node_id`, `run_id`, `label`, empty if
    /// the run has none, `status`, `created_ms` and `last_event_ms`.
    pub async fn fleet_runs<T>(
        &self,
        principal: &Principal,
        limit: usize,
        read: fn(&Row) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        const SELECT: &str = "SELECT node_id, run_id, label, status, \
             (extract(epoch FROM created_at) * 1000)::bigint AS created_ms, \
             (extract(epoch FROM last_event_at) * 1000)::bigint AS last_event_ms FROM sightline_runs \
             WHERE principal = $1 AND status <> 'deleted' ORDER BY created_at DESC LIMIT $2";
        let work = async {
            let lease = self.connection().await?;
            let select = lease.prepare_cached(SELECT).await?;
            let rows = lease.query(&select, &[&principal.as_str(), &(limit as i64)]).await?;
            Ok((lease, rows.iter().map(read).collect::<Result<_, DatabaseError>>()?))
        };
        self.bounded(work).await
    }

    /// Returns the newest descriptions in runs of `principal`, on all servers, that contain `text`, as `read` from
    /// `node_id`, `run_id`, `label`, `seq`, `kind`, `appended_ms`, and the first 1024 characters of `description`.
    pub async fn fleet_search<T>(
        &self,
        principal: &Principal,
        text: &str,
        limit: usize,
        read: fn(&Row) -> Result<T, DatabaseError>,
    ) -> Result<Vec<T>, DatabaseError> {
        // Servers of earlier versions copy a text of state transitions too, which repeats a description's.
        const SELECT: &str = "SELECT node_id, run_id, run.label, log.seq, log.kind, \
             (extract(epoch FROM log.appended_at) * 1000)::bigint AS appended_ms, \
             left(log.description, 1024) AS description \
             FROM sightline_log log JOIN sightline_runs run USING (node_id, run_id) \
             WHERE log.description ILIKE $2 AND log.kind <> 'state_transition' \
             AND run.principal = $1 AND run.status <> 'deleted' \
             ORDER BY log.appended_at DESC LIMIT $3";
        // Escapes the wildcards of LIKE.
        let escaped = text.replace('\\', r"\\").replace('%', r"\%").replace('_', r"\_");
        let pattern = format!("%{escaped}%");
        let work = async {
            let lease = self.connection().await?;
            let wanted: [&(dyn ToSql + Sync); 3] = [&principal.as_str(), &pattern, &(limit as i64)];
            // Not prepared, so that the planner sees the pattern.
            let rows = lease.query(SELECT, &wanted).await?;
            Ok((lease, rows.iter().map(read).collect::<Result<_, DatabaseError>>()?))
        };
        self.bounded(work).await
    }
}
