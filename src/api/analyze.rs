//! Analyze: turns signals into markers and frame metadata with the gate alone.
//!
//! Long because it reads every field of an analysis request.

mod dry_run;

use dry_run::GateDryRun;
use gate::{GateConfig, SelectionReason};
use media::{Activity, AnalysisId, FrameRate, Marker, Signal, Zones};
use timeline::{
    AnalysisGenerated, BATCH_BYTES_MAX, BATCH_RECORDS_MAX, Event, FramesDecoded, MarkerConfig,
    SamplingPolicy, TimelineError,
};

use super::{
    ingest::{check_rate, default_stream, sampling},
    jobs::{JobDetails, Prefer, Working},
    markers::MarkerRecord,
    metadata::{self, MetadataContext},
    prelude::*,
    reason::ModelName,
    thresholds::{self, GateOverrides},
    zones::{self, ZoneFields, ZoneList},
};
use crate::{
    base::{json::List, labels::TenantLabels, model_catalog::Mode},
    record::{
        frames::Frames,
        gate_replay::{self, FrameAnalysis, Windowing, rezoned::Rezoned, trial::Terms},
        recording::WINDOWING_DEFAULT,
        runner::IngestError,
    },
    runs::{job_queue::JobLength, registry::RunError},
};

pub const FRAMES_MAX: usize = 4096;

pub type WindowSize = BoundedInt<2, 256>;
pub type SegmentMs = BoundedInt<50, 60_000>;
pub type TraceId = BoundedText<1, 64>;
pub type FrameIndex = BoundedInt<0, { (1 << 53) - 1 }>;

/// Frames to analyze, and options.
#[derive(ToSchema)]
struct AnalyzeRequest {
    /// Model that the results are meant for; no model is asked.
    #[schema(value_type = schema_types::ModelId)]
    model: ModelName,
    /// Mode of the analysis; when missing, that of the run, with the thresholds of the recording.
    mode: Option<schema_types::AnalysisMode>,
    /// Stream; when missing, `main` for the frames of a request, else the stream decoded last.
    #[schema(value_type = Option<schema_types::Label>)]
    stream_id: Option<StreamId>,
    /// Sampling policy; for recorded frames, must be that of the recording.
    sampling_policy: Option<schema_types::Sampling>,
    /// Required with the policy `fixed`.
    fixed_fps: Option<schema_types::Fps>,
    /// Signals in order; when missing, those that the run decoded last or is recording.
    #[schema(value_type = Option<Vec<FrameSignals>>, min_items = 1, max_items = 4096)]
    frames: Option<List<FrameSignals, 1, FRAMES_MAX>>,
    /// Another run of the caller whose signals are analysed instead; not with `frames`.
    from_run: Option<schema_types::RunId>,
    /// Number of frames in a metadata window; 16 when missing.
    #[schema(inline)]
    window_size: Option<WindowSize>,
    /// Length of a metadata segment, milliseconds; 250 when missing.
    #[schema(inline)]
    segment_ms: Option<SegmentMs>,
    /// Trace id, visible ASCII; the id of the request when missing.
    #[schema(min_length = 1, max_length = 64, pattern = "^[!-~]+$")]
    trace_id: Option<String>,
    /// Maximum frames from the end of a segment to the start of its finalizing one; 3 when missing.
    #[schema(inline)]
    marker_correction_window_frames: Option<FrameIndex>,
    /// Thresholds of this analysis, which override those of the mode or of the recording.
    gate: Option<GateOverrides>,
    /// Watched zones, which replace those of the recording; not with `frames`. A recorded frame has
    /// the box of its motion and the touched zones, not the cells: a zone counts as touched if the
    /// box reaches into it, except for its parts in recorded zones that were not touched.
    #[schema(value_type = Option<Vec<ZoneFields>>, max_items = 16)]
    zones: Option<ZoneList>,
    /// True to ignore motion outside of the zones; motion is assumed to be even within a frame's box.
    activity_zones_only: Option<bool>,
    /// True to compute the effect of the analysis only: nothing is recorded, and the run may have ended.
    dry_run: Option<bool>,
}

