//! Ingest: decodes a source and records its frames on the run's timeline.

use media::{FrameRate, Zones};
use timeline::SamplingPolicy;

use super::{
    jobs::{JobDetails, Prefer, Working},
    openapi::DenyUnknownFields,
    prelude::*,
    thresholds::{self, GateOverrides},
    zones::{self, ZoneFields, ZoneList},
};
use crate::{
    base::{
        json::{Object, number},
        labels::TenantLabels,
        model_catalog::Mode,
    },
    record::runner::IngestJob,
    runs::{
        lifecycle::RunState,
        source::{self, IngestSource},
    },
};

/// A `source_uri`: up to the length of a Linux path, with every byte percent-encoded.
pub type SourceUri = BoundedText<1, { 3 * 4096 }>;
pub type MaxFrames = BoundedInt<1, 500_000>;
/// Maximum length of a request body that is copied into an event beside other fields.
const ECHO_BYTES_MAX: usize = timeline::PAYLOAD_BYTES_MAX / 2;
pub const MAX_FRAMES_DEFAULT: u64 = 512;

pub fn rate(value: &serde_json::Value) -> Result<FrameRate, ValueError> {
    let fps = number(FrameRate::ANALYSED)(value)?;
    FrameRate::from_f64(fps).ok_or("must be a number of frames a second".into())
}

pub fn check_rate(
    object: &mut Object<'_>,
    policy: &Option<Option<schema_types::Sampling>>,
    fixed_fps: &Option<Option<schema_types::Fps>>,
    problem: &'static str,
) {
    let is_fixed = matches!(policy, Some(Some(schema_types::Sampling(SamplingPolicy::Fixed))));
    if is_fixed && matches!(fixed_fps, Some(None)) {
        object.refuse("fixed_fps", problem);
    }
}

/// Returns the sampling policy, and the rate if the policy is `fixed`.
pub fn sampling(
    policy: Option<schema_types::Sampling>,
    fixed_fps: Option<schema_types::Fps>,
) -> (SamplingPolicy, Option<FrameRate>) {
    let policy = policy.map_or(SamplingPolicy::SourceFpsAdaptive, |it| it.0);
    (policy, fixed_fps.map(|it| it.0).filter(|_| policy == SamplingPolicy::Fixed))
}

pub fn default_stream() -> StreamId {
    "main".parse().expect("a valid stream id")
}

/// Source to ingest, and options; other fields are refused.
#[derive(ToSchema)]
struct IngestRequest {
    /// A path beneath an ingest root, relative to a root or absolute, a `file://` URL of such a path, or an
    /// `https://`, `http://`, `rtsps://` or `rtsp://` URL. Its credentials and query values are never shown.
    /// A download must deliver 4096 bytes for each second of waiting beyond the first 60, and may wait 1800
    /// seconds in total; the part received until then is kept.
    #[schema(inline)]
    source_uri: SourceUri,
    /// Sampling policy; `source_fps_adaptive` when missing: every frame, or those of `sample_fps`.
    sampling_policy: Option<schema_types::Sampling>,
    /// Frames per second; required with the policy `fixed`.
    fixed_fps: Option<schema_types::Fps>,
    /// Frames per second with the policy `source_fps_adaptive`; every frame when missing.
    sample_fps: Option<schema_types::Fps>,
    /// Maximum number of frames; 512 when missing.
    #[schema(inline)]
    max_frames: Option<MaxFrames>,
    /// Stream; `main` when missing.
    #[schema(value_type = Option<schema_types::Label>)]
    stream_id: Option<StreamId>,
    /// Thresholds of this recording, which override those of the run's mode. They are recorded, and used by
    /// an analysis without thresholds of its own, whatever the server's settings are by then.
    gate: Option<GateOverrides>,
    /// Watched zones; an episode of activity names those that it touches.
    #[schema(value_type = Option<Vec<ZoneFields>>, max_items = 16)]
    zones: Option<ZoneList>,
    /// True to ignore motion outside of the zones.
    activity_zones_only: Option<bool>,
}

declared!(IngestRequest {
    source_uri, sampling_policy, fixed_fps, sample_fps, max_frames, stream_id: optional parsed, gate, zones,
    activity_zones_only,
}; closed |object| {
    check_rate(object, &sampling_policy, &fixed_fps, "is required");
    zones::check(object, &zones, &activity_zones_only);
});

type IngestBody = DenyUnknownFields<IngestRequest>;

