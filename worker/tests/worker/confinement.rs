//! The sandbox that a worker must have before it gets media, forked or executed, and its dropped privileges.

use std::fs;

use worker::{CancelToken, SandboxPolicy, Supervisor, WorkerError, WorkerLimits, WorkerStart};

use crate::{
    fork_server::until_there_are,
    no_landlock::without_landlock,
    support::{alone, has_landlock, program, rendered, run_by, spec, supervisor},
};

/// CAP_SETPCAP, which allows dropping capabilities from the bounding set.
const SETPCAP: u64 = 1 << 8;

fn refused<T>(outcome: Result<T, WorkerError>) {
    let Err(error) = outcome else { panic!("media is read outside a sandbox") };
    assert!(matches!(error, WorkerError::Sandbox(_)), "{error}");
    let told = error.to_string();
    assert!(told.contains("no landlock") && told.contains("SERVICE_SANDBOX=best-effort"), "{told}");
}

#[test]
fn without_landlock_no_worker_reads_media_unless_that_is_allowed() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", "");
    // Examines this kernel before landlock is hidden.
    let program = program();
    without_landlock(|| {
        for program in [program.clone(), program.clone().with_fork_server(|_, _| ())] {
            let strict = Supervisor::new(program.with_sandbox(SandboxPolicy::Require));
            let never = &mut |event| panic!("said {event:?}");
            refused(strict.run_job(spec(&path), &CancelToken::new(), never));
            refused(
                strict
                    .start_live(WorkerLimits::default(), |event| panic!("said {event:?}"))
                    .map(drop),
            );
            refused(strict.capabilities());
            refused(strict.sandbox());
        }

        let lenient = Supervisor::new(program.with_sandbox(SandboxPolicy::BestEffort));
        let report = lenient.sandbox().expect("a worker");
        assert!(report.landlock_abi == 0 && report.seccomp, "{report}");
        let missing = report.missing;
        assert!(missing.iter().any(|what| what.starts_with("landlock")), "{missing:?}");
        assert_eq!(run_by(&lenient, spec(&path)).expect("a job").signals.len(), 25);
    });
}

#[test]
fn the_sandbox_is_full() {
    let _alone = alone();
    let forked = program().with_fork_server(|start, failure| {
        assert_eq!(start, WorkerStart::Forked, "{failure:?}");
    });
    for supervisor in [supervisor(), Supervisor::new(forked)] {
        let (_, report) = supervisor.capabilities().expect("a worker starts");
        assert_eq!(report.is_full(), has_landlock(), "{report}");
        assert_eq!(report.landlock_abi >= 1, has_landlock(), "{report:?}");
        // The filter counts only if it has refused every attempt.
        assert!(report.seccomp && report.rlimits && report.refused >= 12, "{report:?}");
    }
}

/// Returns a field of `/proc/<pid>/status`.
fn status(pid: i32, name: &str) -> String {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix(name)).expect("a line");
    line.trim_start_matches(':').trim().to_owned()
}

#[test]
fn a_worker_has_none_of_its_user_s_capabilities() {
    let _alone = alone();
    let live = supervisor().start_live(WorkerLimits::default(), |_| Ok(())).expect("starts");
    let worker = *until_there_are(1).first().expect("one");
    for set in ["CapInh", "CapPrm", "CapEff", "CapAmb"] {
        assert_eq!(status(worker, set), "0000000000000000", "{set}");
    }
    assert_eq!(status(worker, "NoNewPrivs"), "1");
    let own = std::process::id().cast_signed();
    let may_bound = u64::from_str_radix(&status(own, "CapEff"), 16).expect("hex") & SETPCAP > 0;
    let bound = if may_bound { "0000000000000000".to_owned() } else { status(own, "CapBnd") };
    assert_eq!(status(worker, "CapBnd"), bound);
    drop(live);
}