declared!(AnalyzeRequest {
    model, mode, stream_id: optional parsed, sampling_policy, fixed_fps, frames, from_run, window_size, segment_ms,
    trace_id: optional trace, marker_correction_window_frames, gate, zones, activity_zones_only, dry_run,
} |object| {
    if let Some(Some(List(frames))) = &frames {
        if matches!(from_run, Some(Some(_))) {
            object.refuse("from_run", "stands in place of frames: give one of them");
        }
        if let Some((at, field, problem)) = first_out_of_order(frames) {
            object.refuse(&format!("frames[{at}].{field}"), problem);
        }
        if !matches!(zones, Some(None)) {
            let why = "need recorded frames: those of a request do not tell where something moves";
            object.refuse("zones", why);
        }
    }
    let why = "is required with the sampling policy fixed";
    check_rate(object, &sampling_policy, &fixed_fps, why);
    zones::check(object, &zones, &activity_zones_only);
});

/// Signals of a frame.
#[derive(ToSchema)]
pub struct FrameSignals {
    /// Index of the frame; greater than that of the previous frame.
    #[schema(inline)]
    frame_index: FrameIndex,
    /// Index of the frame in the source.
    #[schema(inline)]
    source_frame_index: Option<FrameIndex>,
    /// Presentation time, milliseconds; not less than that of the previous frame.
    pts_ms: schema_types::Int64,
    perceptual_hash: schema_types::PerceptualHash,
    luma_mean: schema_types::Fraction,
    flicker_score: schema_types::Fraction,
    ghosting_score: schema_types::Fraction,
    noise_variance_score: schema_types::Fraction,
    /// Strength of a hard transition; derived from the hashes when missing.
    scene_score: Option<schema_types::Fraction>,
    /// Fraction of the picture that moves; without it no frame is selected for activity.
    activity_score: Option<schema_types::Fraction>,
}

declared!(FrameSignals {
    frame_index,
    source_frame_index,
    pts_ms,
    perceptual_hash,
    luma_mean,
    flicker_score,
    ghosting_score,
    noise_variance_score,
    scene_score,
    activity_score,
});

/// Result of an analysis.
#[derive(Serialize, ToSchema)]
struct AnalyzeResult {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// Number of analysed frames, and of `metadata` objects except in a dry run.
    generated: u64,
    /// Effect of a dry run; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = GateDryRun)]
    dry_run: Option<GateDryRun>,
    /// Markers; in a dry run, those that the analysis would emit.
    markers: Vec<MarkerRecord>,
    metadata: Vec<metadata::FrameMetadata<'static>>,
}

impl From<FrameSignals> for Signal {
    fn from(frame: FrameSignals) -> Signal {
        let activity = |schema_types::Fraction(score)| Activity { score, ..Activity::default() };
        Signal {
            frame_index: frame.frame_index.0,
            source_frame_index: frame.source_frame_index.map(|BoundedInt(index)| index),
            pts_ms: frame.pts_ms.0,
            perceptual_hash: frame.perceptual_hash.0,
            luma_mean: frame.luma_mean.0,
            flicker_score: frame.flicker_score.0,
            ghosting_score: frame.ghosting_score.0,
            noise_variance_score: frame.noise_variance_score.0,
            scene_score: frame.scene_score.map(|it| it.0),
            activity: frame.activity_score.map(activity),
        }
    }
}

/// Reads 16 hexadecimal digits, or an integer for callers that send one.
pub fn hash(value: &Value) -> Result<u64, ValueError> {
    let found = match value {
        Value::String(text) if text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
            u64::from_str_radix(text, 16).ok()
        }
        value => value.as_u64(),
    };
    found.ok_or("must be a string of 16 hexadecimal digits".into())
}

/// Returns the windowing for a request, with defaults for missing fields.
pub fn windowing(window_size: Option<WindowSize>, segment_ms: Option<SegmentMs>) -> Windowing {
    Windowing {
        frames: window_size.map_or(WINDOWING_DEFAULT.0, |it| it.0) as u32,
        span_ms: segment_ms.map_or(WINDOWING_DEFAULT.1, |it| it.0) as u32,
    }
}

pub fn marker_rules(correction_window: Option<FrameIndex>) -> MarkerConfig {
    let own = MarkerConfig::default();
    let window = correction_window.map_or(own.correction_window_frames, |it| it.0);
    MarkerConfig { correction_window_frames: window, ..own }
}

pub fn trace(value: &Value) -> Result<String, ValueError> {
    let BoundedText(found) = TraceId::read(value)?;
    let visible = found.bytes().all(|byte| byte.is_ascii_graphic());
    if visible { Ok(found) } else { Err("must be visible ASCII".into()) }
}

