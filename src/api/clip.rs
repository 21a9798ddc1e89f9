//! Serves a part of a run's source as a file, cut by a worker while it is sent.

use axum::Extension;
use decode::{DecodeError, ExcerptContainer, ExcerptStart};
use worker::{ExcerptEvent, JobFault, WorkerError};

use super::{
    prelude::*,
    send_budget::{self, BufferedBytes},
    source::find,
    tickets::TicketQuery,
};
use crate::{
    base::stepped_body::{Step, joined, stepped},
    record::runner::{EXCERPT_MS_MAX, Excerpt, ExcerptRest, IngestError},
};

/// Media time in a request, milliseconds.
type ClipTime = BoundedInt<0, { i64::MAX as u64 }>;

/// Response header with the media time at which the clip begins.
const STARTS_AT: &str = "x-clip-starts-at-ms";

/// Part of the source to send.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ClipQuery {
    /// Start of the clip in media time, as in a signal's `pts_ms`; the clip begins at the keyframe before it.
    #[param(inline)]
    from_ms: ClipTime,
    /// End of the clip in media time, exclusive; at most ten minutes later. The source may end before it.
    #[param(inline)]
    to_ms: ClipTime,
}

declared!(
    ClipQuery { from_ms, to_ms } | faults | {
        if let (Some(BoundedInt(from)), Some(BoundedInt(to))) = (from_ms, to_ms) {
            if to <= from {
                faults.refuse("to_ms", "must be after from_ms");
            } else if to - from > EXCERPT_MS_MAX {
                faults
                    .refuse("to_ms", format!("must be at most {EXCERPT_MS_MAX} ms after from_ms"));
            }
        }
    }
);

/// Converts the error; a range outside the source is an error of the field that is out of range.
fn told(error: IngestError) -> ApiError {
    match &error {
        IngestError::Worker(WorkerError::Fault(JobFault::Decode(fault))) => match fault {
            DecodeError::PastEnd(_) => ApiError::field("from_ms", fault.to_string()),
            DecodeError::BeforeStart(_) => ApiError::field("to_ms", fault.to_string()),
            _ => error.into(),
        },
        _ => error.into(),
    }
}

/// Fetch a part of a run's source as a file with its audio: MP4, or Matroska if a codec requires that.
///
/// Pictures are copied without re-encoding, so the clip begins at the keyframe before the part, which is its
/// time 0.
/// Damaged parts of the source are left out. The source is that of `/source`, under the same rules.
#[utoipa::path(
    get, path = "/v1/runs/{id}/clip", operation_id = "getClip", tag = "timeline",
    params(ClipQuery, TicketQuery),
    responses(
        (status = 200, description = "The bytes", content(
            (schema_types::Bytes = "video/mp4"),
            (schema_types::Bytes = "video/x-matroska"),
        ), headers(
            ("x-clip-starts-at-ms" = i64, description = "Media time in the source of the first picture"),
        )),
        FailureResponse<503>,
    ),
)]
pub async fn fetch(
    OwnedRun(app, caller, run): OwnedRun,
    QueryParams(query): QueryParams<ClipQuery>,
) -> ApiResult {
    let finder = Arc::clone(&app);
    let found = app.blocking(move || find(&finder, &run)).await??;
    send_budget::check(&app, &caller.principal)?;
    let span = query.from_ms.0 as i64..query.to_ms.0 as i64;
    let cut = app.runner.excerpt(&caller.principal, found.file, span).await;
    let Excerpt { start: ExcerptStart { container, starts_at_ms }, first, rest } =
        cut.map_err(told)?;
    let kind = match container {
        ExcerptContainer::Mp4 => "video/mp4",
        ExcerptContainer::Matroska => "video/x-matroska",
    };
    let about = [(header::CONTENT_TYPE, kind)];
    let body = joined([Body::from(first), stepped(rest, None, read_on)]);
    let holds = Extension(BufferedBytes(READING_BYTES as u64));
    Ok((holds, about, [(STARTS_AT, starts_at_ms.to_string())], body).into_response())
}

/// Returns the next bytes of a clip; dropping `rest` stops the worker's job.
async fn read_on(mut rest: ExcerptRest) -> Step<ExcerptRest> {
    let error = match rest.next().await {
        Some(Ok(ExcerptEvent::Bytes(bytes))) => return Ok(Some((bytes.into(), rest))),
        Some(Ok(ExcerptEvent::Ended)) => return Ok(None),
        Some(Err(error)) => error,
        // The job was cancelled because the client did not read for too long.
        Some(Ok(ExcerptEvent::Begins(_))) | None => WorkerError::Cancelled,
    };
    // The status was already sent; only a truncated body shows the error.
    tracing::warn!(%error, "a clip ends early");
    Err(error.into())
}
