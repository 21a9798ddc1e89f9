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

use super::{
    ApiResult, App,
    error::ApiError,
    extract::{Caller, Owned, Params},
    page::{linked, paging},
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

/// `GET /v1/runs/{id}/keyframes`
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
    let (keyframes, next) =
        app.blocking(move || read(&timeline, run_id, from, paging.limit)).await??;
    #[derive(Serialize)]
    struct Answer {
        #[serde(serialize_with = "shown")]
        request_id: RequestId,
        #[serde(serialize_with = "shown")]
        run_id: RunId,
        keyframes: Vec<KeyframeRecord>,
    }
    let answer = Answer { request_id: caller.request_id, run_id, keyframes };
    Ok(linked(Json(answer), &uri, next))
}

/// `GET /v1/runs/{id}/keyframes/{sha256}`
pub async fn fetch(
    State(app): State<Arc<App>>,
    Owned(run): Owned,
    Path((_, sha256)): Path<(String, String)>,
    headers: HeaderMap,
) -> ApiResult {
    let hash: BlobHash = sha256
        .parse()
        .map_err(|_| ApiError::field("sha256", "must be 64 lower-case hexadecimal digits"))?;
    let (timeline, blobs) = (app.registry.timeline().clone(), app.blobs.clone());
    let found =
        app.blocking(
            move || {
                if run.has_still(&timeline, &hash)? { blobs.get(&hash) } else { Ok(None) }
            },
        );
    let bytes = found.await??.ok_or(ApiError::NotFound("keyframe"))?;
    let etag = format!("\"{hash}\"");
    let kept = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, CACHE.to_owned())];
    if is_known(&headers, &etag) {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    Ok((kept, [(header::CONTENT_TYPE, "image/jpeg")], bytes).into_response())
}

/// Whether the caller says it has this version (RFC 9110 13.1.2, weak comparison).
fn is_known(headers: &HeaderMap, etag: &str) -> bool {
    let listed = headers.get_all(header::IF_NONE_MATCH).into_iter();
    let listed = listed.filter_map(|value| value.to_str().ok()).flat_map(|text| text.split(','));
    listed.map(str::trim).any(|known| known == "*" || known.trim_start_matches("W/") == etag)
}