/// Returns the position of the first frame out of order, its field, and the requirement.
///
/// An index names one frame of the answer and bounds markers, so no two frames share one; two
/// frames may be shown at the same time.
fn first_out_of_order(frames: &[FrameSignals]) -> Option<(usize, &'static str, &'static str)> {
    frames.windows(2).zip(1..).find_map(|(pair, at)| {
        if pair[1].frame_index.0 <= pair[0].frame_index.0 {
            Some((at, "frame_index", "must be greater than in the frame before"))
        } else if pair[1].pts_ms.0 < pair[0].pts_ms.0 {
            Some((at, "pts_ms", "must not be less than in the frame before"))
        } else {
            None
        }
    })
}

/// Frames to analyse, and their origin.
struct Input {
    signals: Vec<Signal>,
    stream_id: StreamId,
    policy: SamplingPolicy,
    sample_fps: Option<FrameRate>,
    source: &'static str,
    /// Thresholds of the recording.
    gate: GateConfig,
    /// Zones of the recording.
    zones: Zones,
}

impl Input {
    /// Returns the thresholds of the recording, with the keepalive of `mode` if that names one.
    fn gate_in(&self, mode: Option<Mode>, server: GateConfig) -> GateConfig {
        let Some(mode) = mode.filter(|mode| *mode != Mode::Custom) else { return self.gate };
        let GateConfig { keepalive_frames, keepalive_ms, .. } = thresholds::preset(mode, server);
        GateConfig { keepalive_frames, keepalive_ms, ..self.gate }
    }

    fn terms(&self, gate: GateConfig, zones: Option<&Zones>) -> Terms {
        Terms { gate, zones: zones.map(|zones| Rezoned::new(&self.zones, zones)) }
    }

    /// Returns the newest analysis of the stream and its terms; without one, those of the recording.
    fn last_terms(
        &self,
        timeline: &Timeline,
        run: &Run,
    ) -> Result<(Option<AnalysisId>, Terms), TimelineError> {
        let mut newest = run.newest_analyses(timeline, timeline.head())?;
        let newest = newest.remove(&self.stream_id);
        Ok(match newest.and_then(|made| Some((made.gate?, made))) {
            Some((gate, made)) => (made.id, self.terms(gate, made.zones(timeline)?.as_ref())),
            None => (None, self.terms(self.gate, None)),
        })
    }

    /// Compares `after`, on which the analysis that gave `markers` would be made, with the last terms.
    fn dry_run(
        &self,
        timeline: &Timeline,
        run: &Run,
        after: &Terms,
        zones: Option<&Zones>,
        markers: &[Marker],
    ) -> ApiResult<GateDryRun> {
        let names = zones.unwrap_or(&self.zones).names();
        let (compared_with, before) = self.last_terms(timeline, run)?;
        let (before, watched) = ((compared_with, &before), (&self.stream_id, &*names));
        Ok(GateDryRun::of(&self.signals, before, after, markers, watched))
    }
}

/// Returns the frames of the request, or those of the last ingest of the run that it names, or else of `run`.
fn input(app: &App, run: &Arc<Run>, request: &mut AnalyzeRequest) -> ApiResult<Input> {
    let from = request.from_run.as_ref().map(|id| app.registry.find(id.0, &run.origin().principal));
    let no_such = || ApiError::field("from_run", "names no run of the caller");
    let from = from.map(|from| from.ok_or_else(no_such)).transpose()?;
    let run = from.as_ref().unwrap_or(run);
    if let Some(List(frames)) = request.frames.take() {
        let (policy, sample_fps) =
            sampling(request.sampling_policy.take(), request.fixed_fps.take());
        return Ok(Input {
            signals: frames.into_iter().map(Signal::from).collect(),
            stream_id: request.stream_id.take().unwrap_or_else(default_stream),
            policy,
            sample_fps,
            source: "request",
            gate: thresholds::preset(
                Mode::from_name(&run.origin().mode).unwrap_or_default(),
                app.settings.gate,
            ),
            zones: Zones::default(),
        });
    }
    let timeline = app.registry.timeline();
    // Before the frames are looked for: a recording that ends meanwhile has them.
    let is_busy = run.progress().is_some();
    let no_frames = || match is_busy {
        true => RunError::Busy { job: run.active_job().map(|job| job.order.id) }.into(),
        false => ApiError::field("frames", "is required: the run has no decoded frames"),
    };
    let found = Frames::find(timeline, app.runner.columns(), run, request.stream_id.as_ref())?;
    let Some(frames) = found else {
        return Err(match &request.stream_id {
            Some(_) if timeline.latest(run.id(), EventKind::FramesDecoded).is_some() => {
                ApiError::field("stream_id", "names no stream with decoded frames in this run")
            }
            _ => no_frames(),
        });
    };
    let signals = frames.rows()?.collect::<Result<Vec<_>, _>>()?;
    let decoded = frames.decoded;
    check_recorded(request, &decoded)?;
    // A recording that has begun may have none yet.
    if signals.is_empty() {
        return Err(no_frames());
    }
    Ok(Input {
        signals,
        stream_id: decoded.stream_id,
        policy: decoded.sampling_policy,
        sample_fps: decoded.sample_fps,
        source: "ingest",
        gate: decoded.gate.unwrap_or(app.settings.gate),
        zones: decoded.zones,
    })
}

