//! Payloads of all kinds, with their members in the order of the wire contract.
//!
//! The types, their JSON and their part of the API's document derive from here: a doc comment is text of that
//! document, and `as` names a payload or word list there. `@optional` members are absent if `None`, others
//! `null`; `@flat` ones have members themselves; members in brackets are constant.

use media::{
    AnalysisId, BlobHash, CellBox, EventType, FrameRate, GateConfig, JobId, Label, Marker,
    RequestId, Score, Seq, SessionId, StreamId, WallTime, Zones,
};

use super::{
    EventKind, JsonText, Pass, SamplingPolicy, Signals,
    declare::{
        HasShape, Member, MemberSink, PayloadShape, events, is_optional, payloads, value_type,
    },
};
use crate::record::{
    JsonObjectReader, JsonObjectWriter, JsonPayload, json_payload, read_field, write_field,
};

/// Text that is the name of a mode of analysis.
pub enum ModeName {}

/// Text that is the gate's name of its reason to keep a frame.
pub enum SelectionReasonName {}

/// Text that is the media type of a still.
pub enum StillMediaType {}

events! {
    by_hand MarkerEmitted(Marker), ActivityStarted(ActivityEpisode), ActivityEnded(ActivityEpisode);
    with StopRequested(RequestMarkerPayload), KeepaliveRefreshed(RequestMarkerPayload);
    findings Vlm, VlmTiered, ClipVlm, ClipVlmTiered, StateTransition, LoopDetected;

    /// A source was accepted; nothing of it is decoded yet.
    IngestStarted as IngestStartedPayload {
        request_id: RequestId,
        job_id: JobId,
        /// The request body.
        ingest: JsonText,
    }

    /// A source was decoded.
    IngestReceived as IngestReceivedPayload {
        request_id: RequestId,
        /// The request body.
        ingest: JsonText,
        @optional decoded_frames: Option<u64>,
        @optional source_uri: Option<String>,
        @optional sampling_policy: Option<SamplingPolicy>,
        @optional sample_fps: Option<FrameRate>,
    }

    /// A decode pass finished.
    FramesDecoded as FramesDecodedPayload {
        request_id: RequestId,
        source_uri: String,
        stream_id: StreamId,
        sampling_policy: SamplingPolicy,
        source_fps: Option<FrameRate>,
        /// Analysed frames per second.
        sample_fps: Option<FrameRate>,
        /// Number of analysed frames.
        decoded_frames: u64,
        /// Width of the first picture, pixels.
        width: u32,
        /// Height of the first picture, pixels.
        height: u32,
        /// Layout of the decoded samples, such as `yuv420p`.
        pixel_format: String,
        /// Decoder that was used, such as `software:h264`; several are joined by `+`.
        @optional decoder: Option<String>,
        /// Reason why the preferred backend did not decode all of it.
        @optional decoder_fallback: Option<String>,
        /// The source ended early or is damaged.
        @optional truncated: bool,
        /// Reason why it is truncated.
        @optional reason: Option<String>,
        /// Thresholds of the recording; in events of older servers only if the caller chose them.
        @optional gate: Option<GateConfig>,
        /// Watched zones; absent if there are none. Older servers wrote only their names.
        @flat zones: Zones,
        /// Epoch milliseconds of its first picture: from the container or, if the source is live, the sender's
        /// reports, else its arrival; null if unknown, absent in events of older servers.
        @optional wall_start_ms: Option<Option<WallTime>>,
        /// One object per frame.
        signals: Signals,
    }

    /// The result of an analysis pass.
    AnalysisGenerated as AnalysisGeneratedPayload {
        request_id: RequestId,
        stream_id: StreamId,
        frames: u64,
        /// Number of frames in a metadata window.
        window_size: u32,
        /// Length of a metadata segment, milliseconds.
        segment_ms: u32,
        sampling_policy: SamplingPolicy,
        sample_fps: Option<FrameRate>,
        mode: Option<String>,
        model: String,
        markers: u64,
        /// Id that its markers have too; absent in events of older servers.
        @optional analysis_id: Option<AnalysisId>,
        /// Thresholds of the analysis; absent in events of older servers.
        @optional gate: Option<GateConfig>,
        /// Zones in place of those of the recording; absent if it used those.
        @flat zones: Option<Zones>,
    }

    /// A chunk finished tiered inference.
    SemanticChunkInferred as ChunkInferredPayload {
        request_id: RequestId,
        stream_id: StreamId,
        chunk_index: u64,
        /// Backend that answered, or failed last; null if none was asked.
        provider: Option<String>,
        /// True if a backend other than the first answered.
        provider_fallback_used: bool,
        /// True if no backend answered.
        semantic_fallback_used: bool,
        /// Reason why there is no answer, or none of a second pass.
        semantic_error: Option<String>,
        event_type: EventType,
        object_label: Option<String>,
        /// Summary of one line.
        summary: String,
        description: String,
        /// Null if the model gave none.
        confidence: Option<Score>,
        /// Text of the model's answer.
        raw_output: String,
        /// The object in `raw_output`, if the request had an `output_schema`.
        @optional output: Option<JsonText>,
        @flat tokens: TokenCounts,
        /// Time from the request to the answer, milliseconds.
        inference_latency_ms: u64,
        /// Pass that answered, or failed; absent if no backend was asked.
        @optional tier: Option<Pass>,
        /// Model that answered, or was to answer; absent if no backend was asked.
        @optional model: Option<String>,
        /// Number of requests sent to backends for it.
        @optional attempts: Option<u32>,
        /// Name and version of the prompt.
        @optional prompt_version: Option<String>,
        /// Media time of the chunk's first frame.
        @optional start_pts_ms: Option<i64>,
        /// Media time of the chunk's last frame.
        @optional end_pts_ms: Option<i64>,
        /// Event whose description this repeats, if the chunk shows nothing new, so that no backend was
        /// asked.
        @optional reused_from_seq: Option<Seq>,
        @optional index_name: Option<Label>,
        /// True if the description was truncated.
        @optional truncated: bool,
    }

    /// A semantic result was recorded.
    SemanticChunkGenerated as ChunkGeneratedPayload {
        request_id: RequestId,
        stream_id: StreamId,
        chunk_index: u64,
        chunk_frames: u64,
        /// Processing time of the chunk, milliseconds.
        process_ms: u64,
        /// Media time from the first frame of the chunk to the last, milliseconds.
        source_span_ms: u64,
        /// Lag of the answer behind the media, milliseconds.
        lag_ms: i64,
        index_name: Option<Label>,
        @flat tokens: TokenCounts,
        inference_latency_ms: u64,
    }

    /// The semantic path fell back.
    SemanticFallbackActivated as SemanticFallbackPayload {
        request_id: RequestId,
        stream_id: StreamId,
        reason: String,
    }

    /// A direct inference completed.
    InferenceCompleted as InferenceCompletedPayload {
        request_id: RequestId,
        provider: String,
        model: String,
        /// True if a backend other than the first answered.
        fallback_used: bool,
        prompt_bytes: u64,
        output_bytes: u64,
        /// Tokens of the prompt. Absent from events of older servers, as is all that follows.
        @optional prompt_tokens: Option<u64>,
        /// Tokens of the answer without hidden reasoning.
        @optional completion_tokens: Option<u64>,
        /// Tokens of hidden reasoning.
        @optional thinking_tokens: Option<u64>,
        /// All tokens, those of failed attempts included.
        @optional total_tokens: Option<u64>,
        /// Time from the first request to the answer, milliseconds.
        @optional inference_latency_ms: Option<u64>,
        /// `first`: a direct inference has one pass.
        @optional tier: Option<Pass>,
        /// Number of requests sent to backends.
        @optional attempts: Option<u32>,
    }

    /// The run reached its normal end.
    #[derive(Default)]
    RunCompleted as RunCompletedPayload {
        /// Null if no request ended the run.
        request_id: Option<RequestId>,
        stream_id: Option<StreamId>,
        frames: u64,
        markers: u64,
        index_name: Option<Label>,
        /// Null if the run ended without a reasoning.
        semantic: Option<SemanticOutcome>,
        /// Reason why the server ended the run itself: `idle`; absent otherwise.
        @optional reason: Option<String>,
    }

    /// The run ended by a failure.
    RunFailed as RunFailedPayload {
        @optional request_id: Option<RequestId>,
        reason: String,
    }

    /// The run was idle for too long.
    RunExpired as RunExpiredPayload {}

    /// The run was given another label.
    RunLabelled as RunLabelledPayload {
        request_id: RequestId,
        /// Null if the label was removed.
        label: Option<Label>,
    }

    /// The run was deleted, on request or because the service reclaimed it.
    RunDeleted as RunDeletedPayload {
        @optional request_id: Option<RequestId>,
        @optional reclaim: Option<JsonText>,
    }

    /// The still of a selected frame was stored.
    KeyframeStored as KeyframeStoredPayload {
        frame_index: u64,
        pts_ms: i64,
        event_type: EventType,
        /// Reason of the gate; absent in events of older servers.
        @optional reason: Option<String> as Option<SelectionReasonName>,
        /// Description; empty if there is none.
        description: String,
        /// Path of the image.
        image_ref: String,
        (image_media_type: StillMediaType = "image/jpeg"),
        image_bytes: u64,
        image_sha256: BlobHash,
        /// True if the description was truncated.
        @optional truncated: bool,
    }

    /// Nine tenths of the owner's tokens of the day are spent, or reserved for requests in progress.
    TokenBudgetLow as TokenBudgetLowPayload {
        /// Request that spent the tokens or was refused.
        request_id: RequestId,
        /// Name of the owner's key, never the key.
        principal_key: String,
        /// The day (UTC), such as `2026-01-31`.
        day: String,
        used_tokens: u64,
        limit_tokens: u64,
    }

    /// A live source that was lost is connected again.
    SourceReconnected as SourceReconnectedPayload {
        request_id: RequestId,
        stream_id: StreamId,
        /// Number of the first frame after the gap.
        frame_index: u64,
        /// Media time of that frame.
        pts_ms: i64,
        /// Wall-clock time without a frame, milliseconds.
        gap_ms: u64,
        /// Number of connection attempts.
        attempts: u32,
        /// Reason why the source was lost.
        reason: String,
    }
}

