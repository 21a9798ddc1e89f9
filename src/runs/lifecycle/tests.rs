//! The run state machine as a table and as laws.

use proptest::prelude::*;
use timeline::EventKind::{self, *};

use super::Lifecycle;

#[test]
fn states_follow_from_the_kinds_of_events() {
    let cases: [(&[EventKind], Lifecycle); 17] = [
        (&[], Lifecycle::Unborn),
        (&[StopRequested], Lifecycle::Unborn),
        (&[RunCreated], Lifecycle::Pending),
        (&[RunCreated, IngestStarted], Lifecycle::Processing),
        (&[RunCreated, IngestReceived], Lifecycle::Processing),
        (&[RunCreated, AnalysisGenerated], Lifecycle::Processing),
        (&[RunCreated, InferenceCompleted], Lifecycle::Processing),
        (&[RunCreated, KeepaliveRefreshed], Lifecycle::Processing),
        (&[RunCreated, Vlm], Lifecycle::Processing),
        (&[RunCreated, RunLabelled], Lifecycle::Pending),
        (&[RunCreated, RunCompleted, RunLabelled], Lifecycle::Completed),
        (&[RunCreated, RunCompleted], Lifecycle::Completed),
        (&[RunCreated, RunFailed], Lifecycle::Failed),
        (&[RunCreated, StopRequested, KeepaliveRefreshed], Lifecycle::Cancelled),
        (&[RunCreated, RunExpired, RunCompleted], Lifecycle::Expired),
        (&[RunCreated, StopRequested, RunDeleted], Lifecycle::Deleted),
        (&[RunCreated, RunDeleted, IngestReceived], Lifecycle::Deleted),
    ];
    for (kinds, expected) in cases {
        let state = kinds.iter().fold(Lifecycle::Unborn, |state, kind| state.after(*kind));
        assert_eq!(state, expected, "{kinds:?}");
    }
}

#[test]
fn only_shown_states_have_names_to_filter_by() {
    for state in Lifecycle::SHOWN {
        assert_eq!(Lifecycle::from_name(state.as_str()), Some(state));
        assert!(state.is_visible());
    }
    for hidden in ["unborn", "deleted", "", "Pending"] {
        assert_eq!(Lifecycle::from_name(hidden), None, "{hidden}");
    }
}

proptest! {
    #[test]
    fn an_end_is_final_and_nothing_comes_back(kinds in prop::collection::vec(0..EventKind::ALL.len(), 0..30)) {
        let mut state = Lifecycle::Unborn;
        for kind in kinds.into_iter().map(|at| EventKind::ALL[at]) {
            let next = state.after(kind);
            if state == Lifecycle::Deleted {
                prop_assert_eq!(next, Lifecycle::Deleted);
            } else if state.is_terminal() {
                prop_assert_eq!(next == Lifecycle::Deleted, kind == RunDeleted);
                prop_assert!(next == state || next == Lifecycle::Deleted);
            } else if state.is_active() {
                prop_assert!(next != Lifecycle::Unborn);
            }
            state = next;
        }
    }
}
