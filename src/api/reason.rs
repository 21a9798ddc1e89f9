//! Reason: decodes a source, has models describe its chunks, and analyses it.

mod request;

use infer::scheduler::Priority;
use media::{Dimensions, FrameRate, Label};
use timeline::SemanticOutcome;
use worker::{ChunkBoundary, NoveltySpec};

use super::{
    analyze::{marker_rules, windowing},
    ingest::{MAX_FRAMES_DEFAULT, default_stream, opened, sampling},
    jobs::{JobDetails, Prefer, Working},
    markers::MarkerRecord,
    metadata::{self, FrameCoordinates, MetadataContext},
    prelude::*,
    thresholds,
    zones::zones,
};
use crate::{
    base::model_catalog::Mode,
    record::{
        gate_replay::rate_of,
        inference::Requester,
        reason::{
            ChunkNovelty, DescriptionOptions, LabelOptions, ModelDescriber, ModelStage, ReasonJob,
            Reasoned, RetryPolicy,
        },
        runner::{IngestJob, IngestResult},
    },
};
pub use request::*;

/// Maximum wait of a chunk for a permit; long, as the work is offline.
const PATIENCE: Duration = Duration::from_secs(600);

/// Tokens and time of all model answers.
#[derive(Serialize, ToSchema)]
pub struct ReasonTokens {
    prompt_tokens: u64,
    completion_tokens: u64,
    thinking_tokens: u64,
    total_tokens: u64,
    /// Latency of all answers, summed up.
    inference_latency_ms: u64,
    /// Chunks described by a model's answer, reused answers included.
    chunks_analyzed: u64,
}

/// Outcome of the model stage for the chunks of a source.
#[derive(Serialize, ToSchema)]
pub struct SemanticResult {
    /// False if there was no prompt, so that no model was to be asked.
    requested: bool,
    /// Chunks sent to models, or reusing another chunk's answer.
    chunks_asked: u64,
    /// Chunks among them without an answer.
    chunks_failed: u64,
    /// First error: its class and an excerpt of the backend's answer; or the reason why no model could be
    /// asked.
    #[schema(required = true)]
    error: Option<String>,
    /// True if the gate decided in place of a model.
    fallback_used: bool,
}

impl From<&SemanticOutcome> for SemanticResult {
    fn from(outcome: &SemanticOutcome) -> SemanticResult {
        let SemanticOutcome { requested, chunks_asked, chunks_failed, error, fallback_used } =
            outcome.clone();
        SemanticResult { requested, chunks_asked, chunks_failed, error, fallback_used }
    }
}

/// Result of a reason job.
#[derive(Serialize, ToSchema)]
struct ReasonResult {
    request_id: schema_types::RequestId,
    run_id: schema_types::RunId,
    /// Number of analysed frames, and of `metadata` objects unless they are left out.
    generated: u64,
    /// True if `metadata` has one object per frame; false if `include_frame_metadata` is false.
    frame_metadata_included: bool,
    markers_emitted: u64,
    /// Frames decoded, measured and recorded.
    decoded_frames: u64,
    /// Analysed frames per second.
    #[schema(required = true)]
    sample_fps: Option<f64>,
    /// 95th percentile of the lag of answers behind the media: elapsed time minus media time, milliseconds;
    /// 0 if models are faster than the media, and without chunks.
    #[schema(minimum = 0)]
    lag_p95_ms: i64,
    /// 99th percentile of the lag, milliseconds.
    #[schema(minimum = 0)]
    lag_p99_ms: i64,
    tokens: ReasonTokens,
    semantic: SemanticResult,
    /// True if the source ended early or is damaged; absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    truncated: bool,
    /// True if the source has more than `max_frames` frames; later frames were not processed.
    more_frames: bool,
    markers: Vec<MarkerRecord>,
    metadata: Vec<metadata::FrameMetadata<'static>>,
}

