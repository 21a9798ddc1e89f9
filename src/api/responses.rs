//! JSON response types of domain types.

use std::collections::BTreeMap;

use media::{CellBox, Marker, MarkerOrigin, WallTime};
use timeline::{KeyframeStored, SemanticOutcome};

use super::{jobs::Job, prelude::*, runs::RunSummary};
use crate::runs::{
    registry::{ChunkProgress, JobProgress, RunRegistry},
    source::remote,
};

/// Region of the picture, in fractions of its sides from the upper left corner.
#[derive(Serialize, ToSchema)]
pub struct Region {
    /// Left edge.
    x: schema_types::Fraction,
    /// Top edge.
    y: schema_types::Fraction,
    width: schema_types::Fraction,
    height: schema_types::Fraction,
}

impl Region {
    /// Returns the region of a box of cells; `None` if the box is empty.
    pub fn of(cells: CellBox) -> Option<Region> {
        let [x, y, width, height] = cells.fractions();
        (!cells.is_empty()).then_some(Region {
            x: x.into(),
            y: y.into(),
            width: width.into(),
            height: height.into(),
        })
    }
}

/// Progress of a job.
#[derive(Serialize, ToSchema)]
#[schema(as = JobProgress)]
pub struct ProgressRecord {
    /// Frames analysed so far.
    frames: u64,
    /// Presentation time of the last frame, milliseconds.
    pts_ms: i64,
    /// Progress of a reason job, once models are asked; absent otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    chunks: Option<ChunkProgressRecord>,
}

/// Progress of a reason job over the chunks of its source.
#[derive(Serialize, ToSchema)]
#[schema(as = ChunkProgress)]
pub struct ChunkProgressRecord {
    /// Chunks sent to models, or waiting to reuse another chunk's answer.
    asked: u64,
    /// Chunks among them with an answer.
    answered: u64,
    /// Chunks among them that stay without an answer.
    unanswered: u64,
}

impl From<JobProgress> for ProgressRecord {
    fn from(JobProgress { frames, pts_ms, chunks, .. }: JobProgress) -> ProgressRecord {
        let chunks = chunks.map(|ChunkProgress { asked, answered, unanswered }| {
            ChunkProgressRecord { asked, answered, unanswered }
        });
        ProgressRecord { frames, pts_ms, chunks }
    }
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

/// A run, as in lists.
#[derive(Serialize, ToSchema)]
#[schema(as = Run)]
pub struct RunRecord {
    /// Id of the request; absent in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::RequestId, required = false)]
    request_id: Option<String>,
    run_id: schema_types::RunId,
    /// Label given by the owner.
    #[schema(value_type = Option<schema_types::Label>, required = true)]
    label: Option<String>,
    status: schema_types::RunState,
    #[schema(value_type = schema_types::AnalysisMode)]
    mode: String,
    /// Model given on creation, else the model of the last reason job.
    #[schema(required = true)]
    model: Option<String>,
    /// Outcome of the model stage of the last reason job; null without one.
    #[schema(required = true)]
    semantic: Option<SemanticResult>,
    /// Job that is running.
    #[schema(required = true)]
    active_job: Option<Job>,
    /// Source of the last ingest.
    #[schema(required = true)]
    source_uri: Option<String>,
    /// Kind of the source: `file`, `url`, `rtsp` or `whip`.
    #[schema(required = true)]
    source: Option<&'static str>,
    /// Live session that created the run.
    #[schema(value_type = Option<schema_types::SessionId>, required = true)]
    session_id: Option<String>,
    /// Tenant of the run: metadata, not an authorization boundary.
    #[schema(required = true)]
    tenant_id: Option<String>,
    /// Wall-clock time of each stream's first picture in epoch milliseconds: from the container or, for live
    /// video, its arrival, at its end by the sender's reports (RFC 3550 6.4.1); null if unknown.
    wall_start_ms: BTreeMap<String, Option<i64>>,
    created_at: schema_types::Timestamp,
    updated_at: schema_types::Timestamp,
    /// Time at which the run expires unless it is used; null once it has ended.
    #[schema(value_type = Option<schema_types::Timestamp>, required = true)]
    expires_at: Option<String>,
    /// Summary of the run; null if nothing is decoded, absent unless requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<RunSummary>, required = false)]
    summary: Option<Option<RunSummary>>,
    /// Number of events that cannot be read, so that this record lacks what they say; absent if there are none.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = u64, required = false)]
    damaged_events: Option<u64>,
}

impl RunRecord {
    /// Creates the record of `run`, with `request_id` if a single run is requested; may read the log.
    pub fn new(run: &Run, registry: &RunRegistry, request_id: Option<RequestId>) -> RunRecord {
        let (origin, snapshot) = (run.origin(), run.snapshot());
        let source = match (origin.session, &snapshot.source_uri) {
            (Some(_), _) => Some("whip"),
            (None, Some(uri)) => Some(remote::kind(uri)),
            (None, None) => None,
        };
        let walls = run.wall_starts(registry.timeline()).into_iter();
        let wall_start_ms = walls
            .map(|(stream, start)| (stream.as_str().to_owned(), start.map(|start| start.epoch_ms)));
        let wall_start_ms = wall_start_ms.collect();
        let damaged_events = run.damaged_events();
        RunRecord {
            request_id: request_id.map(|id| id.to_string()),
            run_id: run.id().into(),
            label: snapshot.label.as_ref().map(|label| label.as_str().to_owned()),
            status: snapshot.lifecycle.into(),
            mode: origin.mode.clone(),
            active_job: run.active_job().as_ref().map(Job::new),
            source,
            session_id: origin.session.map(|session| session.to_string()),
            tenant_id: origin.tenant.clone(),
            wall_start_ms,
            created_at: snapshot.created_at.into(),
            updated_at: snapshot.updated_at.into(),
            expires_at: snapshot.expires_at(registry.limits.ttl).map(WallTime::rfc3339),
            source_uri: snapshot.source_uri.as_deref().map(str::to_owned),
            semantic: snapshot.semantic.as_deref().map(SemanticResult::from),
            model: snapshot.model,
            summary: None,
            damaged_events: (damaged_events > 0).then_some(damaged_events),
        }
    }

