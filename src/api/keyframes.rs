//! Stored stills, called keyframes in the API.

use axum::extract::Path;
use media::BlobHash;
use timeline::Event;

use super::{
    conditional::{Preconditions, ResourceVersion, caller_is_current},
    extract::RawParams,
    prelude::*,
    streamed_json::{DamagedEvents, Snapshot},
    tickets::TicketQuery,
};

/// The content of a hash never changes, and belongs to one caller.
const CACHE: &str = "private, max-age=31536000, immutable";

/// A stored still.
#[derive(Serialize, ToSchema)]
struct Keyframe {
    /// Sequence number of the event that names the still.
    seq: u64,
    frame_index: u64,
    /// Presentation time of the frame, milliseconds.
    pts_ms: i64,
    event_type: String,
    /// Reason why the gate selected the frame; null for stills of an older server.
    #[schema(value_type = Option<schema_types::GateReason>, required = true)]
    reason: Option<String>,
    /// Description; empty if there is none.
    description: String,
    /// Path of the image.
    image_ref: String,
    #[schema(value_type = schema_types::Jpeg)]
    image_media_type: &'static str,
    image_bytes: u64,
    image_sha256: schema_types::Sha256,
}

/// Returns the stored stills of `run` from the event `from` on.
fn stills(
    timeline: &Timeline,
    run: &Arc<Run>,
    from: Seq,
    damaged: DamagedEvents,
) -> impl Iterator<Item = ApiResult<Keyframe>> + Send + 'static {
    let events = Snapshot::new(timeline, run, from, Some(EventKind::KeyframeStored));
    events.filter(move |event| damaged.intact(event)).filter_map(|event| {
        let read = event.and_then(|event| Ok((event.head.seq, event.decode()?)));
        match read {
            Ok((seq, Event::KeyframeStored(still))) => Some(Ok(Keyframe {
                seq: seq.0,
                frame_index: still.frame_index,
                pts_ms: still.pts_ms,
                event_type: still.event_type.as_str().to_owned(),
                reason: still.reason,
                description: still.description,
                image_ref: still.image_ref,
                image_media_type: "image/jpeg",
                image_bytes: still.image_bytes,
                image_sha256: still.image_sha256.into(),
            })),
            Ok(_) => None,
            Err(error) => Some(Err(error)),
        }
    })
}

/// Stored stills of a run.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `list` writes")]
struct RunKeyframes {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    keyframes: Vec<Keyframe>,
    /// Number of events that cannot be read, so that this answer leaves them out; absent if there are none.
    #[schema(required = false)]
    damaged_events: u64,
}

/// List the stored stills of a run.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes", operation_id = "getKeyframes", tag = "timeline",
    params(PageQuery),
    responses((status = 200, description = "The stills", body = RunKeyframes), FailureResponse<503>),
)]
pub async fn list(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams(page): QueryParams<PageQuery>,
    uri: Uri,
) -> ApiResult {
    let timeline = app.registry.timeline().clone();
    let (request_id, run_id) = (caller.request_id, run.id());
    let before = format!(r#"{{"request_id":"{request_id}","run_id":"{run_id}","keyframes":"#);
    let damaged = DamagedEvents::default();
    let made = app.reading(&caller.principal, move || {
        let from = page.cursor.unwrap_or_default();
        let mut stills = stills(&timeline, &run, from, damaged.clone());
        let end = move || damaged.end();
        let Some(limit) = page.limit else {
            return Ok((listed(before, record_texts(stills), end, READING_BYTES)?, None));
        };
        let page = stills.by_ref().take(limit).collect::<Result<Vec<_>, _>>()?;
        let next = stills.next().transpose()?.map(|still| still.seq);
        let items = record_texts(page.into_iter().map(Ok));
        Ok::<_, ApiError>((listed(before, items, end, READING_BYTES)?, next))
    });
    let (answer, next) = made.await??;
    Ok(linked(answer, &uri, next))
}

pub type StillEdge = BoundedInt<32, 4096>;

/// Size of the requested still.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
struct StillQuery {
    /// Maximum length of the longer edge in pixels; a larger still is scaled down.
    #[param(inline)]
    max_edge: Option<StillEdge>,
}

declared!(StillQuery { max_edge });

/// Fetch a still, optionally scaled down.
#[utoipa::path(
    get, path = "/v1/runs/{id}/keyframes/{sha256}", operation_id = "getKeyframe", tag = "timeline",
    params(StillQuery, TicketQuery, Preconditions),
    responses(
        (status = 200, description = "The bytes", content_type = "image/jpeg", body = schema_types::Bytes, headers(
            ("etag" = String, description = "The hash of the still, and the edge, in quotes"),
            ("cache-control" = String, description = "Private and immutable"),
        )),
        (status = 304, description = "Not modified: the caller has this version"),
        FailureResponse<412>, FailureResponse<503>,
    ),
)]
pub async fn fetch(
    OwnedRun(app, caller, run): OwnedRun,
    Path((_run, sha256)): Path<(String, String)>,
    params: RawParams,
    headers: HeaderMap,
) -> ApiResult {
    let mut faults = Faults::default();
    let query = faults.part("", params.read());
    let hash = sha256.parse::<BlobHash>();
    let hash = faults.part("sha256", hash.map_err(|error| ValueError::from(error.problem)));
    let (StillQuery { max_edge }, hash) = faults.finish(|| query.zip(hash))?;
    let edge = max_edge.map(|BoundedInt(edge)| edge as u32);
    let (reader, principal) = (Arc::clone(&app), &caller.principal);
    let read = move || picture(&reader, &run, hash, edge);
    let places = if app.blobs.is_here(&hash) { &app.readers } else { &app.fetchers };
    let bytes =
        app.in_turn(places, principal, read).await??.ok_or(ApiError::NotFound("keyframe"))?;
    let etag = edge.map_or_else(|| format!("\"{hash}\""), |edge| format!("\"{hash}-{edge}\""));
    let kept = [(header::ETAG, etag.clone()), (header::CACHE_CONTROL, CACHE.to_owned())];
    if caller_is_current(&headers, &ResourceVersion { etag, modified: None })? {
        return Ok((StatusCode::NOT_MODIFIED, kept).into_response());
    }
    Ok((kept, [(header::CONTENT_TYPE, "image/jpeg")], bytes).into_response())
}

/// Returns the still of `run` with this hash, scaled down to `edge` if that is given.
fn picture(app: &App, run: &Run, hash: BlobHash, edge: Option<u32>) -> ApiResult<Option<Bytes>> {
    let Some(bytes) = run.still_bytes(app.registry.timeline(), &hash)? else { return Ok(None) };
    let kept =
        edge.and_then(|edge| app.small_stills.kept(&hash, edge)).filter(|_| app.blobs.has(&hash));
    if kept.is_some() {
        return Ok(kept);
    }
    let Some(still) = app.blobs.get(&hash, bytes)? else { return Ok(None) };
    let Some(edge) = edge else { return Ok(Some(still.into())) };
    app.small_stills.make(hash, still, edge).map(Some).map_err(ApiError::Shrink)
}