/// Returns the model stage, if models can be asked.
///
/// Without a backend for the first model the gate decides; for the second, the request is refused.
fn asked(
    app: &App,
    caller: &Caller,
    run: &Arc<Run>,
    wanted: Option<ModelOptions>,
    rate: Option<FrameRate>,
) -> ApiResult<ModelStage> {
    let Some(ModelOptions { mut views, mut inquiry, ask }) = wanted else {
        return Ok(ModelStage::Off);
    };
    let inference = Arc::clone(&app.inference);
    if !inference.is_configured() {
        return Ok(ModelStage::Missing("no inference backend is configured".to_owned()));
    }
    if inference.providers(&ask.first).is_empty() {
        let why = format!("no configured backend serves the model {}", ask.first);
        return Ok(ModelStage::Missing(why));
    }
    let unserved = ask.second.as_ref().filter(|model| inference.providers(model).is_empty());
    if let Some(model) = unserved {
        let why = format!("no configured backend serves the model {model}");
        return Err(ApiError::field("second_pass_model", why));
    }
    // More parallel chunks could not run, and would hold images and queue slots.
    let most = app.settings.inference.limits.in_flight_per_principal;
    inquiry.concurrency = inquiry.concurrency.min(most).max(1);
    let asker = Requester {
        request_id: caller.request_id,
        principal: run.origin().principal.clone(),
        run: Some(Arc::clone(run)),
        class: Priority::Offline,
        patience: Some(PATIENCE),
        // Waits are handled by the outage policy, without holding a permit.
        waits_out: false,
    };
    let outage = Arc::new(RetryPolicy::new(app.settings.inference.outage));
    let describer = Arc::new(ModelDescriber { inference, asker, ask, outage });
    // A comparison with the previous picture makes every prompt unique, so no answer is reused.
    let rule = app.settings.novelty.rule;
    let repeats = !inquiry.compares && !outlasts(views.chunks, rate, rule.elapsed_ms_max);
    let eyes = app.live.eyes().filter(|_| repeats);
    let novelty = eyes.map(|eyes| ChunkNovelty {
        eyes: eyes.clone(),
        rule,
        metrics: Arc::clone(&app.metrics),
    });
    views.novelty = novelty.as_ref().map(|novelty| NoveltySpec { side: novelty.eyes.side() });
    Ok(ModelStage::Chunks(DescriptionOptions { views, inquiry, describer, novelty }))
}

/// Returns true if a chunk lasts longer than an answer may be reused: hardly any would be, yet
/// every picture would be embedded.
fn outlasts(chunks: ChunkBoundary, rate: Option<FrameRate>, longest_ms: u64) -> bool {
    match (chunks, rate) {
        (ChunkBoundary::Span { ms }, _) => u64::from(ms) > longest_ms,
        (ChunkBoundary::Frames(frames), Some(rate)) => {
            u64::from(frames) * 1000 * u64::from(rate.den()) > longest_ms * u64::from(rate.num())
        }
        // The frame rate of the source is not known yet.
        (ChunkBoundary::Frames(_), None) => false,
    }
}