payloads! {
    /// A run was created through the API.
    RunCreated as RunCreatedPayload {
        request_id: RequestId,
        mode: String as ModeName,
        model: Option<String>,
        /// Name of the owner's key, never the key.
        principal_key: String,
        /// Tenant of the run: metadata, not an authorization boundary.
        tenant_id: Option<String>,
    }

    /// A run was created by a live session.
    SessionRunCreated as SessionCreatedPayload {
        /// Name of the owner's key, never the key.
        principal_key: String,
        session_id: SessionId,
        (source: String = "whip" "Always `whip`."),
        @optional tenant_id: Option<String>,
    }

    /// An action was requested.
    RequestMarkerPayload as RequestedPayload {
        request_id: RequestId,
    }

    /// An episode of activity, from its start or up to its end.
    ActivityEpisode as ActivityEpisodePayload {
        request_id: RequestId,
        stream_id: StreamId,
        // Live session, if the source is one.
        @optional session_id: Option<SessionId>,
        start_frame: u64,
        // Last frame that is not quiet; absent, like its time, while the episode lasts.
        @optional end_frame: Option<u64>,
        start_pts_ms: i64,
        @optional end_pts_ms: Option<i64>,
        // Highest score so far of the frames kept for the episode, and the first frame with that score.
        peak_score: Score,
        peak_frame: u64,
        // Box around all cells that moved so far.
        region: CellBox,
        // Names of the zones in which something moved so far.
        zones: Vec<String>,
    }

    /// Tokens spent on an inference: those of the answer without the hidden reasoning, and all as the provider counts.
    #[derive(Copy, Default, Eq)]
    TokenCounts as TokenCounts {
        prompt_tokens: u64,
        completion_tokens: u64,
        thinking_tokens: u64,
        total_tokens: u64,
    }

    /// Outcome of asking models about the chunks of a source.
    #[derive(Default, Eq)]
    SemanticOutcome as SemanticOutcome {
        /// True if models were to be asked.
        requested: bool,
        /// Number of chunks that models were asked about, including reused answers.
        chunks_asked: u64,
        /// Number of those chunks without an answer.
        chunks_failed: u64,
        /// Class of the first failure, with a short message.
        error: Option<String>,
        /// True if the gate decided instead of a model.
        fallback_used: bool,
    }

    /// Finding at a frame, or over a clip.
    #[derive(Default)]
    FindingPayload as FindingPayload {
        @optional session_id: Option<SessionId>,
        /// Number of the frame; of a clip, that of its first frame.
        frame_index: u64,
        /// Media time.
        pts_ms: i64,
        /// Media time of a clip's last picture.
        @optional end_pts_ms: Option<i64>,
        /// Confidence of the model or of the gate; 0 if a model gave none.
        confidence: Score,
        description: String,
        /// Summary of one line.
        @optional summary: Option<String>,
        @optional event_type: Option<EventType>,
        @optional object_label: Option<String>,
        /// Reason why there is no answer, or none of a second pass.
        @optional semantic_error: Option<String>,
        /// Backend that answered, or failed last.
        @optional provider: Option<String>,
        /// Model that answered, or was to answer.
        @optional model: Option<String>,
        /// Tokens of the description; absent if it was reused.
        @optional total_tokens: Option<u64>,
        @optional completion_tokens: Option<u64>,
        @optional inference_latency_ms: Option<u64>,
        /// Number of requests sent to backends.
        @optional attempts: Option<u32>,
        @optional prompt_version: Option<String>,
        /// Event whose description this repeats.
        @optional reused_from_seq: Option<Seq>,
        @optional index_name: Option<Label>,
        /// True if the description was truncated.
        @optional truncated: bool,
    }
}
