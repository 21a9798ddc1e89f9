//! All limits of the server: accepted values, and the setting that changes each.
//!
//! Values are read from the constants and settings that enforce them, never repeated here. Long because it
//! names every limit.

use std::{
    collections::BTreeMap,
    num::{NonZeroU32, NonZeroU64},
    ops::RangeInclusive,
};

use infer::finding::{DESCRIPTION_BYTES_MAX, SUMMARY_BYTES_MAX};
use media::FrameRate;
use serde_json::Number;
use timeline::MarkerConfig;
use transport::webrtc::PEER_BYTES_A_SECOND;

use super::{
    ANALYSES_WAITING, DRAIN, FAILURES_MAX, READERS_WAITING, analyze, events, extract, feedback,
    idempotency,
    infer::{
        IMAGES, MAX_PARALLEL_DEFAULT, MaxParallel, MaxTokens, PromptText, REQUESTS, TEMPERATURE,
        TimeoutMs,
    },
    ingest, keyframes, pagination,
    prelude::*,
    reason, search, send_budget, signals,
    upload::FORM_BYTES_MAX,
    webhooks,
    whip::{
        self,
        attach_config::{self, ClipFps, LivePrompt, TokenRate},
    },
};
use crate::{
    base::{clock::millis, keys::KEY_BYTES_MIN},
    deliver::{search as index, webhook},
    record::{
        live,
        reason::RAW_BYTES_MAX,
        recording::WINDOWING_DEFAULT,
        remote::{FETCHES_MAX, GRACE, RATE_MIN, WAIT_MAX},
        runner::{self, EXCERPT_IDLE},
        small_stills,
    },
    runs::{idempotency as keys, tickets, upload},
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
    #[serde(skip)]
    name: &'static str,
    /// Minimum; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64)]
    min: Option<Number>,
    /// Maximum; null if the limit is off.
    #[schema(value_type = Option<f64>, required = true)]
    max: Option<Number>,
    /// Default value; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64)]
    default: Option<Number>,
    /// Unit of the values.
    unit: &'static str,
    /// Setting that changes the limit; absent if there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = String)]
    setting: Option<&'static str>,
    /// Amount in use by the caller; absent if it is not counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = f64)]
    used: Option<Number>,
}

impl Limit {
    fn most(name: &'static str, max: impl Into<Number>, unit: &'static str) -> Limit {
        Limit::switched(name, Some(max), unit)
    }

    fn least(name: &'static str, min: impl Into<Number>, unit: &'static str) -> Limit {
        Limit { min: Some(min.into()), ..Limit::switched(name, None::<u64>, unit) }
    }

    fn within<T: Into<Number>>(
        name: &'static str,
        range: RangeInclusive<T>,
        unit: &'static str,
    ) -> Limit {
        let (min, max) = range.into_inner();
        Limit { max: Some(max.into()), ..Limit::least(name, min, unit) }
    }

    /// Returns a limit that its setting may turn off.
    fn switched(name: &'static str, max: Option<impl Into<Number>>, unit: &'static str) -> Limit {
        let max = max.map(Into::into);
        Limit { name, min: None, max, default: None, unit, setting: None, used: None }
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

fn seconds(name: &'static str, time: Duration) -> Limit {
    Limit::most(name, time.as_secs(), "seconds")
}

fn milliseconds(name: &'static str, time: Duration) -> Limit {
    Limit::most(name, millis(time), "milliseconds")
}

fn rates() -> RangeInclusive<Number> {
    numbers(FrameRate::ANALYSED)
}

/// List all limits of this server.
#[utoipa::path(
    get, path = "/v1/limits", operation_id = "getLimits", tag = "server",
    responses((status = 200, description = "The limits", body = Limits)),
)]
pub async fn list(Call(app, caller): Call) -> Json<Limits> {
    let mut limits = of_fields();
    let used = app.quota.used(&caller.principal);
    limits.extend(of_connections(&app));
    limits.extend(of_work(&app));
    limits.extend(of_deliveries(&app));
    limits.extend(of_remote(&app));
    limits.extend(of_media(app.jobs));
    limits.extend(of_live(&app));
    limits.extend(of_inference(&app, &caller));
    // Without a quota of its own, each of several principals is limited to a share of the disk.
    let most = app.quota.most(&caller.principal);
    let stored = Limit::switched("principal_stored", most, "bytes");
    let stored = Limit { used: Some(used.into()), ..stored.by("SERVICE_PRINCIPAL_QUOTA_BYTES") };
    limits.push(stored);
    let limits = limits.into_iter().map(|limit| (limit.name, limit)).collect();
    Json(Limits { request_id: caller.request_id.into(), limits })
}

