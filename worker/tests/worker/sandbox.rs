//! Rights that a confined worker lacks.

use worker::SandboxLevel;

use crate::support::{alone, has_landlock, supervisor};

#[test]
fn the_sandbox_is_full() {
    let _alone = alone();
    let (_, report) = supervisor().capabilities().expect("a worker starts");
    assert_eq!(report.level == SandboxLevel::Full, has_landlock(), "{report}");
    assert_eq!(report.landlock_abi >= 1, has_landlock(), "{report:?}");
    assert!(report.seccomp && report.rlimits, "{report:?}");
}

#[test]
fn a_confined_worker_is_refused_everything_it_tries() {
    let _alone = alone();
    let attempts = supervisor().probe_sandbox().expect("the worker survives being refused");
    assert!(attempts.len() >= 12, "{attempts:?}");
    for attempt in attempts {
        let refused = matches!(attempt.errno, Some(libc::EPERM | libc::EACCES));
        assert!(refused, "{}: {:?}", attempt.what, attempt.errno);
    }
}