    pub fn with_summary(self, summary: Option<RunSummary>) -> RunRecord {
        RunRecord { summary: Some(summary), ..self }
    }
}

/// A finding over a range of frames.
#[derive(Serialize, ToSchema)]
#[schema(as = Marker)]
pub struct MarkerRecord {
    marker_id: schema_types::MarkerId,
    run_id: schema_types::RunId,
    #[schema(value_type = schema_types::Label)]
    stream_id: String,
    /// `scene_cut`, `artifact_suspected`, `keyframe_keep`, `context_observation`, or a custom name.
    event_type: String,
    status: schema_types::MarkerState,
    start_frame: u64,
    /// Last frame, inclusive.
    end_frame: u64,
    start_pts_ms: i64,
    end_pts_ms: i64,
    confidence: schema_types::Fraction,
    /// Provisional marker that this finalized one replaces; null otherwise.
    #[schema(value_type = Option<schema_types::MarkerId>, required = true)]
    supersedes_marker_id: Option<String>,
    /// Analysis that emitted the marker; absent for markers older than analysis ids.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::AnalysisId, required = false)]
    analysis_id: Option<String>,
    /// `model` if a model named the type of some of its frames; absent for markers older than this field.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = schema_types::MarkerSource, required = false)]
    origin: Option<&'static str>,
    /// True for a finding of the gate over which a model's takes precedence; listed only if
    /// `origin` is given. Absent otherwise.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    #[schema(required = false)]
    beside: bool,
}

impl From<Marker> for MarkerRecord {
    fn from(marker: Marker) -> MarkerRecord {
        MarkerRecord {
            marker_id: marker.marker_id.into(),
            run_id: marker.run_id.into(),
            stream_id: marker.stream_id.as_str().to_owned(),
            event_type: marker.event_type.as_str().to_owned(),
            status: marker.status.into(),
            start_frame: marker.start_frame,
            end_frame: marker.end_frame,
            start_pts_ms: marker.start_pts_ms,
            end_pts_ms: marker.end_pts_ms,
            confidence: marker.confidence.into(),
            supersedes_marker_id: marker.supersedes_marker_id.map(|id| id.to_string()),
            analysis_id: marker.analysis_id.map(|id| id.to_string()),
            origin: marker.origin.map(MarkerOrigin::as_str),
            beside: marker.beside,
        }
    }
}

/// A stored still.
#[derive(Serialize, ToSchema)]
pub struct Keyframe {
    /// Sequence number of the event that names the still.
    pub seq: u64,
    frame_index: u64,
    /// Presentation time of the frame, milliseconds.
    pts_ms: i64,
    event_type: String,
    /// Reason why the gate selected the frame; null for stills of an older server.
    #[schema(value_type = Option<schema_types::GateReason>, required = true)]
    reason: Option<String>,
    /// Description; empty if there is none.
    description: String,
    /// Path of the image.
    image_ref: String,
    #[schema(value_type = schema_types::Jpeg)]
    image_media_type: &'static str,
    image_bytes: u64,
    image_sha256: schema_types::Sha256,
}

impl Keyframe {
    /// Creates the record of the still named by the event at `seq`.
    pub fn new(seq: media::Seq, still: KeyframeStored) -> Keyframe {
        Keyframe {
            seq: seq.0,
            frame_index: still.frame_index,
            pts_ms: still.pts_ms,
            event_type: still.event_type.as_str().to_owned(),
            reason: still.reason,
            description: still.description,
            image_ref: still.image_ref,
            image_media_type: "image/jpeg",
            image_bytes: still.image_bytes,
            image_sha256: still.image_sha256.into(),
        }
    }
}
