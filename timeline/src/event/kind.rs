//! Kinds of events: names on the wire, numbers on disk.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal $name:literal,)*) => {
        /// Kind of an event; [`Event`](super::Event) has the payloads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
        #[allow(missing_docs, reason = "the payload of the same name says it")]
        #[repr(u8)]
        pub enum EventKind { $($(#[$doc])* #[serde(rename = $name)] $kind = $code,)* }

        impl EventKind {
            /// Every kind.
            pub const ALL: &[EventKind] = &[$(EventKind::$kind,)*];

            /// Returns the name on the wire.
            pub const fn as_str(self) -> &'static str {
                match self { $(EventKind::$kind => $name,)* }
            }

            /// Returns the kind with this name.
            pub fn from_name(name: &str) -> Option<EventKind> {
                match name { $($name => Some(EventKind::$kind),)* _ => None }
            }

            /// Returns true if the kind ends a run; such events may use the log's spare space on a full disk.
            pub const fn ends_run(self) -> bool {
                use EventKind::{RunCompleted, RunDeleted, RunExpired, RunFailed, StopRequested};
                matches!(
                    self,
                    RunCompleted | RunFailed | RunExpired | StopRequested | RunDeleted
                )
            }

            /// Returns the number of the kind on disk, fixed forever.
            pub(crate) const fn code(self) -> u8 {
                self as u8
            }

            pub(crate) const fn from_code(code: u8) -> Option<EventKind> {
                match code { $($code => Some(EventKind::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    RunCreated = 1 "run_created",
    IngestReceived = 2 "ingest_received",
    FramesDecoded = 3 "frames_decoded",
    /// Analysis produced a marker.
    MarkerEmitted = 4 "marker_emitted",
    AnalysisGenerated = 5 "analysis_generated",
    SemanticChunkInferred = 6 "semantic_chunk_inferred",
    SemanticChunkGenerated = 7 "semantic_chunk_generated",
    SemanticFallbackActivated = 8 "semantic_fallback_activated",
    InferenceCompleted = 9 "inference_completed",
    RunCompleted = 10 "run_completed",
    /// Graceful stop requested.
    StopRequested = 11 "stop_requested",
    /// Idle TTL refreshed.
    KeepaliveRefreshed = 12 "keepalive_refreshed",
    RunDeleted = 13 "run_deleted",
    RunFailed = 14 "run_failed",
    RunExpired = 15 "run_expired",
    KeyframeStored = 16 "keyframe_stored",
    /// Description of a still.
    Vlm = 17 "vlm",
    /// Description of a still by the second pass.
    VlmTiered = 18 "vlm_tiered",
    /// Description of a clip.
    ClipVlm = 19 "clip_vlm",
    /// Description of a clip by the second pass.
    ClipVlmTiered = 20 "clip_vlm_tiered",
    /// Consecutive descriptions diverge.
    StateTransition = 21 "state_transition",
    /// The picture entered a loop.
    LoopDetected = 22 "loop_detected",
    TokenBudgetLow = 23 "token_budget_low",
    IngestStarted = 24 "ingest_started",
    RunLabelled = 25 "run_labelled",
    SourceReconnected = 26 "source_reconnected",
    /// Something begins to move.
    ActivityStarted = 27 "activity_started",
    /// The picture is at rest again.
    ActivityEnded = 28 "activity_ended",
}