/// Refuses a request that contradicts the recording of its frames.
fn check_recorded(request: &AnalyzeRequest, decoded: &FramesDecoded) -> ApiResult<()> {
    let recorded = decoded.sampling_policy;
    if request.sampling_policy.as_ref().is_some_and(|policy| policy.0 != recorded) {
        let name = recorded.as_str();
        let message = format!("differs from {name}, with which the frames were decoded");
        return Err(ApiError::field("sampling_policy", message));
    }
    let has_corners = decoded.zones.zones.iter().all(|zone| !zone.polygon.is_empty());
    if request.zones.is_some() && !has_corners {
        let message = "cannot stand in place of zones whose corners an older server did not record";
        return Err(ApiError::field("zones", message));
    }
    let is_fixed = recorded == SamplingPolicy::Fixed;
    let other = |rate: &schema_types::Fps| Some(rate.0) != decoded.sample_fps;
    if is_fixed && request.fixed_fps.as_ref().is_some_and(other) {
        let rate = decoded.sample_fps.map_or(0.0, FrameRate::as_f64);
        let message = format!("differs from {rate}, with which the frames were decoded");
        return Err(ApiError::field("fixed_fps", message));
    }
    Ok(())
}

/// A finished analysis, not recorded yet; a dry run is never recorded.
struct Analysis {
    dry_run: Option<GateDryRun>,
    events: Vec<Event>,
    markers: Vec<Marker>,
    frames: Vec<FrameAnalysis>,
    windowing: Windowing,
    context: MetadataContext,
}

/// Reads the signals, applies the gate and builds the events; takes long, hence runs on a blocking thread.
fn analysis(
    app: &App,
    run: &Arc<Run>,
    request_id: RequestId,
    mut request: AnalyzeRequest,
) -> ApiResult<Analysis> {
    let input = input(app, run, &mut request)?;
    let words = TenantLabels { maps: app.labels.get(), tenant: run.origin().tenant.clone() };
    let mode = request.mode.as_ref().map(|it| it.0);
    let is_dry = request.dry_run.unwrap_or(false);
    let zones =
        request.zones.take().map(|given| zones::zones(Some(given), request.activity_zones_only));
    let gate = request.gate.take().unwrap_or_default().of(input.gate_in(mode, app.settings.gate));
    let wanted = input.terms(gate, zones.as_ref());
    let shown = input.signals.iter().map(|signal| wanted.signal(signal));
    let frames = gate_replay::replay(shown, gate, |name| words.event_type(name));
    if !is_dry {
        let selected = frames.iter().filter(|frame| frame.reason != SelectionReason::NoTrigger);
        let (principal, selected) = (&run.origin().principal, selected.count() as u64);
        app.metrics.decided(principal, frames.len() as u64, selected);
    }
    let config = marker_rules(request.marker_correction_window_frames);
    let timeline = app.registry.timeline();
    let analysis = run.next_analysis(timeline, &input.stream_id)?;
    let markers = gate_replay::markers(&analysis, &frames, config);
    if markers.len() >= BATCH_RECORDS_MAX {
        return Err(too_many(markers.len()));
    }
    let dry_run = is_dry.then(|| input.dry_run(timeline, run, &wanted, zones.as_ref(), &markers));
    let dry_run = dry_run.transpose()?;
    let context = MetadataContext {
        request_id,
        run_id: run.id(),
        stream_id: input.stream_id,
        mode: mode.map_or_else(|| run.origin().mode.clone(), |mode| mode.as_str().into()),
        model: request.model.0.as_str().to_owned(),
        trace_id: request.trace_id,
        policy: input.policy,
        sample_fps: input.sample_fps.unwrap_or_else(|| gate_replay::rate_of(&frames)),
        source: input.source,
        asked_model: None,
        is_included: !is_dry,
        is_asked: false,
        coordinates: None,
    };
    let windowing = windowing(request.window_size, request.segment_ms);
    let made = (analysis.id(), gate, zones);
    let events = events(&context, windowing, made, frames.len(), &markers);
    Ok(Analysis { dry_run, events, markers, frames, windowing, context })
}

