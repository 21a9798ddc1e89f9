//! Events: every kind of the wire contract is a variant with its payload as fields.
//!
//! A field that is `None` is `null` on the wire, or absent where its doc says so.
//! Knows no bytes: `record` turns a variant into JSON and back. Long because it is
//! the event table of the contract.

mod kind;

pub use kind::{EventKind, FindingKind};

use crate::signal_column;
use media::{
    AnalysisId, BlobHash, CellBox, EventType, FrameRate, GateConfig, JobId, Label, Marker,
    RequestId, RunId, Score, Seq, SessionId, Signal, StreamId, WallTime, Zones,
};

/// Reason of what ended because its server did, without a word: it was killed, or the machine was.
pub const INTERRUPTED: &str = "interrupted";

/// One immutable fact of a run, before it has a sequence number.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A run was created through the API.
    RunCreated(RunCreated),
    /// A run was created by a live session.
    SessionRunCreated(SessionRunCreated),
    /// An ingest was accepted.
    IngestReceived(IngestReceived),
    /// A source was accepted; nothing of it is decoded yet.
    IngestStarted(IngestStarted),
    /// A decode pass finished.
    FramesDecoded(FramesDecoded),
    /// Analysis produced a marker.
    MarkerEmitted(Marker),
    /// The result of an analysis pass.
    AnalysisGenerated(AnalysisGenerated),
    /// A chunk finished tiered inference.
    SemanticChunkInferred(SemanticChunkInferred),
    /// A semantic result was recorded.
    SemanticChunkGenerated(SemanticChunkGenerated),
    /// The semantic path fell back.
    SemanticFallbackActivated(SemanticFallbackActivated),
    /// A direct inference completed.
    InferenceCompleted(InferenceCompleted),
    /// The run reached its normal end.
    RunCompleted(RunCompleted),
    /// The run ended by a failure.
    RunFailed(RunFailed),
    /// The run was idle for longer than its TTL.
    RunExpired,
    /// A graceful stop was requested.
    StopRequested(RequestMarkerPayload),
    /// The idle TTL was refreshed.
    KeepaliveRefreshed(RequestMarkerPayload),
    /// The run was soft-deleted.
    RunDeleted(RunDeleted),
    /// The still of a selected frame was stored.
    KeyframeStored(KeyframeStored),
    /// The owner has spent most of its tokens of the day.
    TokenBudgetLow(TokenBudgetLow),
    /// A live source that was lost is there again.
    SourceReconnected(SourceReconnected),
    /// Something begins to move.
    ActivityStarted(ActivityEpisode),
    /// The picture is at rest again.
    ActivityEnded(ActivityEpisode),
    /// The run was given another label.
    RunLabelled(RunLabelled),
    /// A worker's finding; the finding's kind is the event's kind.
    Found(FindingKind, FindingPayload),
}

impl Event {
    /// The kind of this event.
    pub fn kind(&self) -> EventKind {
        match self {
            Event::RunCreated(_) | Event::SessionRunCreated(_) => EventKind::RunCreated,
            Event::IngestReceived(_) => EventKind::IngestReceived,
            Event::IngestStarted(_) => EventKind::IngestStarted,
            Event::FramesDecoded(_) => EventKind::FramesDecoded,
            Event::MarkerEmitted(_) => EventKind::MarkerEmitted,
            Event::AnalysisGenerated(_) => EventKind::AnalysisGenerated,
            Event::SemanticChunkInferred(_) => EventKind::SemanticChunkInferred,
            Event::SemanticChunkGenerated(_) => EventKind::SemanticChunkGenerated,
            Event::SemanticFallbackActivated(_) => EventKind::SemanticFallbackActivated,
            Event::InferenceCompleted(_) => EventKind::InferenceCompleted,
            Event::RunCompleted(_) => EventKind::RunCompleted,
            Event::RunFailed(_) => EventKind::RunFailed,
            Event::RunExpired => EventKind::RunExpired,
            Event::StopRequested(_) => EventKind::StopRequested,
            Event::KeepaliveRefreshed(_) => EventKind::KeepaliveRefreshed,
            Event::RunDeleted(_) => EventKind::RunDeleted,
            Event::KeyframeStored(_) => EventKind::KeyframeStored,
            Event::TokenBudgetLow(_) => EventKind::TokenBudgetLow,
            Event::SourceReconnected(_) => EventKind::SourceReconnected,
            Event::ActivityStarted(_) => EventKind::ActivityStarted,
            Event::ActivityEnded(_) => EventKind::ActivityEnded,
            Event::RunLabelled(_) => EventKind::RunLabelled,
            Event::Found(kind, _) => kind.event_kind(),
        }
    }
}

