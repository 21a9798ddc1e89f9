//! Rights that a sandboxed worker lacks, forked or executed.

use worker::{Supervisor, WorkerStart};

use crate::support::{alone, has_landlock, program, supervisor};

/// Returns a supervisor whose workers are executed, and one whose workers are forked.
fn both() -> [Supervisor; 2] {
    let forked = program().with_fork_server(|start, failure| {
        assert_eq!(start, WorkerStart::Forked, "{failure:?}");
    });
    [supervisor(), Supervisor::new(forked)]
}

#[test]
fn the_sandbox_is_full() {
    let _alone = alone();
    for supervisor in both() {
        let (_, report) = supervisor.capabilities().expect("a worker starts");
        assert_eq!(report.is_full(), has_landlock(), "{report}");
        assert_eq!(report.landlock_abi >= 1, has_landlock(), "{report:?}");
        // The filter counts only if it has refused every attempt.
        assert!(report.seccomp && report.rlimits && report.refused >= 12, "{report:?}");
    }
}
