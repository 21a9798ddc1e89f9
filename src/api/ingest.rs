//! Ingest: a source to frames on the run's timeline.

use std::sync::Arc;

use axum::{Json, extract::State};
use gate::GateConfig;
use media::{Rate, RequestId, RunId, StreamId, Zones};
use serde::Serialize;
use timeline::SamplingPolicy;
use utoipa::ToSchema;

use super::{
    App,
    error::ApiError,
    extract::{Body, Caller, Owned},
    jobs::{JobAnswer, Prefer, Working},
    openapi::{Closed, Fails, terms},
    thresholds::{self, GateFields},
    wire::{fps, shown},
    zones::{ZoneFields, zones},
};
use crate::{
    base::{
        catalog::Mode,
        json::{Fields, Int, Problem, Text, name, number, parsed},
        keys::Principal,
        labels::Words,
    },
    record::runner::Ingest,
    runs::{
        lifecycle::Lifecycle,
        source::{self, Source},
    },
};

/// Name of the stream where a caller gives none.
pub const DEFAULT_STREAM: &str = "main";
/// Names of the sampling policies, for messages.
pub const POLICIES: &str = "source_fps_adaptive, fixed";
/// A `source_uri`: at most a path of Linux's limit, percent-encoded whole.
pub type SourceUri = Text<1, { 3 * 4096 }>;
/// Frames that an ingest may take.
pub type MaxFrames = Int<1, 500_000>;
/// Longest body that an event repeats, among other fields.
const ECHO_BYTES_MAX: usize = timeline::PAYLOAD_BYTES_MAX / 2;
/// Frames where a caller says nothing of them.
pub const MAX_FRAMES_DEFAULT: u64 = 512;

/// Frames a second that a caller may ask for.
pub fn rate(value: &serde_json::Value) -> Result<Rate, Problem> {
    let fps = number(Rate::ANALYSED)(value)?;
    Rate::from_f64(fps).ok_or("must be a number of frames a second".into())
}

/// Sampling policy, and the rate of the policy `fixed`, which requires one.
pub fn sampling(fields: &mut Fields<'_>) -> (SamplingPolicy, Option<Rate>) {
    let policy = fields
        .optional("sampling_policy", name(POLICIES, SamplingPolicy::from_name))
        .unwrap_or(SamplingPolicy::SourceFpsAdaptive);
    let fixed_fps = match policy {
        SamplingPolicy::Fixed => fields.required("fixed_fps", rate),
        // Its range is checked all the same.
        SamplingPolicy::SourceFpsAdaptive => fields.optional("fixed_fps", rate).and(None),
    };
    (policy, fixed_fps)
}

/// The stream that is meant where a caller names none.
pub fn default_stream() -> StreamId {
    DEFAULT_STREAM.parse().expect("a valid stream id")
}

/// Source to ingest, and options; other fields are refused.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `read` reads")]
struct IngestRequest {
    /// A path beneath an ingest root, relative to one or absolute, a `file://` URL of one, or an
    /// `https://`, `http://`, `rtsps://` or `rtsp://` URL. Credentials in it, and the values of its
    /// query, are shown nowhere. What is downloaded has to bring 4096 bytes for each second that it
    /// is waited for beyond the first 60, and is waited for 1800 seconds at most; what came until
    /// then is kept.
    #[schema(inline)]
    source_uri: SourceUri,
    /// `source_fps_adaptive` when missing: every frame, or those of `sample_fps`.
    sampling_policy: Option<terms::Sampling>,
    /// Frames a second; required with the policy `fixed`.
    fixed_fps: Option<terms::Fps>,
    /// Frames a second with the policy `source_fps_adaptive`; every frame when missing.
    sample_fps: Option<terms::Fps>,
    /// Frames after which the ingest ends; 512 when missing.
    #[schema(inline)]
    max_frames: Option<MaxFrames>,
    /// `main` when missing.
    stream_id: Option<terms::Label>,
    /// Thresholds of this recording in place of those of the run's mode. They are recorded with it: an analysis uses
    /// them unless it has its own, whatever the server is set to then.
    gate: Option<GateFields>,
    /// Parts of the picture that are watched: an episode of activity names those that it touches.
    #[schema(max_items = 16)]
    zones: Option<Vec<ZoneFields>>,
    /// True to take no notice of what moves outside of the zones.
    activity_zones_only: Option<bool>,
}

type IngestBody = Closed<IngestRequest>;

struct Request<'a> {
    source_uri: &'a str,
    policy: SamplingPolicy,
    rate: Option<Rate>,
    max_frames: u64,
    stream_id: StreamId,
    gate: GateConfig,
    zones: Zones,
}

