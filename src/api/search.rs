//! Substring search over stored descriptions.

use search::FoldedPattern;

use super::{prelude::*, send_budget};
use crate::deliver::search::SearchQuery;

/// Maximum length of a trimmed query, bytes.
pub const QUERY_BYTES_MAX: usize = 1024;
pub type SearchLimit = BoundedInt<1, 500>;
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
    /// Maximum number of hits; 50 when missing.
    #[schema(inline)]
    limit: Option<SearchLimit>,
    /// Run to search; all runs of the caller when missing.
    run_id: Option<schema_types::RunId>,
}

declared!(SearchRequest { query, limit, run_id });

/// Find descriptions that contain a text, ignoring case.
///
/// Searched is a payload's `description` or, if that is empty, its `summary`; of an episode of activity,
/// the names of the touched zones. Both sides are case-folded by the Unicode rules and not normalised. A
/// search covers every event acknowledged before its start.
#[utoipa::path(
    post, path = "/v1/search", operation_id = "search", tag = "timeline",
    request_body = SearchRequest,
    responses(
        (status = 200, description = "What was found", body = SearchResult),
        FailureResponse<404>, FailureResponse<503>,
    ),
)]
pub async fn search(Call(app, caller): Call, body: JsonBody) -> ApiResult {
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
    let found = app.search.find(wanted).await?;
    let hits = found.hits.into_iter().map(|hit| SearchHit {
        seq: hit.seq.0,
        run_id: hit.run.into(),
        pts_ms: hit.pts_ms,
        kind: hit.kind.into(),
        index_name: hit.index_name,
        description: hit.description,
        description_truncated: hit.is_truncated,
        snippet: hit.snippet,
    });
    Ok(Json(SearchResult {
        request_id: caller.request_id.into(),
        scanned: found.scanned,
        total_hits: found.total_hits,
        hits: hits.collect(),
        damaged_events: (found.damaged_events > 0).then_some(found.damaged_events),
    })
    .into_response())
}

/// Result of a search.
#[derive(Serialize, ToSchema)]
pub struct SearchResult {
    /// Id of the request.
    request_id: schema_types::RequestId,
    /// Number of descriptions examined: of the caller's runs, or of the one run.
    scanned: u64,
    /// Number of descriptions that contain the query.
    total_hits: u64,
    /// First hits in the order of `seq`, oldest first.
    hits: Vec<SearchHit>,
    /// Number of damaged events that the search leaves out, each of which may be a hit; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64)]
    damaged_events: Option<u64>,
}

/// A description that contains the query.
#[derive(Serialize, ToSchema)]
pub struct SearchHit {
    /// Sequence number of the event.
    seq: u64,
    run_id: schema_types::RunId,
    /// Media time, milliseconds; null if the event has none.
    #[schema(required = true)]
    pts_ms: Option<i64>,
    kind: schema_types::EventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<schema_types::Label>)]
    index_name: Option<String>,
    /// Searched text, truncated to 4096 bytes.
    description: String,
    /// True if the text is truncated; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    description_truncated: bool,
    /// The match with at most 80 bytes before and after it, in the original spelling.
    snippet: String,
}