/// An event and the run it belongs to, ready to append.
#[derive(Clone, Debug, PartialEq)]
pub struct NewEvent {
    /// The run.
    pub run: RunId,
    /// The fact.
    pub event: Event,
}

/// JSON text known to be one valid value, echoed byte for byte.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JsonText(pub(crate) Box<str>);

impl JsonText {
    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Policy by which frames of a source are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SamplingPolicy {
    /// Every source frame, or the rate the caller asked for.
    SourceFpsAdaptive,
    /// The first frame at or after each multiple of the period.
    Fixed,
}

impl SamplingPolicy {
    /// Every policy.
    pub const ALL: [SamplingPolicy; 2] = [SamplingPolicy::SourceFpsAdaptive, SamplingPolicy::Fixed];

    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            SamplingPolicy::SourceFpsAdaptive => "source_fps_adaptive",
            SamplingPolicy::Fixed => "fixed",
        }
    }

    /// The policy called `name`.
    pub fn from_name(name: &str) -> Option<SamplingPolicy> {
        SamplingPolicy::ALL.into_iter().find(|policy| policy.as_str() == name)
    }
}

/// Payload of `run_created` for a run made through the API.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCreated {
    /// The request.
    pub request_id: RequestId,
    /// Mode asked for.
    pub mode: String,
    /// Model asked for.
    pub model: Option<String>,
    /// Name of the owner's key, never the key.
    pub principal_key: String,
    /// Tenant, metadata only.
    pub tenant_id: Option<String>,
}

/// Payload of `run_created` for a run made by a live session; `source` is always `whip`.
#[derive(Clone, Debug, PartialEq)]
pub struct SessionRunCreated {
    /// Name of the owner's key, never the key.
    pub principal_key: String,
    /// The session.
    pub session_id: SessionId,
    /// Tenant, metadata only; absent where none was given.
    pub tenant_id: Option<String>,
}

/// Payload of `ingest_started`.
#[derive(Clone, Debug, PartialEq)]
pub struct IngestStarted {
    /// The request.
    pub request_id: RequestId,
    /// The job that decodes it.
    pub job_id: JobId,
    /// The request body.
    pub ingest: JsonText,
}

/// Payload of `ingest_received`; the optional fields are absent until a source is decoded.
#[derive(Clone, Debug, PartialEq)]
pub struct IngestReceived {
    /// The request.
    pub request_id: RequestId,
    /// The request body.
    pub ingest: JsonText,
    /// Frames decoded.
    pub decoded_frames: Option<u64>,
    /// The source.
    pub source_uri: Option<String>,
    /// Policy by which frames were chosen.
    pub sampling_policy: Option<SamplingPolicy>,
    /// Analysed frames a second.
    pub sample_fps: Option<FrameRate>,
}

/// The per-frame signals of a decode pass, inline or in a column file.
#[derive(Clone, Debug, PartialEq)]
pub enum Signals {
    /// Small arrays travel in the event.
    Inline(Vec<Signal>),
    /// Large ones are a durable column file, see [`crate::ColumnWriter`].
    Column {
        /// SHA-256 of the column file.
        hash: BlobHash,
        /// Number of signals in it.
        count: u64,
    },
}

impl Signals {
    /// Number of signals.
    pub fn count(&self) -> u64 {
        match self {
            Signals::Inline(signals) => signals.len() as u64,
            Signals::Column { count, .. } => *count,
        }
    }

    /// Bytes of their column file; 0 where they are in the event.
    pub fn column_bytes(&self) -> u64 {
        match self {
            Signals::Inline(_) => 0,
            Signals::Column { count, .. } => signal_column::file_bytes(*count).unwrap_or_default(),
        }
    }
}

