//! Kinds of events: names on the wire, numbers on disk.

macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident = $code:literal $name:literal,)*) => {
        /// Kind of an event; [`Event`](super::Event) has the payloads.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[repr(u8)]
        pub enum EventKind { $($(#[$doc])* $kind = $code,)* }

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

            /// Returns the kind with this number.
            pub(crate) const fn from_code(code: u8) -> Option<EventKind> {
                match code { $($code => Some(EventKind::$kind),)* _ => None }
            }
        }
    };
}

kinds! {
    /// Run created.
    RunCreated = 1 "run_created",
    /// Ingest accepted.
    IngestReceived = 2 "ingest_received",
    /// Decode pass finished.
    FramesDecoded = 3 "frames_decoded",
    /// Analysis produced a marker.
    MarkerEmitted = 4 "marker_emitted",
    /// Deterministic analysis result.
    AnalysisGenerated = 5 "analysis_generated",
    /// A chunk finished tiered inference.
    SemanticChunkInferred = 6 "semantic_chunk_inferred",
    /// Semantic result recorded.
    SemanticChunkGenerated = 7 "semantic_chunk_generated",
    /// The semantic path fell back.
    SemanticFallbackActivated = 8 "semantic_fallback_activated",
    /// Direct inference completed.
    InferenceCompleted = 9 "inference_completed",
    /// Run reached its normal end.
    RunCompleted = 10 "run_completed",
    /// Graceful stop requested.
    StopRequested = 11 "stop_requested",
    /// Idle TTL refreshed.
    KeepaliveRefreshed = 12 "keepalive_refreshed",
    /// Run soft-deleted.
    RunDeleted = 13 "run_deleted",
    /// Run ended by a failure.
    RunFailed = 14 "run_failed",
    /// Run idle for longer than its TTL.
    RunExpired = 15 "run_expired",
    /// The still of a selected frame was stored.
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
    /// The owner has spent most of its tokens of the day.
    TokenBudgetLow = 23 "token_budget_low",
    /// A source was accepted; nothing of it is decoded yet.
    IngestStarted = 24 "ingest_started",
    /// The run was given another label.
    RunLabelled = 25 "run_labelled",
    /// A live source that was lost is there again.
    SourceReconnected = 26 "source_reconnected",
    /// Something begins to move.
    ActivityStarted = 27 "activity_started",
    /// The picture is at rest again.
    ActivityEnded = 28 "activity_ended",
}
