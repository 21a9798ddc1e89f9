//! Events in the document: one envelope, and the payload that each kind has.
//!
//! The timeline writes payloads and knows no documents; a test reads real events against these.
//! A payload may gain fields, so none of these refuses further ones. Long because it has every kind.

use timeline::EventKind;
use utoipa::{
    PartialSchema, ToSchema,
    openapi::{ObjectBuilder, OneOfBuilder, Ref, RefOr, Type, schema::Schema},
};

use super::{
    super::{
        responses::{Region, SemanticRecord},
        thresholds::GateRecord,
        zones::ZoneRecord,
    },
    schema_types,
};

/// The schemas that a document has by name.
type Schemas = Vec<(String, RefOr<Schema>)>;

/// An event of a run's timeline.
pub struct EventRecord;

/// An event that says which run it is of.
pub struct QueryMatch;

impl PartialSchema for EventRecord {
    fn schema() -> RefOr<Schema> {
        envelope(false)
    }
}

impl ToSchema for EventRecord {
    fn name() -> std::borrow::Cow<'static, str> {
        "Event".into()
    }

    fn schemas(schemas: &mut Schemas) {
        for kind in EventKind::ALL {
            payload(*kind, schemas);
        }
    }
}

impl PartialSchema for QueryMatch {
    fn schema() -> RefOr<Schema> {
        envelope(true)
    }
}

impl ToSchema for QueryMatch {
    fn name() -> std::borrow::Cow<'static, str> {
        "QueryMatch".into()
    }

    fn schemas(schemas: &mut Schemas) {
        EventRecord::schemas(schemas);
        schemas.push((schema_types::RunId::name().into(), schema_types::RunId::schema()));
    }
}

fn envelope(with_run: bool) -> RefOr<Schema> {
    let kinds = EventKind::ALL.iter().map(|kind| {
        let name =
            ObjectBuilder::new().schema_type(Type::String).enum_values(Some([kind.as_str()]));
        let mut envelope = ObjectBuilder::new()
            .property(
                "seq",
                described("Position in the server's one order; a cursor", u64::schema()),
            )
            .required("seq")
            .property(
                "pts_ms",
                described("Wall-clock time of the append, epoch milliseconds", i64::schema()),
            )
            .required("pts_ms")
            .property("kind", name)
            .required("kind");
        if with_run {
            let run = Ref::from_schema_name(schema_types::RunId::name());
            envelope = envelope.property("run_id", run).required("run_id");
        }
        envelope.property("payload", payload(*kind, &mut Vec::new())).required("payload")
    });
    kinds.fold(OneOfBuilder::new(), OneOfBuilder::item).into()
}

fn described(text: &str, schema: RefOr<Schema>) -> RefOr<Schema> {
    match schema {
        RefOr::T(Schema::Object(mut object)) => {
            object.description = Some(text.to_owned());
            Schema::Object(object).into()
        }
        other => other,
    }
}

/// The payload of a kind, by name; its schemas go into `schemas`.
fn payload(kind: EventKind, schemas: &mut Schemas) -> RefOr<Schema> {
    match kind {
        EventKind::RunCreated => {
            let created =
                [named::<RunCreatedPayload>(schemas), named::<SessionCreatedPayload>(schemas)];
            created.into_iter().fold(OneOfBuilder::new(), OneOfBuilder::item).into()
        }
        EventKind::IngestReceived => named::<IngestReceivedPayload>(schemas),
        EventKind::IngestStarted => named::<IngestStartedPayload>(schemas),
        EventKind::FramesDecoded => named::<FramesDecodedPayload>(schemas),
        EventKind::MarkerEmitted => named::<crate::api::responses::MarkerRecord>(schemas),
        EventKind::AnalysisGenerated => named::<AnalysisGeneratedPayload>(schemas),
        EventKind::SemanticChunkInferred => named::<ChunkInferredPayload>(schemas),
        EventKind::SemanticChunkGenerated => named::<ChunkGeneratedPayload>(schemas),
        EventKind::SemanticFallbackActivated => named::<SemanticFallbackPayload>(schemas),
        EventKind::InferenceCompleted => named::<InferenceCompletedPayload>(schemas),
        EventKind::RunCompleted => named::<RunCompletedPayload>(schemas),
        EventKind::RunFailed => named::<RunFailedPayload>(schemas),
        EventKind::RunExpired => named::<RunExpiredPayload>(schemas),
        EventKind::StopRequested | EventKind::KeepaliveRefreshed => {
            named::<RequestedPayload>(schemas)
        }
        EventKind::RunDeleted => named::<RunDeletedPayload>(schemas),
        EventKind::RunLabelled => named::<RunLabelledPayload>(schemas),
        EventKind::KeyframeStored => named::<KeyframeStoredPayload>(schemas),
        EventKind::TokenBudgetLow => named::<TokenBudgetLowPayload>(schemas),
        EventKind::SourceReconnected => named::<SourceReconnectedPayload>(schemas),
        EventKind::ActivityStarted => named::<ActivityStartedPayload>(schemas),
        EventKind::ActivityEnded => named::<ActivityEndedPayload>(schemas),
        EventKind::Vlm
        | EventKind::VlmTiered
        | EventKind::ClipVlm
        | EventKind::ClipVlmTiered
        | EventKind::StateTransition
        | EventKind::LoopDetected => named::<FindingPayload>(schemas),
    }
}