/// Payload of `frames_decoded`.
#[derive(Clone, Debug, PartialEq)]
pub struct FramesDecoded {
    /// The request.
    pub request_id: RequestId,
    /// The source.
    pub source_uri: String,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Policy by which frames were chosen.
    pub sampling_policy: SamplingPolicy,
    /// Frames a second of the source.
    pub source_fps: Option<FrameRate>,
    /// Analysed frames a second.
    pub sample_fps: Option<FrameRate>,
    /// Frames analysed.
    pub decoded_frames: u64,
    /// Columns of the first picture.
    pub width: u32,
    /// Rows of the first picture.
    pub height: u32,
    /// Name of the sample layout.
    pub pixel_format: String,
    /// The decoder really used, such as `software:h264`; several joined by `+`. Older logs have none.
    pub decoder: Option<String>,
    /// Reason that the backend asked first did not decode all of it.
    pub decoder_fallback: Option<String>,
    /// The source ended early or is damaged; absent when false.
    pub truncated: bool,
    /// Reason that no more of it was decoded, where something cut it off.
    pub reason: Option<String>,
    /// Thresholds that it was recorded with; older logs have only those that its caller chose.
    pub gate: Option<GateConfig>,
    /// Zones that are watched, in the order of the signals' bits; of older logs the names alone.
    pub zones: Zones,
    /// Time of its first picture, taken or received: null where unknown, absent from older logs.
    pub wall_start_ms: Option<Option<WallTime>>,
    /// One signal a frame.
    pub signals: Signals,
}

/// Payload of `analysis_generated`.
#[derive(Clone, Debug, PartialEq)]
pub struct AnalysisGenerated {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Frames analysed.
    pub frames: u64,
    /// Frames a window.
    pub window_size: u32,
    /// Length of a segment of metadata.
    pub segment_ms: u32,
    /// Policy by which frames were chosen.
    pub sampling_policy: SamplingPolicy,
    /// Analysed frames a second.
    pub sample_fps: Option<FrameRate>,
    /// Mode of the analysis.
    pub mode: Option<String>,
    /// Model asked for.
    pub model: String,
    /// Markers emitted.
    pub markers: u64,
    /// Its name, which its markers carry; absent from older logs.
    pub analysis_id: Option<AnalysisId>,
    /// Thresholds that it used; absent from older logs.
    pub gate: Option<GateConfig>,
    /// Zones in place of those of the recording; absent where it used these.
    pub zones: Option<Zones>,
}

/// Tokens spent on an inference.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenCounts {
    /// Tokens of the prompt.
    pub prompt_tokens: u64,
    /// Tokens of the answer.
    pub completion_tokens: u64,
    /// Tokens of hidden reasoning.
    pub thinking_tokens: u64,
    /// All of them, as the provider counts.
    pub total_tokens: u64,
}

/// Pass that answered, of the two models'.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pass {
    /// The one that is asked of everything.
    First,
    /// The one that is asked where the first is not sure.
    Second,
}

impl Pass {
    /// Every pass.
    pub const ALL: [Pass; 2] = [Pass::First, Pass::Second];

    /// Name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Pass::First => "first",
            Pass::Second => "second",
        }
    }

    /// The pass called `name`.
    pub fn from_name(name: &str) -> Option<Pass> {
        Pass::ALL.into_iter().find(|pass| pass.as_str() == name)
    }
}

/// Payload of `semantic_chunk_inferred`; logs from before the model was named lack what is absent
/// when `None`.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticChunkInferred {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Position of the chunk.
    pub chunk_index: u64,
    /// Backend that answered, or failed last; `null` when none was asked.
    pub provider: Option<String>,
    /// Another backend than the first answered.
    pub provider_fallback_used: bool,
    /// No backend answered.
    pub semantic_fallback_used: bool,
    /// Reason that none answered.
    pub semantic_error: Option<String>,
    /// Normalised event type.
    pub event_type: EventType,
    /// Normalised object label.
    pub object_label: Option<String>,
    /// One line.
    pub summary: String,
    /// The whole description.
    pub description: String,
    /// The model's confidence; `null` when it said nothing of it.
    pub confidence: Option<Score>,
    /// The model's text.
    pub raw_output: String,
    /// The object in it, by the caller's own schema; absent without one.
    pub output: Option<JsonText>,
    /// Tokens spent.
    pub tokens: TokenCounts,
    /// Time from request to answer.
    pub inference_latency_ms: u64,
    /// Pass that answered, or failed; absent when no backend was asked.
    pub tier: Option<Pass>,
    /// Model that answered, or was to; absent likewise.
    pub model: Option<String>,
    /// Requests that backends were sent for it.
    pub attempts: Option<u32>,
    /// Name and version of the prompt; absent when none was sent.
    pub prompt_version: Option<String>,
    /// Presentation time of the chunk's first frame.
    pub start_pts_ms: Option<i64>,
    /// Presentation time of the chunk's last frame.
    pub end_pts_ms: Option<i64>,
    /// The event whose description this repeats: the chunk shows nothing new and no backend was
    /// asked. Absent when one was.
    pub reused_from_seq: Option<Seq>,
    /// The caller's index; absent when none.
    pub index_name: Option<Label>,
    /// The description or the model's text was cut to fit.
    pub truncated: bool,
}