/// Returns the limits of request fields; a value beyond one is answered with 422.
fn of_fields() -> Vec<Limit> {
    let window = MarkerConfig::default().correction_window_frames;
    vec![
        Limit::within("ingest.source_uri", ingest::SourceUri::BYTES, "bytes"),
        Limit::within("ingest.max_frames", ingest::MaxFrames::RANGE, "frames")
            .default(ingest::MAX_FRAMES_DEFAULT),
        Limit::within("ingest.fixed_fps", rates(), "frames a second"),
        Limit::within("ingest.sample_fps", rates(), "frames a second"),
        Limit::within("analyze.frames", 1..=analyze::FRAMES_MAX, "frames"),
        Limit::within("analyze.fixed_fps", rates(), "frames a second"),
        Limit::within("analyze.window_size", analyze::WindowSize::RANGE, "frames")
            .default(WINDOWING_DEFAULT.0),
        Limit::within("analyze.segment_ms", analyze::SegmentMs::RANGE, "milliseconds")
            .default(WINDOWING_DEFAULT.1),
        Limit::within(
            "analyze.marker_correction_window_frames",
            analyze::FrameIndex::RANGE,
            "frames",
        )
        .default(window),
        Limit::within("analyze.trace_id", analyze::TraceId::BYTES, "bytes"),
        Limit::within("label", media::LABEL_BYTES, "bytes"),
        Limit::within("feedback.rating", feedback::Rating::RANGE, "points"),
        Limit::within("feedback.category", feedback::Category::BYTES, "bytes"),
        Limit::within("feedback.feedback", feedback::FeedbackText::BYTES, "bytes"),
        Limit::within("webhooks.url", webhooks::WebhookUrl::BYTES, "bytes"),
        Limit::within("webhooks.description", webhooks::WebhookDescription::BYTES, "bytes"),
        Limit::within("infer.prompt", PromptText::BYTES, "bytes"),
        Limit::within("infer.max_tokens", MaxTokens::RANGE, "tokens"),
        Limit::within("infer.temperature", numbers(TEMPERATURE), ""),
        Limit::within("infer.timeout_ms", TimeoutMs::RANGE, "milliseconds"),
        Limit::most("infer.images", *IMAGES.end(), "pictures"),
        Limit::within("batch.requests", REQUESTS, "questions"),
        Limit::within("batch.max_parallel", MaxParallel::RANGE, "at once")
            .default(MAX_PARALLEL_DEFAULT),
        Limit::within("query.limit", events::QueryLimit::RANGE, "events")
            .default(events::QUERY_DEFAULT),
        Limit::within("query.wait_ms", events::WaitMs::RANGE, "milliseconds").default(0),
        Limit::within("search.query", 1..=search::QUERY_BYTES_MAX, "bytes"),
        Limit::within("search.limit", search::SearchLimit::RANGE, "hits")
            .default(search::SEARCH_DEFAULT),
        Limit::within("list.limit", pagination::PageLimit::RANGE, "items"),
        Limit::within("reason.chunk_size", reason::ChunkSize::RANGE, "frames")
            .default(reason::CHUNK_SIZE_DEFAULT),
        Limit::within("reason.semantic_prompt", reason::SemanticPrompt::BYTES, "bytes"),
        Limit::within("reason.semantic_frames_per_chunk", reason::ChunkPictures::RANGE, "pictures"),
        Limit::within("reason.semantic_frame_max_edge", reason::MaxEdge::RANGE, "pixels"),
        Limit::within("reason.semantic_timeout_ms", reason::SemanticTimeout::RANGE, "milliseconds")
            .default(reason::SEMANTIC_TIMEOUT_DEFAULT),
        Limit::within("reason.second_pass_threshold", numbers(0.0..=1.0), "confidence")
            .default(number(reason::THRESHOLD_DEFAULT)),
        Limit::most("reason.video_clip_duration_s", number(reason::CLIP_S_MAX), "seconds")
            .default(number(reason::CLIP_S_DEFAULT)),
        Limit::within("reason.vlm_concurrency", reason::Concurrency::RANGE, "chunks at once")
            .default(reason::CONCURRENCY_DEFAULT),
    ]
}

