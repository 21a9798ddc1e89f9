//! All limits of the server: accepted values, and the setting that changes each.
//!
//! Values are read from the constants and settings that enforce them, never repeated here.

mod live;
mod recorded;
mod remote;

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    ops::RangeInclusive,
    sync::Arc,
    time::Duration,
};

use axum::{Json, extract::State};
use infer::finding::{DESCRIPTION_BYTES_MAX, SUMMARY_BYTES_MAX};
use media::FrameRate;
use serde::Serialize;
use serde_json::Number;
use timeline::MarkerConfig;
use utoipa::ToSchema;

use super::{
    ANALYSES_WAITING, App, DRAIN, FAILURES_MAX, READERS_WAITING,
    analyze::{self, SegmentMs, WindowSize},
    events::{self, QueryLimit, WaitMs},
    extract::{BODY_BYTES_MAX, Caller},
    feedback::{Category, FeedbackText, Rating},
    idempotency,
    infer::{
        IMAGES, MAX_PARALLEL_DEFAULT, MaxParallel, MaxTokens, PromptText, REQUESTS, TEMPERATURE,
        TimeoutMs,
    },
    ingest::{MAX_FRAMES_DEFAULT, MaxFrames, SourceUri},
    openapi::schema_types,
    pagination::PageLimit,
    reason::{self, ChunkPictures, ChunkSize, MaxEdge, SemanticPrompt, SemanticTimeout},
    search::{self, SearchLimit},
    send_budget,
    upload::FORM_BYTES_MAX,
    webhooks::{WebhookDescription, WebhookUrl},
};
use crate::record::recording::WINDOWING_DEFAULT;
use crate::{
    base::keys::KEY_BYTES_MIN,
    deliver::webhook,
    record::runner,
    runs::{idempotency as keys, upload},
};

/// Limits of a server.
#[derive(Serialize, ToSchema)]
pub struct Limits {
    request_id: schema_types::RequestId,
    /// Limits by name: `route.field` for a field of a body, or a noun.
    limits: BTreeMap<&'static str, Limit>,
}

/// A limit; `min` and `max` are inclusive.
#[derive(Serialize, ToSchema)]
struct Limit {
    /// Minimum; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64, required = false)]
    min: Option<Number>,
    /// Maximum; null if the limit is off.
    #[schema(value_type = Option<f64>, required = true)]
    max: Option<Number>,
    /// Default value; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64, required = false)]
    default: Option<Number>,
    /// Unit of the values.
    unit: &'static str,
    /// Setting that changes the limit; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String, required = false)]
    setting: Option<&'static str>,
    /// Amount in use by the caller; absent if it is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64, required = false)]
    used: Option<Number>,
}

impl Limit {
    fn most(max: impl Into<Number>, unit: &'static str) -> Limit {
        Limit::switched(Some(max), unit)
    }

    fn within<T: Into<Number> + Clone>(range: RangeInclusive<T>, unit: &'static str) -> Limit {
        let (min, max) = range.into_inner();
        Limit { min: Some(min.into()), ..Limit::most(max, unit) }
    }

    /// Returns a limit that its setting may turn off.
    fn switched(max: Option<impl Into<Number>>, unit: &'static str) -> Limit {
        let max = max.map(Into::into);
        Limit { min: None, max, default: None, unit, setting: None, used: None }
    }

    fn default(self, default: impl Into<Number>) -> Limit {
        Limit { default: Some(default.into()), ..self }
    }

    fn by(self, setting: &'static str) -> Limit {
        Limit { setting: Some(setting), ..self }
    }
}

fn number(value: f64) -> Number {
    Number::from_f64(value).expect("a constant of ours is finite")
}

fn numbers(range: RangeInclusive<f64>) -> RangeInclusive<Number> {
    number(*range.start())..=number(*range.end())
}

fn rates() -> RangeInclusive<Number> {
    numbers(FrameRate::ANALYSED)
}

/// List all limits of this server.
#[utoipa::path(
    get, path = "/v1/limits", operation_id = "getLimits", tag = "server",
    responses((status = 200, description = "The limits", body = Limits)),
)]
pub async fn list(State(app): State<Arc<App>>, caller: Caller) -> Json<Limits> {
    let mut limits = of_fields();
    limits.insert("marker_confidence", of_markers());
    let used = app.quota.used(&caller.principal);
    limits.extend(of_server(&app));
    limits.extend(remote::of_remote(&app));
    limits.extend(recorded::of_media(app.jobs));
    limits.extend(of_reason());
    limits.extend(live::of_live(&app));
    limits.extend(of_workers());
    limits.extend(of_inference(&app, &caller));
    // Without a quota of its own, each of several principals is limited to a share of the disk.
    let stored = Limit::switched(app.quota.most(&caller.principal), "bytes");
    let stored = Limit { used: Some(used.into()), ..stored.by("SERVICE_PRINCIPAL_QUOTA_BYTES") };
    limits.insert("principal_stored", stored);
    Json(Limits { request_id: caller.request_id.into(), limits })
}