/// Result of an ingest.
#[derive(Serialize, ToSchema)]
pub struct IngestResult {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    status: schema_types::RunState,
    /// Frames decoded, measured and recorded.
    decoded_frames: u64,
    source_uri: String,
    sampling_policy: schema_types::Sampling,
    /// Frame rate of the source; null if its container does not state it.
    #[schema(required = true)]
    source_fps: Option<f64>,
    /// Analysed frames per second.
    #[schema(required = true)]
    sample_fps: Option<f64>,
    /// Width of the first picture, pixels.
    width: u32,
    /// Height of the first picture, pixels.
    height: u32,
    /// Decoder that was used.
    decoder: String,
    /// True if the source ended early or is damaged; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// True if the source has more than `max_frames` frames; later frames were not analysed.
    more_frames: bool,
}

/// Ingest a source: decode its frames onto the run's timeline and store the selected ones as stills.
///
/// Answers when every frame is decoded; the run's `active_job` shows the progress.
#[utoipa::path(
    post, path = "/v1/runs/{id}/ingest", operation_id = "ingestRun", tag = "work",
    params(super::idempotency::IdempotencyKey, Prefer),
    request_body = inline(IngestBody),
    responses(
        (status = 200, description = "Decoded", body = IngestResult),
        (status = 202, description = "Accepted, where `Prefer: respond-async` asks for that", body = JobDetails, headers(
            ("location" = String, description = "The job"),
            ("preference-applied" = String, description = "`respond-async`"),
        )),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn ingest(
    OwnedRun(app, caller, run): OwnedRun,
    job: Working,
    body: JsonBody,
) -> ApiResult<Json<IngestResult>> {
    run.check_active()?;
    let request: IngestRequest = body.read()?;
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    let (policy, fixed_fps) = sampling(request.sampling_policy, request.fixed_fps);
    let mode = Mode::from_name(&run.origin().mode);
    let ingest = IngestJob {
        stream_id: request.stream_id.unwrap_or_else(default_stream),
        policy,
        rate: fixed_fps.or(request.sample_fps.map(|it| it.0)),
        max_frames: request.max_frames.map_or(MAX_FRAMES_DEFAULT, |it| it.0),
        gate: thresholds::chosen(request.gate, mode, app.settings.gate),
        zones: zones::zones(request.zones, request.activity_zones_only),
        ..opened(&app, &caller, &run, &body, &request.source_uri.0).await?
    };
    let source_uri = ingest.source_uri.clone();
    let ingested = app.runner.ingest(&run, ingest, job.token).await?;
    Ok(Json(IngestResult {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        status: RunState::Processing.into(),
        decoded_frames: ingested.decoded_frames,
        source_uri,
        sampling_policy: policy.into(),
        source_fps: ingested.source_fps.map(FrameRate::as_f64),
        sample_fps: ingested.sample_fps.map(FrameRate::as_f64),
        width: ingested.width,
        height: ingested.height,
        decoder: ingested.decoder,
        truncated: ingested.truncated,
        more_frames: ingested.more_frames,
    }))
}

/// Prepares an ingest of the source `uri` on `run`, with default options; `body` is the request, for the event.
pub async fn opened(
    app: &Arc<App>,
    caller: &Caller,
    run: &Run,
    body: &JsonBody,
    uri: &str,
) -> ApiResult<IngestJob> {
    let words = TenantLabels { maps: app.labels.get(), tenant: run.origin().tenant.clone() };
    let (source, source_uri) = source(app, &caller.principal, uri).await?;
    let echo = if source_uri == uri { body.text() } else { body.with("source_uri", &source_uri) };
    let echo = echo.ok_or(ApiError::Bug("a parsed body is not JSON"))?;
    if echo.as_str().len() > ECHO_BYTES_MAX {
        let message = format!("is longer than the {ECHO_BYTES_MAX} bytes that an event repeats");
        return Err(ApiError::field("body", message));
    }
    Ok(IngestJob {
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
        words,
        echo,
    })
}

/// Opens the source `uri`; returns it with the URI to show, without credentials.
async fn source(
    app: &Arc<App>,
    caller: &Principal,
    uri: &str,
) -> ApiResult<(IngestSource, String)> {
    if let Some(remote) = source::remote::read(uri, &app.settings.remote)? {
        let shown = source::remote::shown(uri, &remote);
        return Ok((IngestSource::Remote(remote), shown));
    }
    let (opener, owner, shown) = (Arc::clone(app), caller.clone(), uri.to_owned());
    let uri = shown.clone();
    let file = app.blocking(move || opener.open_source(&owner, &uri)).await??;
    Ok((IngestSource::File(file), shown))
}
