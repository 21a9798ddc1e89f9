//! Lists and searches the caller's runs on all servers that mirror their events to one database.

use media::WallTime;
use tokio_postgres::Row;

use super::{
    pagination::PageLimit,
    prelude::*,
    search::{QUERY_BYTES_MAX, SEARCH_DEFAULT, SearchLimit},
};
use crate::base::database::DatabaseError;

const RUNS_DEFAULT: u64 = 100;

/// Runs to list.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct FleetQuery {
    /// Maximum number of runs; 100 when missing.
    #[param(inline)]
    limit: Option<PageLimit>,
}

declared!(FleetQuery { limit });

/// A run of one of the servers.
#[derive(Serialize, ToSchema)]
struct FleetRun {
    /// Server that holds the run.
    node: String,
    #[schema(value_type = schema_types::RunId)]
    run_id: String,
    #[schema(required = true)]
    label: Option<String>,
    status: String,
    created_at: schema_types::Timestamp,
    last_event_at: schema_types::Timestamp,
}

impl FleetRun {
    fn of(row: &Row) -> Result<FleetRun, DatabaseError> {
        Ok(FleetRun {
            node: row.try_get("node_id")?,
            run_id: row.try_get("run_id")?,
            label: label(row)?,
            status: row.try_get("status")?,
            created_at: time(row, "created_ms")?,
            last_event_at: time(row, "last_event_ms")?,
        })
    }
}

fn label(row: &Row) -> Result<Option<String>, DatabaseError> {
    let label: String = row.try_get("label")?;
    Ok((!label.is_empty()).then_some(label))
}

fn time(row: &Row, column: &str) -> Result<schema_types::Timestamp, DatabaseError> {
    Ok(WallTime { epoch_ms: row.try_get(column)? }.into())
}

/// Runs of every server, newest first.
#[derive(Serialize, ToSchema)]
struct FleetRuns {
    request_id: schema_types::RequestId,
    runs: Vec<FleetRun>,
}

/// List the caller's runs on every server that mirrors all events to this one's database.
#[utoipa::path(
    get, path = "/v1/fleet/runs", operation_id = "listFleetRuns", tag = "fleet",
    params(FleetQuery),
    responses((status = 200, description = "The runs", body = FleetRuns)),
)]
pub async fn list(
    Call(app, caller): Call,
    QueryParams(FleetQuery { limit }): QueryParams<FleetQuery>,
) -> ApiResult {
    let limit = limit.map_or(RUNS_DEFAULT, |BoundedInt(limit)| limit) as usize;
    let runs = app.database()?.fleet_runs(&caller.principal, limit, FleetRun::of).await?;
    Ok(Json(FleetRuns { request_id: caller.request_id.into(), runs }).into_response())
}

/// Text to search for.
#[derive(ToSchema)]
struct FleetSearchRequest {
    #[schema(value_type = schema_types::SearchText)]
    query: String,
    /// Maximum number of hits; 50 when missing.
    #[schema(inline)]
    limit: Option<SearchLimit>,
}

declared!(FleetSearchRequest { query: required needle, limit });

/// A description that contains the text.
#[derive(Serialize, ToSchema)]
struct FleetHit {
    /// Server that holds the run.
    node: String,
    #[schema(value_type = schema_types::RunId)]
    run_id: String,
    /// Label of the run.
    #[schema(required = true)]
    label: Option<String>,
    /// Sequence number of the event in the log of that server.
    seq: u64,
    kind: String,
    appended_at: schema_types::Timestamp,
    /// Searched text, truncated to 1024 characters.
    description: String,
}

impl FleetHit {
    fn of(row: &Row) -> Result<FleetHit, DatabaseError> {
        Ok(FleetHit {
            node: row.try_get("node_id")?,
            run_id: row.try_get("run_id")?,
            label: label(row)?,
            // Sequence numbers start at 1.
            seq: row.try_get::<_, i64>("seq")?.unsigned_abs(),
            kind: row.try_get("kind")?,
            appended_at: time(row, "appended_ms")?,
            description: row.try_get("description")?,
        })
    }
}

/// Descriptions of every server that contain the text, newest first.
#[derive(Serialize, ToSchema)]
struct FleetHits {
    request_id: schema_types::RequestId,
    hits: Vec<FleetHit>,
}

/// Reads the search text, without surrounding white space.
fn needle(value: &Value) -> Result<String, ValueError> {
    let text = value.as_str().map(str::trim).filter(|text| !text.contains('\0'));
    let text = text.filter(|text| (1..=QUERY_BYTES_MAX).contains(&text.len()));
    text.map(str::to_owned).ok_or_else(|| {
        format!(
            "must be a string of 1 to {QUERY_BYTES_MAX} bytes without the white space around it"
        )
        .into()
    })
}

/// Find descriptions of the caller's runs on every server that mirrors all events to this one's database.
///
/// Case is ignored. A description is found once its server has mirrored it.
#[utoipa::path(
    post, path = "/v1/fleet/search", operation_id = "searchFleet", tag = "fleet",
    request_body = FleetSearchRequest,
    responses((status = 200, description = "What was found", body = FleetHits)),
)]
pub async fn search(Call(app, caller): Call, body: JsonBody) -> ApiResult {
    let FleetSearchRequest { query, limit } = body.read()?;
    let limit = limit.map_or(SEARCH_DEFAULT, |BoundedInt(limit)| limit) as usize;
    let hits = app.database()?.fleet_search(&caller.principal, &query, limit, FleetHit::of).await?;
    Ok(Json(FleetHits { request_id: caller.request_id.into(), hits }).into_response())
}
