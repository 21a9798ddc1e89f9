//! Markers: findings over a range of frames, and what a frame can be called.

use std::borrow::Cow;

use crate::{AnalysisId, MarkerId, RunId, Score, StreamId};

/// Event type of a frame or a marker.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EventType {
    /// A hard transition.
    SceneCut,
    /// An elevated temporal artifact signal.
    ArtifactSuspected,
    /// Kept by the deterministic gate.
    KeyframeKeep,
    /// Nothing of the above.
    ContextObservation,
    /// A model's normalised event type, or a tenant's own name for one of the above.
    Named(Cow<'static, str>),
}

impl EventType {
    /// Name on the wire.
    pub fn as_str(&self) -> &str {
        match self {
            EventType::SceneCut => "scene_cut",
            EventType::ArtifactSuspected => "artifact_suspected",
            EventType::KeyframeKeep => "keyframe_keep",
            EventType::ContextObservation => "context_observation",
            EventType::Named(name) => name,
        }
    }

    /// The event type called `name`.
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
        /// The gate's.
        Gate = "gate",
        /// A model's, who named the type of some of its frames.
        Model = "model",
    }
}

/// A finding over the frames `start_frame..=end_frame`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marker {
    /// Derived from the other fields, so that a replay gives the same.
    pub marker_id: MarkerId,
    /// The run it belongs to.
    pub run_id: RunId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// Event type that was found.
    pub event_type: EventType,
    /// Certainty of it.
    pub status: MarkerStatus,
    /// First frame.
    pub start_frame: u64,
    /// Last frame, inclusive.
    pub end_frame: u64,
    /// Presentation time of the first frame, ms.
    pub start_pts_ms: i64,
    /// Presentation time of the last frame, ms.
    pub end_pts_ms: i64,
    /// Mean over the frames.
    pub confidence: Score,
    /// The provisional marker that a finalized one replaces.
    pub supersedes_marker_id: Option<MarkerId>,
    /// The analysis that made it; older logs have none.
    pub analysis_id: Option<AnalysisId>,
    /// Origin of its finding; absent from older logs.
    pub origin: Option<MarkerOrigin>,
    /// The gate's own, beside an analysis in which a model's word goes before the gate's.
    pub beside: bool,
}