/// Returns the server's limits on connections, requests, unsent answers and arriving bodies.
fn of_connections(app: &App) -> Vec<Limit> {
    let settings = &app.settings;
    let (transport, limiter) = (transport::ServerLimits::default(), app.limiter.limits());
    let switched = |name, most: Option<NonZeroU32>, unit| {
        Limit::switched(name, most.map(NonZeroU32::get), unit)
    };
    let (unsent, unfinished) = ("bytes of unread answers", "bytes of unfinished bodies");
    vec![
        Limit::most("body", extract::BODY_BYTES_MAX, "bytes"),
        Limit::most("header_block", transport.header_bytes_max, "bytes"),
        seconds("request_header", transport.header),
        seconds("tls_handshake_and_header", transport.handshake),
        seconds("request_idle", transport.idle),
        Limit::most("connections", limiter.total, "connections").by("SERVICE_MAX_CONNECTIONS"),
        switched("connections_per_address", settings.connections_per_address, "connections")
            .by("SERVICE_MAX_CONNECTIONS_PER_ADDRESS"),
        Limit::most("requests_per_connection", transport.streams_max, "requests at once"),
        switched("requests", settings.rate_global, "requests a second")
            .by("SERVICE_RATE_LIMIT_GLOBAL_RPS"),
        switched("principal_requests", settings.rate_principal, "requests a second")
            .by("SERVICE_RATE_LIMIT_TENANT_RPS"),
        Limit::most("failed_authentications", FAILURES_MAX, "of an address, then one a second"),
        Limit::least("api_key", KEY_BYTES_MIN, "characters"),
        Limit::most("unsent", send_budget::ALL_BYTES_MAX, unsent),
        Limit::most("principal_unsent", send_budget::OWN_BYTES_MAX, unsent),
        Limit::most("arriving", send_budget::ALL_BYTES_MAX, unfinished),
        Limit::most("principal_arriving", send_budget::OWN_BYTES_MAX, unfinished),
        seconds("drain", DRAIN),
    ]
}

/// Returns the server's limits on runs, jobs, uploads and storage.
fn of_work(app: &App) -> Vec<Limit> {
    let (settings, runs) = (&app.settings, app.registry.limits);
    let quota = settings.quotas.global.map(NonZeroU64::get);
    let exact = MarkerConfig::default().threshold.as_f64();
    let file = worker::WorkerLimits::default();
    vec![
        Limit::within("marker_confidence", numbers(0.0..=1.0), "confidence").default(number(exact)),
        Limit::most("active_runs", runs.active, "runs").by("SERVICE_ACTIVE_STREAM_LIMIT"),
        seconds("run_idle", runs.ttl).by("SERVICE_STREAM_TTL_SECS"),
        Limit::switched("stored", quota, "bytes").by("SERVICE_QUOTA_BYTES"),
        Limit::most("disk_reserve", settings.disk_reserve, "bytes").by("SERVICE_DISK_RESERVE_MIB"),
        Limit::most("readers", app.jobs, "long answers made at once"),
        Limit::most("readers_waiting", READERS_WAITING, "waiting"),
        Limit::most("file_jobs", app.jobs, "at once"),
        // One permit is reserved for jobs that do not wait for models.
        Limit::most("reasonings_decoding", app.jobs.saturating_sub(1).max(1), "at once"),
        Limit::most("reasonings", runner::REASONINGS_MAX, "at once"),
        milliseconds("reasoning_outage", settings.inference.outage).by("SERVICE_REASON_OUTAGE_MS"),
        Limit::most("description", DESCRIPTION_BYTES_MAX, "bytes; what is longer is cut"),
        Limit::most("summary", SUMMARY_BYTES_MAX, "bytes; what is longer is cut"),
        Limit::most("raw_output", RAW_BYTES_MAX, "bytes; what is longer is cut"),
        Limit::most("file_jobs_waiting", runner::QUEUE_MAX, "waiting"),
        Limit::most("analyses", app.jobs, "at once"),
        Limit::most("analyses_waiting", ANALYSES_WAITING, "waiting"),
        Limit::most("searches", index::RUNNING_MAX, "at once"),
        Limit::most("searches_waiting", index::WAITING_MAX, "waiting"),
        Limit::most("upload", settings.upload_bytes_max, "bytes").by("SERVICE_MAX_UPLOAD_BYTES"),
        Limit::most("upload_form", FORM_BYTES_MAX, "bytes beside the file"),
        Limit::most("uploads", upload::ALL_MAX, "at once"),
        Limit::most("principal_uploads", upload::OWN_MAX, "at once"),
        seconds("file_job", file.wall),
        Limit::most("file_job_memory", file.memory_bytes, "bytes"),
        Limit::most("file_job_output", file.output_bytes, "bytes of signals and stills"),
        seconds("file_job_first_frame", file.first_frame),
        seconds("file_job_stall", file.stall),
    ]
}