/// Payload of `semantic_chunk_generated`.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticChunkGenerated {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Position of the chunk.
    pub chunk_index: u64,
    /// Frames in the chunk.
    pub chunk_frames: u64,
    /// Time spent on the chunk.
    pub process_ms: u64,
    /// Media time the chunk spans.
    pub source_span_ms: u64,
    /// Lag of the chunk behind its media, in milliseconds.
    pub lag_ms: i64,
    /// The caller's index.
    pub index_name: Option<Label>,
    /// Tokens spent.
    pub tokens: TokenCounts,
    /// Time from request to answer.
    pub inference_latency_ms: u64,
}

/// Payload of `semantic_fallback_activated`.
#[derive(Clone, Debug, PartialEq)]
pub struct SemanticFallbackActivated {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Reason.
    pub reason: String,
}

/// Payload of `inference_completed`.
#[derive(Clone, Debug, PartialEq)]
pub struct InferenceCompleted {
    /// The request.
    pub request_id: RequestId,
    /// Backend that answered.
    pub provider: String,
    /// Model that answered.
    pub model: String,
    /// Another backend than the first answered.
    pub fallback_used: bool,
    /// Size of the prompt.
    pub prompt_bytes: u64,
    /// Size of the answer.
    pub output_bytes: u64,
    /// Tokens of the prompt; this and what follows is absent from logs of before it was told.
    pub prompt_tokens: Option<u64>,
    /// Tokens of the answer, hidden reasoning left out.
    pub completion_tokens: Option<u64>,
    /// Tokens of hidden reasoning.
    pub thinking_tokens: Option<u64>,
    /// All of them, failed attempts included.
    pub total_tokens: Option<u64>,
    /// Time from the first request to the answer.
    pub inference_latency_ms: Option<u64>,
    /// Pass that answered.
    pub tier: Option<Pass>,
    /// Requests that backends were sent.
    pub attempts: Option<u32>,
}

/// Outcome of asking models about the chunks of a source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SemanticOutcome {
    /// Models were to be asked.
    pub requested: bool,
    /// Chunks that they were asked about, those that repeat an answer included.
    pub chunks_asked: u64,
    /// Chunks of these that are left without an answer.
    pub chunks_failed: u64,
    /// Class of the first failure, and shortly what was said of it.
    pub error: Option<String>,
    /// The gate decided in place of a model.
    pub fallback_used: bool,
}

/// Payload of `run_completed`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunCompleted {
    /// The request; `null` when a session ended by itself.
    pub request_id: Option<RequestId>,
    /// The stream of the run.
    pub stream_id: Option<StreamId>,
    /// Frames analysed.
    pub frames: u64,
    /// Markers emitted.
    pub markers: u64,
    /// The caller's index.
    pub index_name: Option<Label>,
    /// Outcome of asking models; `null` where the run ended without a reasoning.
    pub semantic: Option<SemanticOutcome>,
    /// Reason of the service for ending it itself; absent otherwise.
    pub reason: Option<String>,
}

/// Payload of `run_failed`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunFailed {
    /// The request; absent when none was involved.
    pub request_id: Option<RequestId>,
    /// Reason, in words for the owner.
    pub reason: String,
}

/// Payload of `stop_requested` and `keepalive_refreshed`.
#[derive(Clone, Debug, PartialEq)]
pub struct RequestMarkerPayload {
    /// The request.
    pub request_id: RequestId,
}

