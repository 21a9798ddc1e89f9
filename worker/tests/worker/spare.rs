//! A worker that is kept ready: used by one job, replaced after a while, gone with its supervisor.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpriority_process, kill_process};
use worker::{CancelToken, JobSpec, Limits, Start, WorkerError};

use crate::{
    faults::children,
    support::{Heard, alone, rendered, spec, supervisor},
};

/// Waits until so many workers live.
pub fn until_there_are(count: usize) -> BTreeSet<i32> {
    let started = Instant::now();
    loop {
        let found = children();
        if found.len() == count {
            return found;
        }
        assert!(started.elapsed() < Duration::from_secs(30), "{count} of {found:?}");
        sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_job_takes_the_worker_that_waits_and_another_follows() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", &[]);
    let starts = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&starts);
    let on_start = move |start, ailment: Option<&WorkerError>| {
        told.lock().expect("whole").push((start, ailment.is_some()));
    };
    let supervisor = supervisor().with_spare(on_start).expect("a thread");
    let job = || {
        let mut heard = Heard::default();
        let ended =
            supervisor.run_job(spec(&path), &CancelToken::new(), &mut |event| heard.take(event));
        assert_eq!(ended.expect("a job").frames, 25);
    };
    let spare = until_there_are(1);
    job();
    job();
    let next = until_there_are(1);
    assert!(next.is_disjoint(&spare), "each lives for one job");
    // One that died while it waited costs no job.
    for pid in next {
        kill_process(Pid::from_raw(pid).expect("positive"), Signal::KILL).expect("it is ours");
    }
    job();
    let starts = std::mem::take(&mut *starts.lock().expect("whole"));
    // A first job that took its time left another spare worker to the second.
    assert_eq!(starts.len(), 3);
    assert_eq!(starts[0], (Start::Spare, false));
    // Of one that died before it could wait, nothing is told here.
    assert_eq!(starts[2].0, Start::Fresh);
    drop(supervisor);
    until_there_are(0);
}

/// Niceness of a process, or of this one.
fn niceness(pid: Option<i32>) -> i32 {
    let pid = pid.map(|pid| Pid::from_raw(pid).expect("positive"));
    getpriority_process(pid).expect("it runs")
}

#[test]
fn a_file_gives_way_where_it_is_asked_to_and_what_is_live_does_not() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", &[]);
    let own = niceness(None);
    let job = |supervisor: &worker::Supervisor, limits: Limits| {
        let mut found = BTreeSet::new();
        let spec = JobSpec { limits, ..spec(&path) };
        supervisor
            .run_job(spec, &CancelToken::new(), &mut |_| {
                found.extend(children().into_iter().map(|pid| niceness(Some(pid))));
                ControlFlow::Continue(())
            })
            .expect("a job");
        found
    };
    let nice = (own + Limits::file().niceness).min(19);
    until_there_are(0);
    assert!(nice > own || own == 19, "{nice}");
    assert_eq!(job(&supervisor(), Limits::file()), [nice].into());
    assert_eq!(job(&supervisor(), Limits::camera()), [own].into());
    let with_spare = supervisor().with_spare(|_, _| ()).expect("a thread");
    let spare = until_there_are(1);
    assert_eq!(niceness(spare.first().copied()), own, "nobody knows what it will do");
    assert!(job(&with_spare, Limits::file()).contains(&nice), "one that waited gives way too");
    drop(with_spare);
    until_there_are(0);
    let live = supervisor().start_live(Limits::default(), |_| Ok(())).expect("starts");
    assert_eq!(niceness(until_there_are(1).first().copied()), own);
    drop(live);
}
