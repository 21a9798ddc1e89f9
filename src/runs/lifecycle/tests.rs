//! Tests of the run state machine, by a table and by properties.

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
