//! The run state machine: a pure fold over the kinds of a run's events.
//!
//! Knows no clock, no storage and no owner; `registry` keeps one [`RunState`] per run, and alone appends the
//! events that change it.

use timeline::EventKind;

media::named! {
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub enum RunState {
        /// The `run_created` event is not durable yet; the run is invisible.
        #[default]
        Unborn = "unborn",
        /// Created; no work was done in the run.
        Pending = "pending",
        /// Work was done in the run, or it was kept alive.
        Processing = "processing",
        Completed = "completed",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Ended after idling for longer than its TTL.
        Expired = "expired",
        /// Soft-deleted: look-ups do not find the run.
        Deleted = "deleted",
    }
}

impl RunState {
    /// States that a run record can show.
    pub const SHOWN: [RunState; 6] = [
        RunState::Pending,
        RunState::Processing,
        RunState::Completed,
        RunState::Failed,
        RunState::Cancelled,
        RunState::Expired,
    ];

    /// Returns the state after an event of this kind.
    ///
    /// Only a deletion leaves a terminal state, and only a creation leaves `Unborn`.
    pub fn after(self, kind: EventKind) -> RunState {
        if self == RunState::Deleted || kind == EventKind::RunDeleted {
            return RunState::Deleted;
        }
        if self == RunState::Unborn {
            let born = kind == EventKind::RunCreated;
            return if born { RunState::Pending } else { RunState::Unborn };
        }
        if self.is_terminal() {
            return self;
        }
        match kind {
            EventKind::RunCreated
            | EventKind::RunDeleted
            | EventKind::RunLabelled
            | EventKind::TokenBudgetLow => self,
            EventKind::RunCompleted => RunState::Completed,
            EventKind::RunFailed => RunState::Failed,
            EventKind::StopRequested => RunState::Cancelled,
            EventKind::RunExpired => RunState::Expired,
            EventKind::IngestStarted
            | EventKind::IngestReceived
            | EventKind::SourceReconnected
            | EventKind::ActivityStarted
            | EventKind::ActivityEnded
            | EventKind::FramesDecoded
            | EventKind::MarkerEmitted
            | EventKind::AnalysisGenerated
            | EventKind::SemanticChunkInferred
            | EventKind::SemanticChunkGenerated
            | EventKind::SemanticFallbackActivated
            | EventKind::InferenceCompleted
            | EventKind::KeepaliveRefreshed
            | EventKind::KeyframeStored
            | EventKind::Vlm
            | EventKind::VlmTiered
            | EventKind::ClipVlm
            | EventKind::ClipVlmTiered
            | EventKind::StateTransition
            | EventKind::LoopDetected => RunState::Processing,
        }
    }

    /// Returns true if the run accepts work.
    pub fn is_active(self) -> bool {
        matches!(self, RunState::Pending | RunState::Processing)
    }

    /// Returns true if the run has ended and can still be read.
    pub fn is_terminal(self) -> bool {
        use RunState::{Cancelled, Completed, Expired, Failed};
        matches!(self, Completed | Failed | Cancelled | Expired)
    }

    /// Returns true if the owner can see the run.
    pub fn is_visible(self) -> bool {
        self.is_active() || self.is_terminal()
    }

    pub fn from_shown_name(name: &str) -> Option<RunState> {
        RunState::SHOWN.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use timeline::EventKind::{self, *};

    use super::RunState;

    #[test]
    fn states_follow_from_the_kinds_of_events() {
        let cases: [(&[EventKind], RunState); 17] = [
            (&[], RunState::Unborn),
            (&[StopRequested], RunState::Unborn),
            (&[RunCreated], RunState::Pending),
            (&[RunCreated, IngestStarted], RunState::Processing),
            (&[RunCreated, IngestReceived], RunState::Processing),
            (&[RunCreated, AnalysisGenerated], RunState::Processing),
            (&[RunCreated, InferenceCompleted], RunState::Processing),
            (&[RunCreated, KeepaliveRefreshed], RunState::Processing),
            (&[RunCreated, Vlm], RunState::Processing),
            (&[RunCreated, RunLabelled], RunState::Pending),
            (&[RunCreated, RunCompleted, RunLabelled], RunState::Completed),
            (&[RunCreated, RunCompleted], RunState::Completed),
            (&[RunCreated, RunFailed], RunState::Failed),
            (&[RunCreated, StopRequested, KeepaliveRefreshed], RunState::Cancelled),
            (&[RunCreated, RunExpired, RunCompleted], RunState::Expired),
            (&[RunCreated, StopRequested, RunDeleted], RunState::Deleted),
            (&[RunCreated, RunDeleted, IngestReceived], RunState::Deleted),
        ];
        for (kinds, expected) in cases {
            let state = kinds.iter().fold(RunState::Unborn, |state, kind| state.after(*kind));
            assert_eq!(state, expected, "{kinds:?}");
        }
    }

    #[test]
    fn only_shown_states_have_names_to_filter_by() {
        for state in RunState::SHOWN {
            assert_eq!(RunState::from_shown_name(state.as_str()), Some(state));
            assert!(state.is_visible());
        }
        for hidden in ["unborn", "deleted", "", "Pending"] {
            assert_eq!(RunState::from_shown_name(hidden), None, "{hidden}");
        }
    }

    proptest! {
        #[test]
        fn an_end_is_final_and_nothing_comes_back(kinds in prop::collection::vec(0..EventKind::ALL.len(), 0..30)) {
            let mut state = RunState::Unborn;
            for kind in kinds.into_iter().map(|at| EventKind::ALL[at]) {
                let next = state.after(kind);
                if state == RunState::Deleted {
                    prop_assert_eq!(next, RunState::Deleted);
                } else if state.is_terminal() {
                    prop_assert_eq!(next == RunState::Deleted, kind == RunDeleted);
                    prop_assert!(next == state || next == RunState::Deleted);
                } else if state.is_active() {
                    prop_assert!(next != RunState::Unborn);
                }
                state = next;
            }
        }
    }
}
