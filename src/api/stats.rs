//! `GET /v1/stats`: the last hour by minutes.

use std::time::Instant;

use super::prelude::*;
use crate::base::{
    clock::wall_now,
    metrics::Tally,
    stats::{MINUTES_MAX, Machine, Point, Snapshot},
};

/// Number of minutes in an answer.
pub type Minutes = BoundedInt<1, { MINUTES_MAX as u64 }>;

/// Minutes to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct StatsQuery {
    /// Number of minutes, the current one included; 60 when missing.
    #[param(inline)]
    minutes: Option<Minutes>,
}

declared!(StatsQuery { minutes });

/// Statistics of the last minutes.
#[derive(Serialize, ToSchema)]
pub struct Stats {
    request_id: schema_types::RequestId,
    /// Minutes, oldest first; the last is the current one. Fewer than requested soon after a start.
    points: Vec<StatsMinute>,
}

/// Statistics of one minute.
#[derive(Serialize, ToSchema)]
struct StatsMinute {
    /// End of the minute; of the current minute, the time of the answer.
    at: schema_types::Timestamp,
    /// Length of the minute in seconds; of the current minute, the part so far.
    seconds: f64,
    own: CallerMinute,
    machine: MachineMinute,
}

/// Counts of the caller's own work in a minute.
#[derive(Serialize, ToSchema)]
struct CallerMinute {
    /// Frames that the gate decided about, in ingests, reasonings, analyses and live sessions.
    frames: u64,
    /// Frames among them that the gate selected.
    kept: u64,
    /// Descriptions returned by models.
    descriptions: u64,
    /// Tokens of the answers of models.
    tokens: u64,
    /// Requests refused by a limit.
    refused: u64,
}

/// Figures of the machine in a minute, for the work of all principals.
#[derive(Serialize, ToSchema)]
struct MachineMinute {
    frames_per_second: f64,
    kept_per_second: f64,
    /// Descriptions returned by models, per minute.
    descriptions_per_minute: f64,
    /// Average wait of inferences for a permit; null if there was no inference.
    #[schema(required = true)]
    model_wait_ms: Option<f64>,
    /// Requests refused by a limit.
    refused: u64,
    /// Average time of a sync of the log; null if there was none.
    #[schema(required = true)]
    log_commit_ms: Option<f64>,
    /// Live sessions at the end of the minute.
    live_sessions: u64,
    /// Jobs running or waiting at the end of the minute, without live sessions.
    jobs: u64,
    /// CPU use of the machine, other programs included; null if the system does not report it.
    #[schema(required = true)]
    cpu_percent: Option<f64>,
    /// Memory use of the machine at the end of the minute; null if the system does not report it.
    #[schema(required = true)]
    memory_percent: Option<f64>,
    /// Resident memory of the server at the end of the minute, without media workers.
    server_memory_bytes: u64,
}

/// Return the statistics of the last hour by minute: of the caller's own work, and of the machine.
///
/// Kept in memory only; a restart of the server clears them.
#[utoipa::path(
    get, path = "/v1/stats", operation_id = "getStats", tag = "server",
    params(StatsQuery),
    responses((status = 200, description = "The minutes", body = Stats)),
)]
pub async fn list(
    Call(app, caller): Call,
    QueryParams(StatsQuery { minutes }): QueryParams<StatsQuery>,
) -> ApiResult<Json<Stats>> {
    let minutes = minutes.map_or(MINUTES_MAX, |BoundedInt(minutes)| minutes as usize);
    let owner = caller.principal;
    let reader = Arc::clone(&app);
    let points =
        app.blocking(move || reader.tables.stats.points(minutes, &owner, &reader.counted()));
    let points = points.await?.iter().map(StatsMinute::from).collect();
    Ok(Json(Stats { request_id: caller.request_id.into(), points }))
}

impl App {
    /// Returns the counts up to now; reads files in `/proc`.
    pub fn counted(&self) -> Snapshot {
        let machine = Machine::look(&self.metrics, self.registry.busy_runs());
        let at = (Instant::now(), wall_now());
        Snapshot { at, machine, owners: self.metrics.owners.tallies() }
    }
}

/// Rounds to two decimals: enough for a chart.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

impl From<&Point> for StatsMinute {
    fn from(point: &Point) -> StatsMinute {
        let Point { at, span, machine: (before, after), own, descriptions } = point;
        let seconds = span.as_secs_f64();
        let a_second = |now: u64, then: u64| {
            if seconds > 0.0 { rounded(now.saturating_sub(then) as f64 / seconds) } else { 0.0 }
        };
        let mean_ms = |now: (u64, f64), then: (u64, f64)| {
            let count = now.0.saturating_sub(then.0);
            (count > 0).then(|| rounded((now.1 - then.1) * 1e3 / count as f64))
        };
        let ticks = after
            .ticks
            .zip(before.ticks)
            .map(|(now, then)| (now.0.saturating_sub(then.0), now.1.saturating_sub(then.1)));
        let percent = |share: f64| rounded((share * 100.0).clamp(0.0, 100.0));
        let Tally { frames, kept, descriptions: said, tokens, refused } = *own;
        StatsMinute {
            at: (*at).into(),
            seconds: rounded(seconds),
            own: CallerMinute { frames, kept, descriptions: said, tokens, refused },
            machine: MachineMinute {
                frames_per_second: a_second(after.frames, before.frames),
                kept_per_second: a_second(after.kept, before.kept),
                descriptions_per_minute: a_second(60 * descriptions, 0),
                model_wait_ms: mean_ms(after.waits, before.waits),
                refused: after.refused.saturating_sub(before.refused),
                log_commit_ms: mean_ms(after.syncs, before.syncs),
                live_sessions: after.live_sessions,
                jobs: after.jobs,
                cpu_percent: ticks
                    .filter(|(_, all)| *all > 0)
                    .map(|(busy, all)| percent(busy as f64 / all as f64)),
                memory_percent: after.memory_used.map(percent),
                server_memory_bytes: after.server_bytes,
            },
        }
    }
}