fn read(body: &Body, mode: Option<Mode>, server: GateConfig) -> Result<Request<'_>, ApiError> {
    let mut fields = body.fields()?;
    let source_uri = fields.required("source_uri", SourceUri::read);
    let (policy, fixed_fps) = sampling(&mut fields);
    let sample_fps = fields.optional("sample_fps", rate);
    let max_frames = fields.optional("max_frames", MaxFrames::read).unwrap_or(MAX_FRAMES_DEFAULT);
    let stream_id = fields.optional("stream_id", parsed).unwrap_or_else(default_stream);
    let gate = thresholds::chosen(&mut fields, mode, server);
    let zones = zones(&mut fields);
    fields.refuse_unknown();
    let rate = fixed_fps.or(sample_fps);
    let read = fields.finish(|| {
        Some(Request { source_uri: source_uri?, policy, rate, max_frames, stream_id, gate, zones })
    });
    read.map_err(ApiError::Invalid)
}

/// Result of an ingest.
#[derive(Serialize, ToSchema)]
pub struct IngestResult {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RunId)]
    run_id: RunId,
    #[schema(value_type = terms::RunState)]
    status: &'static str,
    /// Frames decoded, measured and recorded.
    decoded_frames: u64,
    source_uri: String,
    #[schema(value_type = terms::Sampling)]
    sampling_policy: &'static str,
    /// Frames a second of the source; null where its container does not say.
    #[schema(required = true)]
    source_fps: Option<f64>,
    /// Analysed frames a second.
    #[schema(required = true)]
    sample_fps: Option<f64>,
    /// Columns of the first picture.
    width: u32,
    /// Rows of the first picture.
    height: u32,
    /// The decoder that was really used.
    decoder: String,
    /// The source ended early or is damaged; absent when it did not.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    truncated: bool,
    /// The source is longer than `max_frames`, and what comes after them was not analysed.
    more_frames: bool,
}

/// Ingest a source: decode its frames onto the run's timeline and keep the selected ones as stills.
///
/// Answers once every frame is decoded; the run's `active_job` tells how far it has come.
#[utoipa::path(
    post, path = "/v1/runs/{id}/ingest", operation_id = "ingestRun", tag = "work",
    params(super::idempotency::IdempotencyKey, Prefer),
    request_body = inline(IngestBody),
    responses(
        (status = 200, description = "Decoded", body = IngestResult),
        (status = 202, description = "Accepted, where `Prefer: respond-async` asks for that", body = JobAnswer, headers(
            ("location" = String, description = "The job"),
            ("preference-applied" = String, description = "`respond-async`"),
        )),
        Fails<409>, Fails<503>,
    ),
)]
pub async fn ingest(
    State(app): State<Arc<App>>,
    caller: Caller,
    Owned(run): Owned,
    job: Working,
    body: Body,
) -> Result<Json<IngestResult>, ApiError> {
    run.check_active()?;
    let request = read(&body, Mode::from_name(&run.origin().mode), app.settings.gate)?;
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    let ingest = Ingest {
        stream_id: request.stream_id,
        policy: request.policy,
        rate: request.rate,
        max_frames: request.max_frames,
        gate: request.gate,
        zones: request.zones,
        words: Words { maps: app.labels(), tenant: run.origin().tenant.clone() },
        ..opened(&app, &caller, &body, request.source_uri).await?
    };
    let (source_uri, policy) = (ingest.source_uri.clone(), ingest.policy);
    let ingested = app.runner.ingest(&run, ingest, job.token).await?;
    Ok(Json(IngestResult {
        request_id: caller.request_id,
        run_id: run.id(),
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
        more_frames: ingested.more_frames,
    }))
}

/// An ingest of every frame of the source that `uri` names, which `body` asks for.
pub async fn opened(
    app: &Arc<App>,
    caller: &Caller,
    body: &Body,
    uri: &str,
) -> Result<Ingest, ApiError> {
    let (source, source_uri) = source(app, &caller.principal, uri).await?;
    let echo = if source_uri == uri { body.text() } else { body.with("source_uri", &source_uri) };
    let echo = echo.ok_or(ApiError::Bug("a parsed body is not JSON"))?;
    if echo.as_str().len() > ECHO_BYTES_MAX {
        let message = format!("is longer than the {ECHO_BYTES_MAX} bytes that an event repeats");
        return Err(ApiError::field("body", message));
    }
    Ok(Ingest {
        request_id: caller.request_id,
        source,
        source_uri,
        stream_id: default_stream(),
        policy: SamplingPolicy::SourceFpsAdaptive,
        rate: None,
        max_frames: MAX_FRAMES_DEFAULT,
        gate: app.settings.gate,
        zones: Zones::default(),
        model: None,
        words: Words::default(),
        echo,
    })
}

/// The source that `uri` names, and what it is called where others may read it.
async fn source(
    app: &Arc<App>,
    caller: &Principal,
    uri: &str,
) -> Result<(Source, String), ApiError> {
    if let Some(remote) = source::remote::read(uri, &app.settings.remote)? {
        let shown = source::remote::shown(uri, &remote);
        return Ok((Source::Remote(remote), shown));
    }
    let (opener, owner, shown) = (Arc::clone(app), caller.clone(), uri.to_owned());
    let uri = shown.clone();
    let file = app.blocking(move || opener.open_source(&owner, &uri)).await??;
    Ok((Source::File(file), shown))
}