/// Returns the server's limits on event streams, webhooks, kept answers and events.
fn of_deliveries(app: &App) -> Vec<Limit> {
    let (settings, streams) = (&app.settings, app.streams.limits());
    vec![
        Limit::most("event_streams", streams.all, "at once").by("SERVICE_MAX_STREAMS"),
        Limit::most("principal_event_streams", streams.principal, "at once")
            .by("SERVICE_MAX_PRINCIPAL_STREAMS"),
        Limit::most("run_webhooks", webhook::PER_RUN_MAX, "webhooks"),
        Limit::most("principal_webhooks", webhook::PER_PRINCIPAL_MAX, "webhooks"),
        Limit::most(
            "principal_done_webhooks",
            webhook::DONE_MAX,
            "webhooks kept when nothing comes for them any more",
        ),
        Limit::most("dead_letters", webhook::DEAD_LETTERS_MAX, "events of a webhook"),
        Limit::most("webhook_attempts", settings.webhooks.attempts, "attempts")
            .by("SERVICE_WEBHOOK_ATTEMPTS"),
        milliseconds("webhook_attempt", settings.webhooks.timeout).by("SERVICE_WEBHOOK_TIMEOUT_MS"),
        Limit::within("idempotency_key", idempotency::KEY_BYTES, "bytes"),
        seconds("idempotency_kept", keys::KEPT),
        Limit::most("idempotency_answer", keys::ANSWER_BYTES_MAX, "bytes"),
        Limit::most("idempotency_answers", keys::BYTES_MAX, "bytes of a principal"),
        Limit::most("idempotency_keys", keys::RECORDS_MAX, "of a principal"),
        Limit::most("event_payload", timeline::PAYLOAD_BYTES_MAX, "bytes"),
    ]
}

/// Returns the limits of inference, and of a principal's tokens.
fn of_inference(app: &App, caller: &Caller) -> Vec<Limit> {
    let limits = &app.settings.inference.limits;
    let mut day = Limit::switched(
        "principal_day_tokens",
        (limits.tokens_per_day > 0).then_some(limits.tokens_per_day),
        "tokens of a UTC day",
    );
    day.used = app.inference.day(&caller.principal).map(Into::into);
    vec![
        Limit::most("inferences", limits.in_flight, "at once").by("SERVICE_INFERENCE_GLOBAL_LIMIT"),
        Limit::most("principal_inferences", limits.in_flight_per_principal, "at once")
            .by("SERVICE_INFERENCE_PER_PRINCIPAL_LIMIT"),
        Limit::most("inferences_waiting", limits.waiters, "waiting")
            .by("SERVICE_INFERENCE_WAITER_LIMIT"),
        milliseconds("inference_wait", limits.wait).by("SERVICE_INFERENCE_WAIT_TIMEOUT_MS"),
        Limit::most("inference_pictures", limits.image_bytes, "bytes at once")
            .by("SERVICE_INFERENCE_IMAGE_MIB"),
        Limit::most("inference_tokens", limits.tokens, "tokens at once")
            .by("SERVICE_INFERENCE_TOKENS"),
        day.by("SERVICE_INFERENCE_TOKENS_PER_DAY"),
        Limit::most("output_schema", infer::SCHEMA_BYTES_MAX, "bytes"),
        Limit::most("output_schema_depth", infer::DEPTH_MAX, "levels"),
        Limit::most("inference_reply", infer::REPLY_BYTES_MAX, "bytes"),
    ]
}

