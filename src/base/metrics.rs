//! Table of all metric series, each a typed handle; `docs/METRICS.md` explains them.
//!
//! Counting allocates nothing, and every label has a fixed set of values. Samples nothing itself: the handler
//! of a scrape sets the gauges first.

mod inference;
mod labelled;
mod outcomes;
mod owners;
mod process;

use ::infer::scheduler::Priority;
use http::{Method, StatusCode};
use objects::Operation;
use prometheus::{
    Encoder, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry,
    TextEncoder,
};
use timeline::{EventKind, RemoteFault};
use transport::webrtc::DropReason;
use worker::WorkerStart;

use super::keys::Principal;
pub(crate) use inference::{ChunkEnd, InferenceMetrics, RefusalLabel};
use labelled::labels;
pub(crate) use labelled::{Counters, Gauges, Label};
pub(crate) use outcomes::{
    ConnectionOutcome, DeliveryOutcome, EmbeddingProvider, NoveltyDecision, QueueLabel,
    RefusalReason, RemoteFailure, SessionEnd, ShedReason, SpanOutcome, StoredFile,
};
pub(crate) use owners::{Owners, Tally, Work};

/// Content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Buckets of histograms of short waits, in seconds: 0.25 ms to 10 s.
const SHORT: &[f64] =
    &[0.000_25, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0];
/// Buckets of histograms of a job's work, in seconds: 10 ms to an hour.
const LONG: &[f64] =
    &[0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1200.0, 3600.0];

