//! Stored stills, which the contract calls keyframes.

use std::sync::Arc;

use axum::{
    extract::{Path, State},
    response::IntoResponse,
};
use http::{HeaderMap, StatusCode, Uri, header};
use media::{BlobHash, Seq};
use timeline::{Event, EventKind, Timeline};
use utoipa::ToSchema;

use super::{
    ApiResult, App,
    conditions::{Conditions, Outcome, Version, evaluate},
    error::ApiError,
    extract::{Caller, Owned, Params},
    openapi::{Fails, terms},
    page::{PageQuery, linked, paging},
    pieces::{READING_BYTES, Snapshot, list as listed, record_texts},
    tickets::TicketQuery,
    wire::KeyframeRecord,
};
use crate::session::registry::Run;

/// Content never changes under its hash, and belongs to one caller.
const CACHE: &str = "private, max-age=31536000, immutable";

/// The stored stills of `run` from `from` on.
fn stills(
    timeline: &Timeline,
    run: &Arc<Run>,
    from: Seq,
) -> impl Iterator<Item = Result<KeyframeRecord, ApiError>> + Send + 'static {
    let events = Snapshot::new(timeline, run, from, Some(EventKind::KeyframeStored));
    events.filter_map(|event| {
        let read = event.and_then(|event| Ok((event.head.seq, event.decode()?)));
        match read {
            Ok((seq, Event::KeyframeStored(still))) => Some(Ok(KeyframeRecord::new(seq, still))),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })
}

/// Stored stills of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunKeyframes {
    request_id: terms::RequestId,
    run_id: terms::RunId,
    keyframes: Vec<KeyframeRecord>,
}

/// List the stored stills of a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes", operation_id = "getKeyframes", tag = "timeline",
    params(PageQuery),
    responses((status = 200, description = "The stills", body = RunKeyframes), Fails<503>),
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
    let timeline = app.registry.timeline().clone();
    let (request_id, run_id) = (caller.request_id, run.id());
    let before = format!(r#"{{"request_id":"{request_id}","run_id":"{run_id}","keyframes":"#);
    let end = || "}".to_owned();
    let made = app.reading(&caller.principal, move || {
        let mut stills = stills(&timeline, &run, paging.cursor.unwrap_or_default());
        let Some(limit) = paging.limit else {
            return Ok((listed(before, record_texts(stills), end, READING_BYTES)?, None));
        };
        let page = stills.by_ref().take(limit).collect::<Result<Vec<_>, _>>()?;
        let next = stills.next().transpose()?.map(|still| still.seq());
        let items = record_texts(page.into_iter().map(Ok));
        Ok::<_, ApiError>((listed(before, items, end, READING_BYTES)?, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}

/// Fetch a still.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes/{sha256}", operation_id = "getKeyframe", tag = "timeline",
    params(TicketQuery, Conditions),
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
        run.still_bytes(&timeline, &hash)?.map_or(Ok(None), |bytes| blobs.get(&hash, bytes))
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