fn events(
    context: &MetadataContext,
    windowing: Windowing,
    (id, gate, zones): (AnalysisId, GateConfig, Option<Zones>),
    frames: usize,
    markers: &[Marker],
) -> Vec<Event> {
    let generated = Event::AnalysisGenerated(AnalysisGenerated {
        request_id: context.request_id,
        stream_id: context.stream_id.clone(),
        frames: frames as u64,
        window_size: windowing.frames,
        segment_ms: windowing.span_ms,
        sampling_policy: context.policy,
        sample_fps: Some(context.sample_fps),
        mode: Some(context.mode.clone()),
        model: context.model.clone(),
        markers: markers.len() as u64,
        analysis_id: Some(id),
        gate: Some(gate),
        zones,
    });
    std::iter::once(generated).chain(markers.iter().cloned().map(Event::MarkerEmitted)).collect()
}

fn too_many(markers: usize) -> ApiError {
    let most = BATCH_RECORDS_MAX - 1;
    let message = format!(
        "give {markers} markers, and one analysis records at most {most} and {} MiB of them: \
         analyze fewer frames at a time",
        BATCH_BYTES_MAX >> 20
    );
    ApiError::field("frames", message)
}

/// Analyze signals: apply the gate, emit markers and describe every frame.
///
/// Ingested frames are not decoded again: `gate` tries other thresholds on the recorded signals; with
/// `dry_run`, nothing is recorded.
#[utoipa::path(
    post, path = "/v1/runs/{id}/analyze", operation_id = "analyzeRun", tag = "work",
    params(super::idempotency::IdempotencyKey, Prefer),
    request_body = AnalyzeRequest,
    responses(
        (status = 200, description = "Analyzed", body = AnalyzeResult),
        (status = 202, description = "Accepted, where `Prefer: respond-async` asks for that", body = JobDetails, headers(
            ("location" = String, description = "The job"),
            ("preference-applied" = String, description = "`respond-async`"),
        )),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn analyze(
    OwnedRun(app, caller, run): OwnedRun,
    job: Working,
    body: JsonBody,
) -> ApiResult {
    let catalog = app.inference.catalog_for(&body.models()).await;
    let request: AnalyzeRequest = body.read_as(Form::Naming(&catalog))?;
    app.check_open()?;
    let is_dry = request.dry_run.unwrap_or(false);
    if !is_dry {
        app.quota.check(&run.origin().principal)?;
    }
    let state = run.lifecycle();
    // A dry run does not change the run.
    if state.is_terminal() && !is_dry {
        return Err(RunError::Terminal(state).into());
    }
    let guard = run.begin_job(job.token.clone())?;
    let room = app.analyses.reserve(&caller.principal).map_err(|_| ApiError::AnalysesFull)?;
    // Recorded before the 202: a caller that was told of the job must find it after a crash.
    if let Some(view) = job.token.view().filter(|_| job.is_left) {
        app.runner.begin_job(view).await?;
    }
    job.token.accept();
    drop(room);
    let place = app.analyses.pass(&caller.principal, JobLength::Short).await;
    job.token.begin_work();
    // Held until the analysis is recorded, so that no other one takes the same ordinal.
    let _turn = if is_dry { None } else { Some(run.analysis_turn().await) };
    let (reader, source) = (Arc::clone(&app), Arc::clone(&run));
    let done = app
        .blocking(move || {
            // Holds the permit until the work ends, even if the caller disconnects.
            let _place = place;
            analysis(&reader, &source, caller.request_id, request)
        })
        .await??;
    if let Some(last) = done.frames.last() {
        guard.token.advance(done.frames.len() as u64, last.pts_ms);
    }
    if guard.token.is_called_off() {
        return Err(IngestError::CalledOff.into());
    }
    if !is_dry {
        app.registry.commit(&run, done.events).await.map_err(|error| match error {
            RunError::Log(TimelineError::TooLarge { .. }) => too_many(done.markers.len()),
            error => error.into(),
        })?;
    }
    let result = AnalyzeResult {
        request_id: caller.request_id.into(),
        run_id: run.id().into(),
        generated: done.frames.len() as u64,
        dry_run: done.dry_run,
        markers: done.markers.into_iter().map(MarkerRecord::from).collect(),
        metadata: Vec::new(),
    };
    metadata::answer(result, done.context, done.frames, done.windowing)
}