macro_rules! series {
    ($($(#[$doc:meta])* $field:ident: $type:ty = $make:path, $name:literal $(, $more:expr)*;)*) => {
        /// All metric series of the server.
        pub struct Metrics {
            registry: Registry,
            $($(#[$doc])* pub $field: $type,)*
        }

        impl Metrics {
            /// Creates every series at zero.
            pub fn new() -> Metrics {
                let registry = Registry::new();
                $(let $field = $make(&registry, $name, doc(&[$(stringify!($doc)),*]) $(, $more)*);)*
                Metrics { registry, $($field,)* }
            }
        }
    };
}

series! {
    /// Frames that the gate decided about.
    frames_analyzed: IntCounter = labelled::counter, "service_pipeline_gate_frames_analyzed_total";
    /// Frames that the gate selected, before any queue.
    keyframes_selected: IntCounter = labelled::counter, "service_pipeline_gate_keyframes_selected_total";
    /// Selected frames that were forwarded to model workers.
    keyframes: IntCounter = labelled::counter, "service_pipeline_keyframes_total";
    /// Decoding time of a job, summed over its threads.
    decode_seconds: Histogram = labelled::histogram, "service_pipeline_decode_seconds", LONG;
    /// Time of a job for measuring frames, gate decisions and encoding stills, summed over its threads.
    gate_seconds: Histogram = labelled::histogram, "service_pipeline_gate_seconds", LONG;
    /// Time from the start of a file job in its worker to its last event.
    job_seconds: Histogram = labelled::histogram, "service_job_seconds", LONG;
    /// Starts of media workers, by whether they were forked or executed.
    worker_starts: Counters<WorkerStart> = Counters::new, "service_worker_starts_total", "from";
    /// Batches that the CPU measured because the device was late.
    gate_batches_late: IntCounter = labelled::counter, "service_gate_batches_late_total";
    /// Measuring devices that were given up and replaced by the CPU, each in one worker.
    gate_devices_lost: IntCounter = labelled::counter, "service_gate_devices_lost_total";
    /// Files, and workers of live sessions, for which software decoding replaced the requested backend.
    decode_fallbacks: IntCounter = labelled::counter, "service_decode_fallbacks_total";
    /// Bytes of remote sources that were fetched.
    remote_bytes: IntCounter = labelled::counter, "service_remote_bytes_total";
    /// Remote sources that were not read, by class of failure.
    remote_failures: Counters<RemoteFailure> = Counters::new, "service_remote_failures_total", "class";
    /// Time of one sync of the log.
    fsync_seconds: Histogram = labelled::histogram, "service_log_fsync_seconds", SHORT;
    /// Time to make one still durable.
    still_seconds: Histogram = labelled::histogram, "service_still_store_seconds", SHORT;
    /// Time to scale one still down, the start of its worker included.
    shrink_seconds: Histogram = labelled::histogram, "service_still_shrink_seconds", SHORT;
    /// Events appended to the log.
    events: Counters<EventKind> = Counters::new, "service_events_appended_total", "kind";
    /// Readable runs.
    runs: IntGaugeVec = labelled::gauges, "service_runs", &["state"];
    /// Requests by route, method and status of their answers.
    http_requests: IntCounterVec = labelled::counters, "service_http_requests_total", &["route", "method", "status"];
    /// Time from a request's head to the head of its answer.
    http_seconds: HistogramVec = labelled::histograms, "service_http_request_duration_seconds", SHORT, &["route"];
    /// Time from the first to the last byte of a received file, stored or not.
    upload_seconds: Histogram = labelled::histogram, "service_upload_receive_seconds", LONG;
    /// Bytes of received files, stored or not.
    upload_bytes: IntCounter = labelled::counter, "service_upload_bytes_total";
    /// Responses that were replayed for their idempotency key.
    replays: IntCounter = labelled::counter, "service_idempotent_replays_total";
    /// Requests refused by a limit.
    refusals: Counters<RefusalReason> = Counters::new, "service_refusals_total", "reason";
    /// Connections that are open.
    connections: IntGauge = labelled::gauge, "service_connections";
    /// Connections by the decision of the limiter.
    admitted: Counters<ConnectionOutcome> = Counters::new, "service_connections_total", "outcome";
    /// Work that waits for a slot, by queue.
    waiting: Gauges<QueueLabel> = Gauges::new, "service_queue_waiting", "queue";
    /// Spans of traces that were finished.
    spans: Counters<SpanOutcome> = Counters::new, "service_trace_spans_total", "outcome";
    /// Log lines, text and JSON, dropped because their reader was too slow or could not be written to.
    log_lines_dropped: IntCounter = labelled::counter, "service_log_lines_dropped_total";
    /// Event streams that are open.
    streams: IntGauge = labelled::gauge, "service_event_streams";
    /// Memory of the search index.
    search_bytes: IntGauge = labelled::gauge, "service_search_index_bytes";
    /// Chunks of descriptions that searches examined.
    search_chunks: IntCounter = labelled::counter, "service_search_chunks_examined_total";
    /// Time from a search's request to its answer, the wait for its slot included.
    search_seconds: Histogram = labelled::histogram, "service_search_seconds", SHORT;
    /// Memory of the log's index.
    index_bytes: IntGauge = labelled::gauge, "service_log_index_bytes";
    /// Sequence number of the last event.
    head: IntGauge = labelled::gauge, "service_log_head";
    /// Events copied to the database.
    mirrored: IntCounter = labelled::counter, "service_mirror_events_total";
    /// Attempts of the mirror that failed at the database.
    mirror_failures: IntCounter = labelled::counter, "service_mirror_failures_total";
    /// Events not mirrored because the database refused them repeatedly.
    mirror_skipped: IntCounter = labelled::counter, "service_mirror_skipped_total";
    /// Events not yet processed by the mirror, as of its last attempt.
    mirror_behind: IntGauge = labelled::gauge, "service_mirror_behind_events";
    /// Age of the first event not yet processed by the mirror, as of its last attempt.
    mirror_lag: IntGauge = labelled::gauge, "service_mirror_lag_seconds";
    /// Events written by the export.
    export_events: IntCounter = labelled::counter, "service_export_events_total";
    /// Bytes of the files that the export wrote.
    export_bytes: IntCounter = labelled::counter, "service_export_bytes_total";
    /// Failed attempts of the export; each is retried.
    export_failures: IntCounter = labelled::counter, "service_export_failures_total";
    /// Events that the export could not read completely because the log is damaged.
    export_skipped: IntCounter = labelled::counter, "service_export_skipped_total";
    /// Age of the first event not yet exported.
    export_lag: IntGauge = labelled::gauge, "service_export_lag_seconds";
    /// Calls of the object store, by operation.
    object_store_calls: Counters<Operation> = Counters::new, "service_object_store_calls_total", "operation";
    /// Calls of the object store that failed, by fault.
    object_store_failures: Counters<RemoteFault> = Counters::new, "service_object_store_failures_total", "fault";
    /// Time of one call of the object store.
    object_store_seconds: Histogram = labelled::histogram, "service_object_store_seconds", SHORT;
    /// Stills and columns on disk that the object store has not accepted yet.
    object_store_unsent: IntGauge = labelled::gauge, "service_object_store_unsent_files";
    /// Bytes of stills cached on disk, if there is an object store.
    object_store_cache_bytes: IntGauge = labelled::gauge, "service_object_store_cache_bytes";
    /// Attempts to deliver an event to a webhook, by outcome.
    webhook_deliveries: Counters<DeliveryOutcome> = Counters::new, "service_webhook_deliveries_total", "outcome";
    /// Bytes counted by quotas: uploads, stills, signal columns and log records of readable data.
    stored_bytes: IntGauge = labelled::gauge, "service_stored_bytes";
    /// Ended runs deleted because of their age.
    retention_runs: IntCounter = labelled::counter, "service_retention_runs_deleted_total";
    /// Events of deleted runs that were purged from the log.
    retention_events: IntCounter = labelled::counter, "service_retention_events_purged_total";
    /// Files removed by retention: past their age, or referenced by no event.
    retention_files: Counters<StoredFile> = Counters::new, "service_retention_files_removed_total", "kind";
    /// Bytes of the files that sweeps removed.
    retention_bytes: Counters<StoredFile> = Counters::new, "service_retention_bytes_removed_total", "kind";
    /// Time of one retention sweep.
    retention_seconds: Histogram = labelled::histogram, "service_retention_sweep_seconds", LONG;
    /// Failed parts of retention sweeps; the next sweep retries them.
    retention_failures: IntCounter = labelled::counter, "service_retention_failures_total";
    /// Damaged events skipped by retention.
    retention_unreadable: IntCounter = labelled::counter, "service_retention_unreadable_events_total";
    /// Requests to model backends, by backend and outcome.
    inference: InferenceMetrics = InferenceMetrics::new, "service_inference_requests_total", LONG;
    /// Time that an inference waited for a permit.
    inference_wait_seconds: Histogram = labelled::histogram, "service_inference_wait_seconds", SHORT;
    /// Inferences refused before they got a permit, by reason.
    inference_refusals: Counters<RefusalLabel> = Counters::new, "service_inference_refusals_total", "reason";
    /// Inferences waiting for a permit.
    inference_waiting: Gauges<Priority> = Gauges::new, "service_inference_waiting", "class";
    /// Inferences holding a permit.
    inference_in_flight: Gauges<Priority> = Gauges::new, "service_inference_in_flight", "class";
    /// Bytes of images of inferences holding a permit.
    inference_image_bytes: IntGauge = labelled::gauge, "service_inference_image_bytes";
    /// Estimated tokens of inferences holding a permit.
    inference_tokens_in_flight: IntGauge = labelled::gauge, "service_inference_tokens_in_flight";
    /// Daily token budgets of principals that reached nine tenths of their limit.
    token_budgets_low: IntCounter = labelled::counter, "service_inference_token_budgets_low_total";
    /// Chunks of reason jobs, by outcome.
    reason_chunks: Counters<ChunkEnd> = Counters::new, "service_reason_chunks_total", "outcome";
    /// Descriptions of live video given as plain text although JSON was requested.
    live_plain_text: IntCounter = labelled::counter, "service_live_plain_text_total";
    /// Live sessions.
    live_sessions: IntGauge = labelled::gauge, "service_live_sessions";
    /// Live sessions whose publisher connected.
    live_connected: IntCounter = labelled::counter, "service_live_connected_total";
    /// Live sessions that ended, by reason.
    live_ends: Counters<SessionEnd> = Counters::new, "service_live_sessions_ended_total", "end";
    /// Media workers of live sessions.
    live_workers: IntGauge = labelled::gauge, "service_live_workers";
    /// Bytes of memory reserved by live sessions, cameras and live playlists.
    live_memory_reserved: IntGauge = labelled::gauge, "service_live_memory_reserved_bytes";
    /// Complete pictures received from publishers.
    live_pictures: IntCounter = labelled::counter, "service_live_pictures_total";
    /// Received pictures that failed to decode.
    live_damaged: IntCounter = labelled::counter, "service_live_pictures_damaged_total";
    /// Packets of live video, retransmissions included.
    live_packets: IntCounter = labelled::counter, "service_live_packets_total";
    /// Packets of live video lost: neither they nor their retransmissions arrived in time.
    live_packets_lost: IntCounter = labelled::counter, "service_live_packets_lost_total";
    /// Packets of live video requested again by NACK.
    live_packets_asked: IntCounter = labelled::counter, "service_live_packets_asked_total";
    /// Keyframes requested from publishers.
    live_keyframes_asked: IntCounter = labelled::counter, "service_live_keyframes_asked_total";
    /// Failures of the WebRTC endpoint, each of which ends every session.
    live_receiver_ends: IntCounter = labelled::counter, "service_live_receiver_ends_total";
    /// Datagrams of live video dropped, in whole or in part, by reason.
    live_refused: Counters<DropReason> = Counters::new, "service_live_datagrams_refused_total", "reason";
    /// Items dropped by live sessions to keep a bound.
    live_shed: Counters<ShedReason> = Counters::new, "service_live_shed_total", "what";
    /// Time from the last packet of a picture to the gate's decision.
    live_decision_seconds: Histogram = labelled::histogram, "service_live_decision_seconds", SHORT;
    /// Time from a publisher's connection to the gate's first decision about one of its pictures.
    live_first_decision_seconds: Histogram = labelled::histogram, "service_live_first_decision_seconds", SHORT;
    /// Pictures and clips for which no model gave a description.
    live_undescribed: IntCounter = labelled::counter, "service_live_undescribed_total";
    /// Selected frames by the outcome of the novelty check.
    novelty_decisions: Counters<NoveltyDecision> = Counters::new, "service_novelty_decisions_total", "decision";
    /// Execution provider that embeds images: 1 for the one in use.
    embedding_provider: Gauges<EmbeddingProvider> = Gauges::new, "service_embedding_provider", "provider";
    /// Time to embed one picture, the wait for its batch included.
    embedding_seconds: Histogram = labelled::histogram, "service_embedding_seconds", SHORT;
    /// Work of each principal: not a series, shown to that principal alone.
    owners: Owners = Owners::new, "owners";
    /// Resource use of the process.
    process: process::ProcessMetrics = process::ProcessMetrics::new, "process";
}

labels!(of DropReason, EventKind, Operation, Priority, RemoteFault, WorkerStart);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics::new()
    }
}

/// Methods, and statuses that the server returns; any other is counted as [`OTHER`].
const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
const STATUSES: [u16; 32] = [
    200, 201, 202, 204, 206, 301, 302, 304, 400, 401, 403, 404, 405, 406, 408, 409, 410, 411, 412,
    413, 415, 416, 421, 422, 428, 429, 431, 500, 501, 502, 503, 504,
];
const OTHER: &str = "other";

impl Metrics {
    /// Counts an answer of the route `template`, `seconds` after its request.
    pub fn answered(&self, template: &str, method: &Method, status: StatusCode, seconds: f64) {
        let method = method.as_str();
        let method = if METHODS.contains(&method) { method } else { OTHER };
        let code = if STATUSES.contains(&status.as_u16()) { status.as_str() } else { OTHER };
        self.http_requests.with_label_values(&[template, method, code]).inc();
        self.http_seconds.with_label_values(&[template]).observe(seconds);
    }

    /// Counts `analyzed` decisions of the gate in work of `owner`, of which `selected` keep their frame.
    pub fn decided(&self, owner: &Principal, analyzed: u64, selected: u64) {
        self.frames_analyzed.inc_by(analyzed);
        self.keyframes_selected.inc_by(selected);
        self.owners.of(owner).decided(analyzed, selected);
    }

    /// Returns every series in the Prometheus text format.
    pub fn text(&self) -> prometheus::Result<Vec<u8>> {
        let mut text = Vec::new();
        TextEncoder::new().encode(&self.registry.gather(), &mut text)?;
        Ok(text)
    }
}

/// Returns the help text of a series: its doc comment, as `stringify!` renders the attribute.
fn doc(attributes: &[&str]) -> String {
    let lines = attributes.iter().filter_map(|attribute| attribute.split('"').nth(1));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_methods_and_statuses_share_a_series() {
        let metrics = Metrics::new();
        let brew = Method::from_bytes(b"BREW").expect("a token");
        metrics.answered("/a", &brew, StatusCode::IM_A_TEAPOT, 0.1);
        metrics.answered("/a", &Method::GET, StatusCode::OK, 0.1);
        let count = |labels: [&str; 3]| metrics.http_requests.with_label_values(&labels).get();
        assert_eq!((count(["/a", OTHER, OTHER]), count(["/a", "GET", "200"])), (1, 1));
        assert_eq!(metrics.http_seconds.with_label_values(&["/a"]).get_sample_count(), 2);
    }

    #[test]
    fn the_document_names_every_series_and_no_other_and_each_has_a_text_that_helps() {
        let document = include_str!("../../docs/METRICS.md");
        let named = |line: &str| line.split('`').nth(1).map(str::to_owned);
        let rows = document.lines().filter(|line| line.starts_with("| `")).filter_map(named);
        let documented: std::collections::BTreeSet<String> = rows.collect();
        let metrics = Metrics::new();
        metrics.answered("/v1/health", &Method::GET, StatusCode::OK, 0.5);
        metrics.inference.name_providers(["vllm".into()].into_iter());
        metrics.runs.with_label_values(&["pending"]).set(1);
        let families = metrics.registry.gather();
        for family in &families {
            let (name, help) = (family.name(), family.help());
            assert!(name.starts_with("service_") || name.starts_with("process_"), "{name}");
            assert!(help.len() > 10 && help.ends_with('.'), "{name}: {help:?}");
        }
        let exposed = families.iter().map(|family| family.name().to_owned()).collect();
        assert_eq!(documented, exposed);
    }
}
