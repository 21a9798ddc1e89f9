//! Markers (findings over a range of frames), and the event types of frames.

use std::borrow::Cow;

use crate::{AnalysisId, MarkerId, RunId, Score, StreamId};

/// Event type of a frame or a marker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// Scene cut: a hard transition.
    SceneCut,
    /// Elevated temporal artifact score.
    ArtifactSuspected,
    /// Frame kept by the deterministic gate.
    KeyframeKeep,
    /// Frame without any of the above.
    ContextObservation,
    /// A model's normalised event type, or a tenant's own name for one of the above.
    Named(Cow<'static, str>),
}

impl EventType {
    /// Returns the name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            EventType::SceneCut => "scene_cut",
            EventType::ArtifactSuspected => "artifact_suspected",
            EventType::KeyframeKeep => "keyframe_keep",
            EventType::ContextObservation => "context_observation",
            EventType::Named(name) => name,
        }
    }

    /// Returns the event type with the wire name `name`.
    pub fn from_name(name: &str) -> EventType {
        match name {
            "scene_cut" => EventType::SceneCut,
            "artifact_suspected" => EventType::ArtifactSuspected,
            "keyframe_keep" => EventType::KeyframeKeep,
            "context_observation" => EventType::ContextObservation,
            other => EventType::Named(Cow::Owned(other.to_owned())),
        }
    }
}

crate::named! {
    /// Certainty of a marker.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MarkerStatus {
        /// Confidence at or above the threshold, or a scene cut.
        Exact = "exact",
        /// Confidence below the threshold.
        Provisional = "provisional",
        /// A provisional marker that the following segment confirmed.
        Finalized = "finalized",
    }
}

crate::named! {
    /// Origin of a marker's finding.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum MarkerOrigin {
        /// Found by the gate.
        Gate = "gate",
        /// Found by a model, which named the event type of some of the frames.
        Model = "model",
    }
}

/// A finding over the frames `start_frame..=end_frame`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Marker {
    /// Id derived from the other fields, so that a replay gives the same id.
    pub marker_id: MarkerId,
    pub run_id: RunId,
    pub stream_id: StreamId,
    pub event_type: EventType,
    /// Certainty of the finding.
    pub status: MarkerStatus,
    pub start_frame: u64,
    /// Last frame, inclusive.
    pub end_frame: u64,
    /// Presentation time of the first frame, ms.
    pub start_pts_ms: i64,
    /// Presentation time of the last frame, ms.
    pub end_pts_ms: i64,
    /// Mean confidence over the frames.
    pub confidence: Score,
    /// Provisional marker that this finalized marker replaces.
    pub supersedes_marker_id: Option<MarkerId>,
    /// Analysis that made the marker; `None` in older logs.
    pub analysis_id: Option<AnalysisId>,
    /// Origin of the finding; `None` in older logs.
    pub origin: Option<MarkerOrigin>,
    /// True for a gate marker emitted alongside an analysis in which the model's findings take precedence.
    pub beside: bool,
}
