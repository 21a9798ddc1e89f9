//! How confined a worker must be before it is given media.

use std::sync::{Arc, Mutex};

use worker::{CancelToken, Limits, SandboxLevel, SandboxPolicy, Start, Supervisor, WorkerError};

use crate::{
    no_landlock::without_landlock,
    spare::until_there_are,
    support::{Heard, alone, program, rendered, spec},
};

fn refused<T>(outcome: Result<T, WorkerError>) {
    let Err(error) = outcome else { panic!("media is read outside a sandbox") };
    assert!(matches!(error, WorkerError::Sandbox { .. }), "{error}");
    let told = error.to_string();
    assert!(told.contains("no landlock") && told.contains("SERVICE_SANDBOX=best-effort"), "{told}");
}

#[test]
fn without_landlock_no_worker_reads_media_unless_that_is_allowed() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", &[]);
    without_landlock(|| {
        let starts = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&starts);
        let on_start = move |start, ailment: Option<&WorkerError>| {
            told.lock().expect("whole").push((start, ailment.is_some()));
        };
        let strict = Supervisor::new(program().with_sandbox(SandboxPolicy::Require));
        let strict = strict.with_spare(on_start).expect("a thread");
        until_there_are(1);
        refused(
            strict.run_job(spec(&path), &CancelToken::new(), &mut |event| panic!("said {event:?}")),
        );
        let starts = std::mem::take(&mut *starts.lock().expect("whole"));
        assert_eq!(starts, [(Start::Fresh, true)], "the one that waited was judged too");
        refused(strict.start_live(Limits::default(), |event| panic!("said {event:?}")).map(drop));
        refused(strict.capabilities());
        refused(strict.sandbox());

        let lenient = Supervisor::new(program().with_sandbox(SandboxPolicy::BestEffort));
        let report = lenient.sandbox().expect("a worker");
        assert!(report.landlock_abi == 0 && report.seccomp, "{report}");
        let SandboxLevel::Partial { missing } = report.level else { panic!("no landlock") };
        assert!(missing.iter().any(|what| what.starts_with("landlock")), "{missing:?}");
        let mut heard = Heard::default();
        let ended =
            lenient.run_job(spec(&path), &CancelToken::new(), &mut |event| heard.take(event));
        assert_eq!(ended.expect("a job").frames, 25);
    });
}