/// Payload of `run_labelled`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunLabelled {
    /// The request.
    pub request_id: RequestId,
    /// Label that the owner gives the run from now on, if any.
    pub label: Option<Label>,
}

/// Payload of `run_deleted`.
#[derive(Clone, Debug, PartialEq)]
pub struct RunDeleted {
    /// The request; absent when the service reclaimed the run itself.
    pub request_id: Option<RequestId>,
    /// Reason of the service for reclaiming it; absent on a request.
    pub reclaim: Option<JsonText>,
}

/// Payload of `keyframe_stored`: the still of a selected frame; the media type is always JPEG.
#[derive(Clone, Debug, PartialEq)]
pub struct KeyframeStored {
    /// The selected frame.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// Event type of the frame.
    pub event_type: EventType,
    /// Reason of the gate for keeping it, by the gate's name for that; absent from older logs.
    pub reason: Option<String>,
    /// Description, empty when none was made.
    pub description: String,
    /// Address of the bytes at the service.
    pub image_ref: String,
    /// Size of the JPEG.
    pub image_bytes: u64,
    /// SHA-256 of the JPEG.
    pub image_sha256: BlobHash,
}

/// Payload of `token_budget_low`: nine tenths of a day's tokens are spent, or too few are left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenBudgetLow {
    /// The request that spent them, or was refused for it.
    pub request_id: RequestId,
    /// Name of the owner's key, never the key.
    pub principal_key: String,
    /// The day (UTC), such as `2026-01-31`.
    pub day: String,
    /// Tokens that the owner has spent of the day.
    pub used_tokens: u64,
    /// Tokens that it may spend.
    pub limit_tokens: u64,
}

/// Payload of `activity_started` and `activity_ended`.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivityEpisode {
    /// The request of the recording.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// The live session, where the source is one.
    pub session_id: Option<SessionId>,
    /// First frame.
    pub start_frame: u64,
    /// Last frame that is not quiet; absent while the episode lasts.
    pub end_frame: Option<u64>,
    /// Presentation time of the first frame.
    pub start_pts_ms: i64,
    /// Presentation time of the last frame; absent while the episode lasts.
    pub end_pts_ms: Option<i64>,
    /// Highest score of the frames that are kept for the episode, so far.
    pub peak_score: Score,
    /// The first of them that has it.
    pub peak_frame: u64,
    /// Box around all that moved, so far.
    pub region: CellBox,
    /// Names of the zones in which something moved, so far.
    pub zones: Vec<String>,
}

/// Payload of `source_reconnected`: a live source that was lost is there again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceReconnected {
    /// The request that records it.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// First frame behind the gap.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// Time without a frame, by the clock.
    pub gap_ms: u64,
    /// Connections that were tried.
    pub attempts: u32,
    /// Reason that it was lost.
    pub reason: String,
}

/// Finding at a frame, or over a clip; a field that is `None` is absent on the wire.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FindingPayload {
    /// The live session; absent for a file.
    pub session_id: Option<SessionId>,
    /// The frame; of a clip the first.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// Presentation time of a clip's last picture.
    pub end_pts_ms: Option<i64>,
    /// Confidence of the model or of the gate.
    pub confidence: Score,
    /// In words.
    pub description: String,
    /// One line.
    pub summary: Option<String>,
    /// Normalised event type.
    pub event_type: Option<EventType>,
    /// Normalised object label.
    pub object_label: Option<String>,
    /// Reason that there is no answer, or none of a second pass.
    pub semantic_error: Option<String>,
    /// Backend that answered, or failed last.
    pub provider: Option<String>,
    /// Model that answered, or was to.
    pub model: Option<String>,
    /// Tokens that it took, a description's own and not a reused one's.
    pub total_tokens: Option<u64>,
    /// Of them, tokens of the answer.
    pub completion_tokens: Option<u64>,
    /// Time from request to answer.
    pub inference_latency_ms: Option<u64>,
    /// Requests that backends were sent.
    pub attempts: Option<u32>,
    /// Name and version of the prompt.
    pub prompt_version: Option<String>,
    /// The description is that of an earlier event.
    pub reused_from_seq: Option<Seq>,
    /// The session's index.
    pub index_name: Option<Label>,
    /// True where the text was longer and is cut off.
    pub truncated: bool,
}
