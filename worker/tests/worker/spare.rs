//! A worker that is kept ready: used by one job, replaced after a while, gone with its supervisor.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex},
    thread::sleep,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpriority_process, kill_process};
use worker::{CancelToken, Limits, Start, WorkerError};

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

#[test]
fn work_of_files_gives_way_to_live_pictures_and_to_the_server() {
    let _alone = alone();
    let niceness = |pid: Option<i32>| {
        getpriority_process(pid.map(|pid| Pid::from_raw(pid).expect("positive"))).expect("it runs")
    };
    let own = niceness(None);
    let files = supervisor().with_spare(|_, _| ()).expect("a thread");
    let spare = until_there_are(1);
    assert_eq!(niceness(spare.first().copied()), own.max(10));
    let live = supervisor().start_live(Limits::default(), |_| Ok(())).expect("starts");
    let both = until_there_are(2);
    assert_eq!(niceness(both.difference(&spare).next().copied()), own);
    drop((files, live));
}