/// Returns the limits of live sessions, and of publishers' fields, beyond which the answer is 400 or 413.
fn of_live(app: &App) -> Vec<Limit> {
    let settings = &app.settings.live;
    let (length, delay) =
        (numbers(attach_config::CLIP_LENGTH_S), numbers(attach_config::CLIP_DELAY_S));
    let clip_default = number(attach_config::CLIP_S_DEFAULT);
    vec![
        Limit::most("whip.offer", whip::SDP_BYTES_MAX, "bytes"),
        Limit::most("whip.x-attach-config", attach_config::ENCODED_BYTES_MAX, "bytes of base64url"),
        Limit::within("whip.prompt", LivePrompt::BYTES, "bytes"),
        Limit::within("whip.max_output_tokens_per_second", TokenRate::RANGE, "tokens a second"),
        Limit::within("whip.clip_mode.target_fps", ClipFps::RANGE, "pictures a second")
            .default(attach_config::CLIP_FPS_DEFAULT),
        Limit::within("whip.clip_mode.clip_length_seconds", length, "seconds")
            .default(clip_default.clone()),
        Limit::within("whip.clip_mode.delay_seconds", delay, "seconds").default(clip_default),
        Limit::within("novelty_reuse", numbers(0.0..=1.0), "distance between embeddings")
            .default(number(app.settings.novelty.rule.distance_max.as_f64()))
            .by("SERVICE_NOVELTY_REUSE_THRESHOLD"),
        Limit::most("live_sessions", live::SESSIONS_MAX, "sessions, offers included"),
        Limit::most("live_session_memory", settings.memory_budget, "bytes of sessions and cameras")
            .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        Limit::most(
            "live_principal_memory",
            settings.memory_share,
            "bytes of those of one principal",
        )
        .by("SERVICE_MEDIA_MEMORY_BUDGET_BYTES"),
        Limit::most(
            "live_rate",
            PEER_BYTES_A_SECOND,
            "bytes a second of a publisher, 500 a packet at least",
        ),
        Limit::most("live_connect", live::CONNECT_WITHIN.as_secs(), "seconds from the offer"),
        seconds("live_silence", live::LOST_AFTER),
    ]
}

/// Returns the limits of sources and of requests for recorded media; beyond one the answer is 422.
fn of_media(jobs: usize) -> Vec<Limit> {
    let limits = decode::DemuxLimits::default();
    let (clips, own_clips) = runner::shared_max(jobs);
    vec![
        Limit::most("picture_width", limits.side_px, "pixels"),
        Limit::most("picture_height", limits.side_px, "pixels"),
        Limit::most("container_streams", limits.streams, "streams"),
        Limit::within("signals.max_points", signals::MaxPoints::RANGE, "points"),
        Limit::within("keyframes.max_edge", keyframes::StillEdge::RANGE, "pixels"),
        Limit::most("keyframes_kept", small_stills::KEPT_BYTES_MAX, "bytes of stills scaled down"),
        Limit::most("clip.to_ms", runner::EXCERPT_MS_MAX, "milliseconds after from_ms"),
        Limit::most("clip_time", runner::EXCERPT_TIME.as_secs(), "seconds until a clip is taken"),
        Limit::most("clip_idle", EXCERPT_IDLE.as_secs(), "seconds in which none of it is taken"),
        Limit::most("clips", clips, "at once"),
        Limit::most("principal_clips", own_clips, "at once"),
        Limit::most("clips_waiting", runner::QUEUE_MAX, "waiting"),
        seconds("media_ticket", tickets::LIFE),
        Limit::most("media_tickets", tickets::ALL_MAX, "open"),
        Limit::most("principal_media_tickets", tickets::OWN_MAX, "open"),
    ]
}

/// Returns the limits of sources on other hosts; beyond one the answer is 422.
fn of_remote(app: &App) -> Vec<Limit> {
    use transport::egress::{CONNECT, FIRST_BYTE, IDLE, REDIRECTS_MAX};
    let bytes_max = app.settings.remote.bytes_max;
    let limits = worker::WorkerLimits::remote();
    let (jobs, own_jobs) = runner::shared_max(app.jobs);
    vec![
        Limit::most("remote_jobs", jobs, "at once"),
        Limit::most("principal_remote_jobs", own_jobs, "at once"),
        Limit::least("remote_rate", RATE_MIN, "bytes a second of waiting, once that is due"),
        seconds("remote_rate_due", GRACE),
        seconds("remote_wait", WAIT_MAX),
        Limit::most("remote", bytes_max, "bytes").by("SERVICE_REMOTE_MAX_BYTES"),
        Limit::most(
            "remote_fetches",
            FETCHES_MAX,
            "requests of a job, redirects too; a live source has no limit",
        ),
        Limit::most("remote_redirects", REDIRECTS_MAX, "redirects"),
        seconds("remote_connect", CONNECT),
        seconds("remote_first_byte", FIRST_BYTE),
        seconds("remote_idle", IDLE),
        seconds("remote_job_first_frame", limits.first_frame),
        seconds("remote_job_stall", limits.stall),
        Limit::most(
            "rtsp_reconnect",
            runner::RECONNECT_WITHIN.as_secs(),
            "seconds without a frame, in which a live source is dialled again",
        ),
        Limit::most("hls_playlist", worker::PLAYLIST_BYTES_MAX, "bytes"),
        Limit::most("hls_playlists", worker::PLAYLISTS_MAX, "playlists from the first to media"),
        Limit::most("hls_segments", worker::SEGMENTS_MAX, "segments of a playlist"),
    ]
}