/// Returns the confidence from which a marker is exact.
fn of_markers() -> Limit {
    let threshold = MarkerConfig::default().threshold;
    Limit::within(numbers(0.0..=1.0), "confidence").default(number(threshold.as_f64()))
}

/// Returns the limits of request fields; a value beyond one is answered with 422.
fn of_fields() -> BTreeMap<&'static str, Limit> {
    let window = MarkerConfig::default().correction_window_frames;
    BTreeMap::from([
        ("ingest.source_uri", Limit::within(SourceUri::BYTES, "bytes")),
        (
            "ingest.max_frames",
            Limit::within(MaxFrames::RANGE, "frames").default(MAX_FRAMES_DEFAULT),
        ),
        ("ingest.fixed_fps", Limit::within(rates(), "frames a second")),
        ("ingest.sample_fps", Limit::within(rates(), "frames a second")),
        ("analyze.frames", Limit::within(1..=analyze::FRAMES_MAX, "frames")),
        ("analyze.fixed_fps", Limit::within(rates(), "frames a second")),
        (
            "analyze.window_size",
            Limit::within(WindowSize::RANGE, "frames").default(WINDOWING_DEFAULT.0),
        ),
        (
            "analyze.segment_ms",
            Limit::within(SegmentMs::RANGE, "milliseconds").default(WINDOWING_DEFAULT.1),
        ),
        (
            "analyze.marker_correction_window_frames",
            Limit::within(analyze::FrameIndex::RANGE, "frames").default(window),
        ),
        ("analyze.trace_id", Limit::within(analyze::TraceId::BYTES, "bytes")),
        ("label", Limit::within(media::LABEL_BYTES, "bytes")),
        ("feedback.rating", Limit::within(Rating::RANGE, "points")),
        ("feedback.category", Limit::within(Category::BYTES, "bytes")),
        ("feedback.feedback", Limit::within(FeedbackText::BYTES, "bytes")),
        ("webhooks.url", Limit::within(WebhookUrl::BYTES, "bytes")),
        ("webhooks.description", Limit::within(WebhookDescription::BYTES, "bytes")),
        ("infer.prompt", Limit::within(PromptText::BYTES, "bytes")),
        ("infer.max_tokens", Limit::within(MaxTokens::RANGE, "tokens")),
        ("infer.temperature", Limit::within(numbers(TEMPERATURE), "")),
        ("infer.timeout_ms", Limit::within(TimeoutMs::RANGE, "milliseconds")),
        ("infer.images", Limit::most(*IMAGES.end(), "pictures")),
        ("batch.requests", Limit::within(REQUESTS, "questions")),
        (
            "batch.max_parallel",
            Limit::within(MaxParallel::RANGE, "at once").default(MAX_PARALLEL_DEFAULT),
        ),
        ("query.limit", Limit::within(QueryLimit::RANGE, "events").default(events::QUERY_DEFAULT)),
        ("query.wait_ms", Limit::within(WaitMs::RANGE, "milliseconds").default(0)),
        ("search.query", Limit::within(1..=search::QUERY_BYTES_MAX, "bytes")),
        ("search.limit", Limit::within(SearchLimit::RANGE, "hits").default(search::SEARCH_DEFAULT)),
        ("list.limit", Limit::within(PageLimit::RANGE, "items")),
    ])
}

/// Returns the limits of the fields of a reason request; a value beyond one is answered with 422.
fn of_reason() -> BTreeMap<&'static str, Limit> {
    BTreeMap::from([
        (
            "reason.chunk_size",
            Limit::within(ChunkSize::RANGE, "frames").default(reason::CHUNK_SIZE_DEFAULT),
        ),
        ("reason.semantic_prompt", Limit::within(SemanticPrompt::BYTES, "bytes")),
        ("reason.semantic_frames_per_chunk", Limit::within(ChunkPictures::RANGE, "pictures")),
        ("reason.semantic_frame_max_edge", Limit::within(MaxEdge::RANGE, "pixels")),
        (
            "reason.semantic_timeout_ms",
            Limit::within(SemanticTimeout::RANGE, "milliseconds")
                .default(reason::SEMANTIC_TIMEOUT_DEFAULT),
        ),
        (
            "reason.second_pass_threshold",
            Limit::within(numbers(0.0..=1.0), "confidence")
                .default(number(reason::THRESHOLD_DEFAULT)),
        ),
        (
            "reason.video_clip_duration_s",
            Limit::most(number(reason::CLIP_S_MAX), "seconds")
                .default(number(reason::CLIP_S_DEFAULT)),
        ),
        (
            "reason.vlm_concurrency",
            Limit::within(reason::Concurrency::RANGE, "chunks at once")
                .default(reason::CONCURRENCY_DEFAULT),
        ),
    ])
}