/// Reason over a source: decode it, let models describe its chunks, and emit markers of both.
///
/// Models are asked while the rest is decoded, and their answers are recorded as they come. Without a
/// backend, or where one fails, the gate decides. The run is completed when everything is recorded.
#[utoipa::path(
    post, path = "/v1/runs/{id}/reason", operation_id = "reason", tag = "work",
    params(super::idempotency::IdempotencyKey, Prefer),
    request_body = ReasonRequest,
    responses(
        (status = 200, description = "Completed", body = ReasonResult),
        (status = 202, description = "Accepted, where `Prefer: respond-async` asks for that", body = JobDetails, headers(
            ("location" = String, description = "The job"),
            ("preference-applied" = String, description = "`respond-async`"),
        )),
        FailureResponse<409>, FailureResponse<503>,
    ),
)]
pub async fn reason(
    OwnedRun(app, caller, run): OwnedRun,
    job: Working,
    body: JsonBody,
) -> ApiResult {
    run.check_active()?;
    let body = Arc::new(body);
    let (catalog, text) = (app.inference.catalog_for(&body.models()).await, Arc::clone(&body));
    // Compiling the output schema is CPU work for a blocking thread.
    let read = app.blocking(move || text.read_as::<ReasonRequest>(Form::Naming(&catalog)));
    let mut request = read.await??;
    app.check_open()?;
    app.quota.check(&caller.principal)?;
    let wanted = semantics(&mut request);
    let keeps_output = wanted.as_ref().is_some_and(|wanted| wanted.ask.has_own_schema());
    let asked_model = wanted.as_ref().map(|wanted| wanted.ask.first.clone());
    // The record names the model to be asked, else the model named in the request.
    let model = asked_model.as_ref().and_then(|model| model.parse().ok());
    let model: Label = model.unwrap_or(request.model.0);
    let (policy, rate) = sampling(request.sampling_policy, request.fixed_fps);
    let semantics = asked(&app, &caller, &run, wanted, rate)?;
    let views = if let ModelStage::Chunks(it) = &semantics { Some(it.views) } else { None };
    let origin = run.origin();
    let stream_id = request.stream_id.unwrap_or_else(default_stream);
    let mode = request.mode.map(|it| it.0);
    let own = mode.or_else(|| Mode::from_name(&origin.mode));
    let ingest = IngestJob {
        stream_id: stream_id.clone(),
        policy,
        rate,
        max_frames: request.max_frames.map_or(MAX_FRAMES_DEFAULT, |it| it.0),
        gate: thresholds::chosen(request.gate, own, app.settings.gate),
        zones: zones(request.zones, request.activity_zones_only),
        model: Some(model.clone()),
        ..opened(&app, &caller, &run, &body, &request.source_uri.0).await?
    };
    let mode = mode.map_or_else(|| origin.mode.clone(), |mode| mode.as_str().into());
    let windowing = windowing(request.window_size, request.segment_ms);
    let terms = LabelOptions {
        mode: mode.clone(),
        model: model.clone(),
        windowing,
        markers: marker_rules(request.marker_correction_window_frames),
        index_name: request.index_name.map(|it| it.0),
        keeps_output,
    };
    let reasoned =
        app.runner.reason(&run, ReasonJob { ingest, semantics, terms }, job.token).await?;
    let IngestResult { width, height, rotation, sample_fps, .. } = reasoned.ingested;
    // The size of the first picture after rotation.
    let upright = Dimensions { width, height }.rotated(rotation);
    let context = MetadataContext {
        request_id: caller.request_id,
        run_id: run.id(),
        stream_id,
        mode,
        model: model.as_str().to_owned(),
        trace_id: request.trace_id,
        policy,
        sample_fps: sample_fps.unwrap_or_else(|| rate_of(&reasoned.frames)),
        source: "reason",
        asked_model,
        is_included: request.include_frame_metadata.unwrap_or(true),
        is_asked: views.is_some(),
        coordinates: views.and_then(|views| FrameCoordinates::of(&views, upright)),
    };
    let result = ReasonResult::of(&reasoned, &context);
    metadata::answer(result, context, reasoned.frames, windowing)
}

impl ReasonResult {
    fn of(reasoned: &Reasoned, context: &MetadataContext) -> ReasonResult {
        let Reasoned { ingested, frames, markers, totals, semantic, .. } = reasoned;
        ReasonResult {
            request_id: context.request_id.into(),
            run_id: context.run_id.into(),
            generated: frames.len() as u64,
            frame_metadata_included: context.is_included,
            markers_emitted: markers.len() as u64,
            decoded_frames: ingested.decoded_frames,
            sample_fps: ingested.sample_fps.map(FrameRate::as_f64),
            lag_p95_ms: totals.lag_p95_ms,
            lag_p99_ms: totals.lag_p99_ms,
            tokens: ReasonTokens {
                prompt_tokens: totals.tokens.prompt,
                completion_tokens: totals.tokens.completion,
                thinking_tokens: totals.tokens.thinking,
                total_tokens: totals.tokens.total,
                inference_latency_ms: totals.latency.as_millis() as u64,
                chunks_analyzed: totals.chunks_analyzed,
            },
            semantic: SemanticResult::from(semantic),
            truncated: ingested.truncated,
            more_frames: ingested.more_frames,
            markers: markers.iter().cloned().map(MarkerRecord::from).collect(),
            metadata: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_chunks_repeat_no_answer() {
        let rate = |num, den| FrameRate::new(num, den);
        let rows = [
            (ChunkBoundary::Span { ms: 2000 }, None, false),
            (ChunkBoundary::Span { ms: 2001 }, None, true),
            (ChunkBoundary::Frames(30), None, false),
            (ChunkBoundary::Frames(30), rate(15, 1), false),
            (ChunkBoundary::Frames(31), rate(15, 1), true),
            (ChunkBoundary::Frames(59), rate(30_000, 1001), false),
            (ChunkBoundary::Frames(60), rate(30_000, 1001), true),
        ];
        for (chunks, rate, expected) in rows {
            assert_eq!(outlasts(chunks, rate, 2000), expected, "{chunks:?} {rate:?}");
        }
    }
}
