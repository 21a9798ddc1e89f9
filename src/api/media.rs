//! Stored stills, which the contract calls keyframes.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, Uri, header};
use media::{BlobHash, RequestId, RunId, Seq};
use serde::Serialize;
use timeline::{Event, EventKind, Timeline, TimelineError};
use utoipa::ToSchema;

use super::{
    ApiResult, App,
    conditions::{Conditions, Outcome, Version, evaluate},
    error::ApiError,
    extract::{Caller, Owned, Params},
    openapi::{Fails, terms},
    page::{PageQuery, linked, paging},
    wire::{KeyframeRecord, shown},
};

/// Content never changes under its hash, and belongs to one caller.
const CACHE: &str = "private, max-age=31536000, immutable";

fn read(
    timeline: &Timeline,
    run: RunId,
    from: Seq,
    limit: usize,
) -> Result<(Vec<KeyframeRecord>, Option<Seq>), TimelineError> {
    let mut page = timeline.read(run, from, limit + 1, Some(EventKind::KeyframeStored))?;
    let next = page.get(limit).map(|event| event.head.seq);
    page.truncate(limit);
    let mut records = Vec::with_capacity(page.len());
    for stored in page {
        if let Event::KeyframeStored(still) = stored.decode()? {
            records.push(KeyframeRecord::new(stored.head.seq, still));
        }
    }
    Ok((records, next))
}

/// Stored stills of a run.
#[derive(Serialize, ToSchema)]
struct RunKeyframes {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    keyframes: Vec<KeyframeRecord>,
}

/// List the stored stills of a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes", operation_id = "getKeyframes", tag = "timeline",
    params(PageQuery),
    responses((status = 200, description = "A page", body = RunKeyframes), Fails<503>),
)]
pub async fn list(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    params: Params,
    uri: Uri,
) -> ApiResult {
    let mut fields = params.fields()?;
    let paging = paging(&mut fields);
    fields.finish(|| Some(()))?;
    let (timeline, run_id) = (app.registry.timeline().clone(), run.id());
    let from = paging.cursor.unwrap_or_default();
    let (keyframes, next) = app
        .reading(&caller.principal, move || read(&timeline, run_id, from, paging.limit))
        .await??;
    let answer = RunKeyframes { request_id: caller.request_id, run_id, keyframes };
    Ok(linked(Json(answer), &uri, next))
}

/// Fetch a still.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes/{sha256}", operation_id = "getKeyframe", tag = "timeline",
    params(Conditions),
    responses(
        (status = 200, description = "The bytes", content_type = "image/jpeg", body = terms::Bytes, headers(
            ("etag" = String, description = "The hash in quotes"),
            ("cache-control" = String, description = "Private and immutable"),
        )),
        (status = 304, description = "The caller has it"),
        Fails<412>, Fails<503>,
    ),
)]
pub async fn fetch(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    Path((_run, sha256)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    let hash: BlobHash = sha256
        .parse()
        .map_err(|_| ApiError::field("sha256", "must be 64 lower-case hexadecimal digits"))?;
    let (timeline, blobs) = (app.registry.timeline().clone(), app.blobs.clone());
    let found = app.reading(&caller.principal, move || {
        if run.has_still(&timeline, &hash)? { blobs.get(&hash) } else { Ok(None) }
    });
    let bytes = found.await??.ok_or(ApiError::NotFound("keyframe"))?;
    let etag = format!("\"{hash}\"");
    let kept = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, CACHE.to_owned())];
    match evaluate(&headers, &Version { etag, modified: None }) {
        Outcome::Send => {}
        Outcome::NotModified => return Ok((StatusCode::NOT_MODIFIED, kept).into_response()),
        Outcome::Failed => return Err(ApiError::precondition_failed()),
    }
    Ok((kept, [(header::CONTENT_TYPE, "image/jpeg")], bytes).into_response())
}