/// Returns the server's limits on connections, requests, work and storage.
fn of_server(app: &App) -> BTreeMap<&'static str, Limit> {
    let (settings, runs) = (&app.settings, app.registry.limits());
    let streams = app.streams.limits();
    let (transport, limiter) = (transport::ServerLimits::default(), app.limiter.limits());
    let rate =
        |rate: Option<NonZeroU32>| Limit::switched(rate.map(NonZeroU32::get), "requests a second");
    let quota = |bytes: Option<NonZeroU64>| Limit::switched(bytes.map(NonZeroU64::get), "bytes");
    let milliseconds = |time: Duration| Limit::most(time.as_millis() as u64, "milliseconds");
    let seconds = |time: Duration| Limit::most(time.as_secs(), "seconds");
    let least =
        |min: usize, unit| Limit { min: Some(min.into()), ..Limit::switched(None::<u64>, unit) };
    BTreeMap::from([
        ("body", Limit::most(BODY_BYTES_MAX, "bytes")),
        ("header_block", Limit::most(transport.header_bytes_max, "bytes")),
        ("request_header", seconds(transport.header)),
        ("tls_handshake_and_header", seconds(transport.handshake)),
        ("request_idle", Limit::most(transport.idle.as_secs(), "seconds")),
        ("connections", Limit::most(limiter.total, "connections").by("SERVICE_MAX_CONNECTIONS")),
        (
            "connections_per_address",
            Limit::switched(settings.connections_per_address.map(NonZeroU32::get), "connections")
                .by("SERVICE_MAX_CONNECTIONS_PER_ADDRESS"),
        ),
        ("requests_per_connection", Limit::most(transport.streams_max, "requests at once")),
        ("active_runs", Limit::most(runs.active, "runs").by("SERVICE_ACTIVE_STREAM_LIMIT")),
        ("run_idle", Limit::most(runs.ttl.as_secs(), "seconds").by("SERVICE_STREAM_TTL_SECS")),
        ("requests", rate(settings.rate_global).by("SERVICE_RATE_LIMIT_GLOBAL_RPS")),
        ("principal_requests", rate(settings.rate_principal).by("SERVICE_RATE_LIMIT_TENANT_RPS")),
        ("failed_authentications", Limit::most(FAILURES_MAX, "of an address, then one a second")),
        ("api_key", least(KEY_BYTES_MIN, "characters")),
        ("stored", quota(settings.quotas.global).by("SERVICE_QUOTA_BYTES")),
        (
            "disk_reserve",
            Limit::most(settings.disk_reserve, "bytes").by("SERVICE_DISK_RESERVE_MIB"),
        ),
        ("readers", Limit::most(app.jobs, "long answers made at once")),
        ("readers_waiting", Limit::most(READERS_WAITING, "waiting")),
        (
            "unsent",
            Limit::most(send_budget::ALL_BYTES_MAX, "bytes of answers that wait to be taken"),
        ),
        (
            "principal_unsent",
            Limit::most(send_budget::OWN_BYTES_MAX, "bytes of answers that wait to be taken"),
        ),
        ("event_streams", Limit::most(streams.all, "at once").by("SERVICE_MAX_STREAMS")),
        (
            "principal_event_streams",
            Limit::most(streams.principal, "at once").by("SERVICE_MAX_PRINCIPAL_STREAMS"),
        ),
        ("file_jobs", Limit::most(app.jobs, "at once")),
        // One permit is reserved for jobs that do not wait for models.
        ("reasonings_decoding", Limit::most(app.jobs.saturating_sub(1).max(1), "at once")),
        ("reasonings", Limit::most(runner::REASONINGS_MAX, "at once")),
        (
            "reasoning_outage",
            milliseconds(settings.inference.outage).by("SERVICE_REASON_OUTAGE_MS"),
        ),
        ("description", Limit::most(DESCRIPTION_BYTES_MAX, "bytes; what is longer is cut")),
        ("summary", Limit::most(SUMMARY_BYTES_MAX, "bytes; what is longer is cut")),
        (
            "raw_output",
            Limit::most(crate::record::reason::RAW_BYTES_MAX, "bytes; what is longer is cut"),
        ),
        ("file_jobs_waiting", Limit::most(runner::QUEUE_MAX, "waiting")),
        ("analyses", Limit::most(app.jobs, "at once")),
        ("analyses_waiting", Limit::most(ANALYSES_WAITING, "waiting")),
        ("searches", Limit::most(crate::deliver::search::RUNNING_MAX, "at once")),
        ("searches_waiting", Limit::most(crate::deliver::search::WAITING_MAX, "waiting")),
        ("upload", Limit::most(settings.upload_bytes_max, "bytes").by("SERVICE_MAX_UPLOAD_BYTES")),
        ("upload_form", Limit::most(FORM_BYTES_MAX, "bytes beside the file")),
        ("uploads", Limit::most(upload::ALL_MAX, "at once")),
        ("principal_uploads", Limit::most(upload::OWN_MAX, "at once")),
        ("run_webhooks", Limit::most(webhook::PER_RUN_MAX, "webhooks")),
        ("principal_webhooks", Limit::most(webhook::PER_PRINCIPAL_MAX, "webhooks")),
        (
            "principal_done_webhooks",
            Limit::most(webhook::DONE_MAX, "webhooks kept when nothing comes for them any more"),
        ),
        ("dead_letters", Limit::most(webhook::DEAD_LETTERS_MAX, "events of a webhook")),
        (
            "webhook_attempts",
            Limit::most(settings.webhooks.attempts, "attempts").by("SERVICE_WEBHOOK_ATTEMPTS"),
        ),
        (
            "webhook_attempt",
            milliseconds(settings.webhooks.timeout).by("SERVICE_WEBHOOK_TIMEOUT_MS"),
        ),
        ("idempotency_key", Limit::within(idempotency::KEY_BYTES, "bytes")),
        ("idempotency_kept", Limit::most(keys::KEPT.as_secs(), "seconds")),
        ("idempotency_answer", Limit::most(keys::ANSWER_BYTES_MAX, "bytes")),
        ("idempotency_answers", Limit::most(keys::BYTES_MAX, "bytes of a principal")),
        ("idempotency_keys", Limit::most(keys::RECORDS_MAX, "of a principal")),
        ("event_payload", Limit::most(timeline::PAYLOAD_BYTES_MAX, "bytes")),
        ("drain", Limit::most(DRAIN.as_secs(), "seconds")),
    ])
}