fn named<T: ToSchema>(schemas: &mut Schemas) -> RefOr<Schema> {
    T::schemas(schemas);
    schemas.push((T::name().into_owned(), T::schema()));
    Ref::from_schema_name(T::name()).into()
}

/// The run was idle for too long.
#[derive(ToSchema)]
struct RunExpiredPayload {}

/// Payloads as the timeline writes them.
macro_rules! payloads {
    ($(#[doc = $doc:literal] $name:ident { $($(#[$meta:meta])* $field:ident: $type:ty,)* })*) => {$(
        #[doc = $doc]
        #[derive(ToSchema)]
        #[expect(dead_code, reason = "says what the timeline writes")]
        struct $name { $($(#[$meta])* $field: $type,)* }
    )*};
}

payloads! {
    /// A run was created through the API.
    RunCreatedPayload {
        request_id: schema_types::RequestId,
        mode: schema_types::AnalysisMode,
        #[schema(required = true)]
        model: Option<String>,
        /// Name of the owner's key, never the key.
        principal_key: String,
        #[schema(required = true)]
        tenant_id: Option<String>,
    }
    /// A run was created by a live session.
    SessionCreatedPayload {
        /// Name of the owner's key, never the key.
        principal_key: String,
        session_id: schema_types::SessionId,
        /// Always `whip`.
        source: String,
        #[schema(required = false)]
        tenant_id: String,
    }
    /// A source was accepted; nothing of it is decoded yet.
    IngestStartedPayload {
        request_id: schema_types::RequestId,
        job_id: schema_types::JobId,
        /// The request body.
        ingest: schema_types::AnyObject,
    }
    /// A source was decoded.
    IngestReceivedPayload {
        request_id: schema_types::RequestId,
        /// The request body.
        ingest: schema_types::AnyObject,
        #[schema(required = false)]
        decoded_frames: u64,
        #[schema(required = false)]
        source_uri: String,
        #[schema(required = false)]
        sampling_policy: schema_types::Sampling,
        #[schema(required = false)]
        sample_fps: f64,
    }
    /// A decode pass finished.
    FramesDecodedPayload {
        request_id: schema_types::RequestId,
        source_uri: String,
        stream_id: schema_types::Label,
        sampling_policy: schema_types::Sampling,
        #[schema(required = true)]
        source_fps: Option<f64>,
        #[schema(required = true)]
        sample_fps: Option<f64>,
        decoded_frames: u64,
        width: u32,
        height: u32,
        pixel_format: String,
        /// The decoder really used, such as `software:h264`; several joined by `+`.
        #[schema(required = false)]
        decoder: String,
        /// Reason that the backend asked first did not decode all of it.
        #[schema(required = false)]
        decoder_fallback: String,
        /// The source ended early or is damaged.
        #[schema(required = false)]
        truncated: bool,
        /// Reason that no more of it was decoded, where something cut it off.
        #[schema(required = false)]
        reason: String,
        /// Thresholds that it was recorded with; in events of older servers only where its caller chose them.
        #[schema(required = false)]
        gate: GateRecord,
        /// Zones that were watched; absent where there are none. Older servers wrote their names alone.
        #[schema(required = false)]
        zones: Vec<ZoneRecord>,
        /// True where movement outside of the zones did not count.
        #[schema(required = false)]
        activity_zones_only: bool,
        /// Epoch milliseconds at which its first picture was taken, as the container says, or came,
        /// where the source is live; null where that is unknown, absent in events of older servers.
        #[schema(required = false)]
        wall_start_ms: Option<i64>,
        /// One object a frame.
        signals: Vec<SignalSample>,
    }
    /// The signals of a decoded frame.
    SignalSample {
        frame_index: u64,
        #[schema(required = false)]
        source_frame_index: u64,
        pts_ms: i64,
        /// 16 hexadecimal digits.
        perceptual_hash: String,
        luma_mean: schema_types::Fraction,
        flicker_score: schema_types::Fraction,
        ghosting_score: schema_types::Fraction,
        noise_variance_score: schema_types::Fraction,
        #[schema(required = false)]
        scene_score: schema_types::Fraction,
        /// Share of the picture's cells that changed from four tenths of a second before; absent from older recordings.
        #[schema(required = false)]
        activity_score: schema_types::Fraction,
        /// Box around them; absent where none changed.
        #[schema(required = false)]
        activity_region: Region,
        /// Zones that they lie in, by their position in `zones`; absent where there are none.
        #[schema(required = false)]
        activity_zones: Vec<u32>,
    }
    /// The result of an analysis pass.
    AnalysisGeneratedPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        frames: u64,
        window_size: u32,
        segment_ms: u32,
        sampling_policy: schema_types::Sampling,
        #[schema(required = true)]
        sample_fps: Option<f64>,
        #[schema(required = true)]
        mode: Option<String>,
        model: String,
        markers: u64,
        /// Id that its markers carry too; absent where that was before analyses had names.
        #[schema(required = false)]
        analysis_id: schema_types::AnalysisId,
        /// Thresholds that it used; absent likewise.
        #[schema(required = false)]
        gate: GateRecord,
        /// Zones in place of those of the recording; absent where it used these.
        #[schema(required = false)]
        zones: Vec<ZoneRecord>,
        /// True where movement outside of them did not count.
        #[schema(required = false)]
        activity_zones_only: bool,
    }
    /// A chunk finished tiered inference.
    ChunkInferredPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        chunk_index: u64,
        /// The backend that answered, or failed last; null when none was asked.
        #[schema(required = true)]
        provider: Option<String>,
        provider_fallback_used: bool,
        semantic_fallback_used: bool,
        #[schema(required = true)]
        semantic_error: Option<String>,
        event_type: String,
        #[schema(required = true)]
        object_label: Option<String>,
        summary: String,
        description: String,
        /// Null when the model said nothing of it.
        #[schema(required = true)]
        confidence: Option<schema_types::Fraction>,
        raw_output: String,
        /// The object in it, where the reasoning gave an `output_schema`.
        #[schema(required = false)]
        output: schema_types::AnyObject,
        prompt_tokens: u64,
        completion_tokens: u64,
        thinking_tokens: u64,
        total_tokens: u64,
        inference_latency_ms: u64,
        /// Pass that answered, or failed; absent when no backend was asked.
        #[schema(required = false)]
        tier: schema_types::InferencePass,
        /// The model that answered, or was to; absent likewise.
        #[schema(required = false)]
        model: String,
        /// Requests that backends were sent for it.
        #[schema(required = false)]
        attempts: u32,
        /// Name and version of the prompt.
        #[schema(required = false)]
        prompt_version: String,
        /// Media time of the chunk's first frame.
        #[schema(required = false)]
        start_pts_ms: i64,
        /// Media time of the chunk's last frame.
        #[schema(required = false)]
        end_pts_ms: i64,
        /// The event whose description this repeats; there where the chunk shows nothing new and no
        /// backend was asked.
        #[schema(required = false)]
        reused_from_seq: u64,
        #[schema(required = false)]
        index_name: schema_types::Label,
        /// The description was cut to fit.
        #[schema(required = false)]
        truncated: bool,
    }
    /// A semantic result was recorded.
    ChunkGeneratedPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        chunk_index: u64,
        chunk_frames: u64,
        process_ms: u64,
        source_span_ms: u64,
        lag_ms: i64,
        #[schema(required = true)]
        index_name: Option<schema_types::Label>,
        prompt_tokens: u64,
        completion_tokens: u64,
        thinking_tokens: u64,
        total_tokens: u64,
        inference_latency_ms: u64,
    }
    /// The semantic path fell back.
    SemanticFallbackPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        reason: String,
    }
    /// A direct inference completed.
    InferenceCompletedPayload {
        request_id: schema_types::RequestId,
        provider: String,
        model: String,
        fallback_used: bool,
        prompt_bytes: u64,
        output_bytes: u64,
        /// Tokens of the prompt. Absent from events of older servers, as is all that follows.
        #[schema(required = false)]
        prompt_tokens: u64,
        #[schema(required = false)]
        completion_tokens: u64,
        /// Tokens of hidden reasoning.
        #[schema(required = false)]
        thinking_tokens: u64,
        /// All of them, failed attempts included.
        #[schema(required = false)]
        total_tokens: u64,
        #[schema(required = false)]
        inference_latency_ms: u64,
        /// `first`: a direct inference has one pass.
        #[schema(required = false)]
        tier: schema_types::InferencePass,
        /// Requests that backends were sent.
        #[schema(required = false)]
        attempts: u32,
    }
    /// The run reached its normal end.
    RunCompletedPayload {
        #[schema(required = true)]
        request_id: Option<schema_types::RequestId>,
        #[schema(required = true)]
        stream_id: Option<schema_types::Label>,
        frames: u64,
        markers: u64,
        #[schema(required = true)]
        index_name: Option<schema_types::Label>,
        /// Null where the run ended without a reasoning.
        #[schema(required = true)]
        semantic: Option<SemanticRecord>,
        /// Reason for which the service ended it itself: `idle`; absent otherwise.
        #[schema(required = false)]
        reason: String,
    }
    /// The run ended by a failure.
    RunFailedPayload {
        #[schema(required = false)]
        request_id: schema_types::RequestId,
        reason: String,
    }
    /// An action was asked for.
    RequestedPayload {
        request_id: schema_types::RequestId,
    }
    /// The run was given another label.
    RunLabelledPayload {
        request_id: schema_types::RequestId,
        /// Null where it has none from now on.
        #[schema(required = true)]
        label: Option<schema_types::Label>,
    }
    /// The run was deleted, on request or because the service reclaimed it.
    RunDeletedPayload {
        #[schema(required = false)]
        request_id: schema_types::RequestId,
        #[schema(required = false)]
        reclaim: schema_types::AnyObject,
    }
    /// The still of a selected frame was stored.
    KeyframeStoredPayload {
        frame_index: u64,
        pts_ms: i64,
        event_type: String,
        #[schema(required = false)]
        reason: schema_types::GateReason,
        description: String,
        image_ref: String,
        image_media_type: schema_types::Jpeg,
        image_bytes: u64,
        image_sha256: schema_types::Sha256,
        #[schema(required = false)]
        truncated: bool,
    }
    /// Nine tenths of the owner's tokens of the day are spent or set aside for requests under way.
    TokenBudgetLowPayload {
        request_id: schema_types::RequestId,
        /// Name of the owner's key, never the key.
        principal_key: String,
        /// The day (UTC), such as `2026-01-31`.
        day: String,
        used_tokens: u64,
        limit_tokens: u64,
    }
    /// Something begins to move.
    ActivityStartedPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        #[schema(required = false)]
        session_id: schema_types::SessionId,
        /// First frame of the episode.
        start_frame: u64,
        start_pts_ms: i64,
        peak_score: schema_types::Fraction,
        /// Kept frame with that score.
        peak_frame: u64,
        /// Box around what moves.
        region: Region,
        /// Names of the zones in which something moves.
        zones: Vec<String>,
    }
    /// The picture is at rest again.
    ActivityEndedPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        #[schema(required = false)]
        session_id: schema_types::SessionId,
        /// First frame of the episode.
        start_frame: u64,
        /// Last frame in which something moved.
        end_frame: u64,
        start_pts_ms: i64,
        end_pts_ms: i64,
        /// Highest score of the frames that were kept for the episode.
        peak_score: schema_types::Fraction,
        /// Kept frame with that score.
        peak_frame: u64,
        /// Box around all that moved.
        region: Region,
        /// Names of the zones in which something moved.
        zones: Vec<String>,
    }
    /// A live source that was lost is there again.
    SourceReconnectedPayload {
        request_id: schema_types::RequestId,
        stream_id: schema_types::Label,
        /// Number of the first frame behind the gap.
        frame_index: u64,
        /// Media time of that frame.
        pts_ms: i64,
        /// Time without a frame, by the clock.
        gap_ms: u64,
        /// Connections that were tried.
        attempts: u32,
        /// Reason that the source was lost.
        reason: String,
    }
    /// Finding at a frame, or over a clip.
    FindingPayload {
        #[schema(required = false)]
        session_id: schema_types::SessionId,
        /// Number of the frame; of a clip that of the first.
        frame_index: u64,
        /// Media time.
        pts_ms: i64,
        /// Media time of a clip's last picture.
        #[schema(required = false)]
        end_pts_ms: i64,
        confidence: schema_types::Fraction,
        description: String,
        #[schema(required = false)]
        summary: String,
        #[schema(required = false)]
        event_type: String,
        #[schema(required = false)]
        object_label: String,
        /// Reason that there is no answer, or none of a second pass.
        #[schema(required = false)]
        semantic_error: String,
        /// The backend that answered, or failed last.
        #[schema(required = false)]
        provider: String,
        /// The model that answered, or was to.
        #[schema(required = false)]
        model: String,
        /// Tokens that the description took; absent where it was reused.
        #[schema(required = false)]
        total_tokens: u64,
        #[schema(required = false)]
        completion_tokens: u64,
        #[schema(required = false)]
        inference_latency_ms: u64,
        /// Requests that backends were sent.
        #[schema(required = false)]
        attempts: u32,
        #[schema(required = false)]
        prompt_version: String,
        /// The event whose description this repeats.
        #[schema(required = false)]
        reused_from_seq: u64,
        #[schema(required = false)]
        index_name: schema_types::Label,
        /// The description was cut to fit.
        #[schema(required = false)]
        truncated: bool,
    }
}
