//! Substring search over stored descriptions.

use std::sync::Arc;

use axum::{Json, extract::State, response::IntoResponse};
use search::FoldedPattern;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::{
    ApiResult, App,
    error::ApiError,
    extract::{Caller, JsonBody},
    openapi::{FailureResponse, schema_types},
    send_budget,
};
use crate::{
    base::json::{BoundedInt, ValueError, declared},
    deliver::search::{Hit, SearchOutcome, SearchQuery},
};

/// Maximum length of a trimmed query, bytes.
pub const QUERY_BYTES_MAX: usize = 1024;
/// Maximum number of hits in an answer.
pub type SearchLimit = BoundedInt<1, 500>;
/// Default of [`SearchLimit`].
pub const SEARCH_DEFAULT: u64 = 50;

/// Reads the query, without surrounding white space.
pub fn needle(value: &Value) -> Result<FoldedPattern, ValueError> {
    let query = value.as_str().map(str::trim).filter(|query| query.len() <= QUERY_BYTES_MAX);
    query.and_then(FoldedPattern::new).ok_or_else(|| {
        format!(
            "must be a string of 1 to {QUERY_BYTES_MAX} bytes without the white space around it"
        )
        .into()
    })
}

/// Query and scope of a search.
#[derive(ToSchema)]
struct SearchRequest {
    query: schema_types::SearchText,
    /// Most hits; 50 when missing.
    #[schema(inline)]
    limit: Option<SearchLimit>,
    /// Only descriptions of this run; those of every run of the caller when missing.
    run_id: Option<schema_types::RunId>,
}

declared!(SearchRequest { query, limit, run_id });

/// Find the descriptions that have a text in them, whatever the case of either.
///
/// A description is the payload's `description`, or its `summary` where that is empty; of an episode of activity it is
/// the names of the zones that it touches. Both
/// sides are case-folded as Unicode says and compared without normalisation. A search sees
/// every event that was acknowledged before it began.
#[utoipa::path(
    post, path = "/v1/search", operation_id = "search", tag = "timeline",
    request_body = SearchRequest,
    responses(
        (status = 200, description = "What was found", body = SearchResult),
        FailureResponse<404>, FailureResponse<503>,
    ),
)]
pub async fn search(State(app): State<Arc<App>>, caller: Caller, body: JsonBody) -> ApiResult {
    let SearchRequest { query, limit, run_id } = body.read()?;
    let find = |id| app.registry.find(id, &caller.principal);
    let run = match run_id {
        Some(schema_types::RunId(id)) => Some(find(id).ok_or(ApiError::RUN_NOT_FOUND)?.id()),
        None => None,
    };
    send_budget::check(&app, &caller.principal)?;
    let limit = limit.map_or(SEARCH_DEFAULT, |BoundedInt(limit)| limit) as usize;
    let wanted = SearchQuery { owner: caller.principal, run, needle: query.0, limit };
    let _timer = app.metrics.search_seconds.start_timer();
    let SearchOutcome { scanned, total_hits, hits } = app.search.find(wanted).await?;
    let hits = hits.into_iter().map(SearchHit::from).collect();
    Ok(Json(SearchResult { request_id: caller.request_id.into(), scanned, total_hits, hits })
        .into_response())
}

/// Result of a search.
#[derive(Serialize, ToSchema)]
pub struct SearchResult {
    /// The request.
    request_id: schema_types::RequestId,
    /// Descriptions examined: those of the caller's runs, or of the one run asked for.
    scanned: u64,
    /// Number of these that have the query in them.
    total_hits: u64,
    /// The first of them, by `seq`.
    hits: Vec<SearchHit>,
}

/// A description that has the query in it.
#[derive(Serialize, ToSchema)]
pub struct SearchHit {
    /// Its event.
    seq: u64,
    run_id: schema_types::RunId,
    /// Media time, ms; null where the event has none.
    #[schema(required = true)]
    pts_ms: Option<i64>,
    kind: schema_types::EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema_types::Label>)]
    index_name: Option<String>,
    /// Text that was searched, at most 4096 bytes of it.
    description: String,
    /// True where there is more of it; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    description_truncated: bool,
    /// The match and at most 80 bytes before and after it, as they were written.
    snippet: String,
}

impl From<Hit> for SearchHit {
    fn from(hit: Hit) -> SearchHit {
        SearchHit {
            seq: hit.seq.0,
            run_id: hit.run.into(),
            pts_ms: hit.pts_ms,
            kind: hit.kind.into(),
            index_name: hit.index_name,
            description: hit.description,
            description_truncated: hit.is_truncated,
            snippet: hit.snippet,
        }
    }
}