/// Returns the limits of a file job in its media worker.
fn of_workers() -> BTreeMap<&'static str, Limit> {
    let file = worker::WorkerLimits::default();
    let seconds = |time: Duration| Limit::most(time.as_secs(), "seconds");
    BTreeMap::from([
        ("file_job", seconds(file.wall)),
        ("file_job_memory", Limit::most(file.memory_bytes, "bytes")),
        ("file_job_output", Limit::most(file.output_bytes, "bytes of signals and stills")),
        ("file_job_first_frame", seconds(file.first_frame)),
        ("file_job_stall", seconds(file.stall)),
    ])
}

/// Returns the limits of inference, and of a principal's tokens.
fn of_inference(app: &App, caller: &Caller) -> BTreeMap<&'static str, Limit> {
    let limits = &app.settings.inference.limits;
    let mut day = Limit::switched(
        (limits.tokens_per_day > 0).then_some(limits.tokens_per_day),
        "tokens of a UTC day",
    );
    day.used = app.inference.day(&caller.principal).map(|(used, _)| used.into());
    BTreeMap::from([
        (
            "inferences",
            Limit::most(limits.in_flight, "at once").by("SERVICE_INFERENCE_GLOBAL_LIMIT"),
        ),
        (
            "principal_inferences",
            Limit::most(limits.in_flight_per_principal, "at once")
                .by("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT"),
        ),
        (
            "inferences_waiting",
            Limit::most(limits.waiters, "waiting").by("SERVICE_INFERENCE_WAITER_LIMIT"),
        ),
        (
            "inference_wait",
            Limit::most(limits.wait.as_millis() as u64, "milliseconds")
                .by("SERVICE_INFERENCE_WAIT_TIMEOUT_MS"),
        ),
        (
            "inference_pictures",
            Limit::most(limits.image_bytes, "bytes at once").by("SERVICE_INFERENCE_IMAGE_MIB"),
        ),
        (
            "inference_tokens",
            Limit::most(limits.tokens, "tokens at once").by("SERVICE_INFERENCE_TOKENS"),
        ),
        ("principal_day_tokens", day.by("SERVICE_INFERENCE_TOKENS_PER_DAY")),
        ("output_schema", Limit::most(infer::SCHEMA_BYTES_MAX, "bytes")),
        ("output_schema_depth", Limit::most(infer::DEPTH_MAX, "levels")),
        ("inference_reply", Limit::most(infer::REPLY_BYTES_MAX, "bytes")),
    ])
}
