//! Ingest: a source to frames on the run's timeline.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use media::{Rate, RequestId, StreamId};
use serde::Serialize;
use timeline::SamplingPolicy;

use super::{
    ApiResult, App,
    error::ApiError,
    extract::{Body, Caller, Owned},
    wire::{fps, shown},
};
use crate::{
    json::{Problem, integer, name, number, parsed, text},
    session::{
        Lifecycle,
        runner::{Ingest, Ingested},
    },
};

/// Name of the stream where a caller gives none.
pub const DEFAULT_STREAM: &str = "main";
/// Names of the sampling policies, for messages.
pub const POLICIES: &str = "source_fps_adaptive, fixed";
/// Longest `source_uri`: a path of Linux's limit, percent-encoded whole.
const URI_BYTES_MAX: usize = 3 * 4096;

/// Frames a second that a caller may ask for.
pub fn rate(value: &serde_json::Value) -> Result<Rate, Problem> {
    let fps = number(0.2..=120.0)(value)?;
    Rate::from_f64(fps).ok_or("must be a number in [0.2, 120]".into())
}

/// The stream that is meant where a caller names none.
pub fn default_stream() -> StreamId {
    DEFAULT_STREAM.parse().expect("a valid stream id")
}

struct Request<'a> {
    source_uri: &'a str,
    policy: SamplingPolicy,
    rate: Option<Rate>,
    max_frames: u64,
    stream_id: StreamId,
}

fn read(body: &Body) -> Result<Request<'_>, ApiError> {
    let mut fields = body.fields()?;
    let source_uri = fields.required("source_uri", text(1..=URI_BYTES_MAX));
    let policy = fields
        .optional("sampling_policy", name(POLICIES, SamplingPolicy::from_name))
        .unwrap_or(SamplingPolicy::SourceFpsAdaptive);
    let is_fixed = policy == SamplingPolicy::Fixed;
    let fixed_fps = if is_fixed {
        fields.required("fixed_fps", rate)
    } else {
        fields.optional("fixed_fps", rate)
    };
    let sample_fps = fields.optional("sample_fps", rate);
    let max_frames = fields.optional("max_frames", integer(1..=500_000)).unwrap_or(512);
    let stream_id = fields.optional("stream_id", parsed).unwrap_or_else(default_stream);
    fields.refuse_unknown();
    let rate = if is_fixed { fixed_fps } else { sample_fps };
    let read = fields
        .finish(|| Some(Request { source_uri: source_uri?, policy, rate, max_frames, stream_id }));
    read.map_err(ApiError::Invalid)
}

/// `POST /v1/runs/{id}/ingest`
pub async fn ingest(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    body: Body,
) -> ApiResult {
    run.check_active()?;
    let request = read(&body)?;
    app.check_open()?;
    let (roots, uri) = (Arc::clone(&app.roots), request.source_uri.to_owned());
    let file = app.blocking(move || roots.open_source(&uri)).await??;
    let ingest = Ingest {
        request_id: caller.request_id,
        file,
        source_uri: request.source_uri.to_owned(),
        stream_id: request.stream_id,
        policy: request.policy,
        rate: request.rate,
        max_frames: request.max_frames,
        echo: body.text().ok_or(ApiError::Bug("a parsed body is not JSON"))?,
    };
    let (source_uri, policy) = (ingest.source_uri.clone(), ingest.policy);
    let ingested = app.runner.ingest(&run, ingest).await?;
    Ok(answer(caller.request_id, run.id(), source_uri, policy, ingested))
}

fn answer(
    request_id: RequestId,
    run_id: media::RunId,
    source_uri: String,
    policy: SamplingPolicy,
    ingested: Ingested,
) -> Response {
    #[derive(Serialize)]
    struct Answer {
        #[serde(serialize_with = "shown")]
        request_id: RequestId,
        #[serde(serialize_with = "shown")]
        run_id: media::RunId,
        status: &'static str,
        decoded_frames: u64,
        source_uri: String,
        sampling_policy: &'static str,
        source_fps: Option<f64>,
        sample_fps: Option<f64>,
        width: u32,
        height: u32,
        decoder: String,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        truncated: bool,
    }
    Json(Answer {
        request_id,
        run_id,
        status: Lifecycle::Processing.as_str(),
        decoded_frames: ingested.decoded_frames,
        source_uri,
        sampling_policy: policy.as_str(),
        source_fps: fps(ingested.source_fps),
        sample_fps: fps(ingested.sample_fps),
        width: ingested.width,
        height: ingested.height,
        decoder: ingested.decoder,
        truncated: ingested.truncated,
    })
    .into_response()
}
