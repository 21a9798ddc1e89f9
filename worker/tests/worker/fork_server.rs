//! The fork server: its workers equal executed ones, its failures cost no job, it ends with its supervisor.

use std::{
    collections::BTreeSet,
    ops::ControlFlow,
    sync::{Arc, Mutex},
    thread::{self, sleep},
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, getpriority_process, kill_process};
use worker::{
    CancelToken, JobSpec, Supervisor, WorkerError, WorkerLimits, WorkerProgram, WorkerStart,
};

use crate::{
    faults::children,
    support::{alone, long_clip, program, rendered, run_by, spec, supervisor},
};

/// Waits until this many workers live.
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

/// Starts of workers, each with true if one could not be forked.
type Starts = Arc<Mutex<Vec<(WorkerStart, bool)>>>;

fn forking(program: WorkerProgram) -> (Supervisor, Starts) {
    let starts = Starts::default();
    let told = Arc::clone(&starts);
    let program = program.with_fork_server(move |start, failure| {
        told.lock().expect("whole").push((start, failure.is_some()));
    });
    (Supervisor::new(program), starts)
}

fn strike(pids: &BTreeSet<i32>, signal: Signal) {
    for pid in pids {
        kill_process(Pid::from_raw(*pid).expect("positive"), signal).expect("it is ours");
    }
}

#[test]
fn a_fork_server_that_fails_costs_no_job_and_one_whose_worker_was_killed_is_replaced() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", "");
    let (supervisor, starts) = forking(program());
    let job = || run_by(&supervisor, spec(&path));
    let told = || std::mem::take(&mut *starts.lock().expect("whole"));
    until_there_are(0);
    job().expect("a job");
    let first = until_there_are(1);
    job().expect("a job");
    assert_eq!(until_there_are(1), first, "a fork server stays");
    assert_eq!(told(), [(WorkerStart::Forked, false); 2]);

    strike(&first, Signal::KILL);
    job().expect("a job whose worker could not be forked");
    until_there_are(0);
    job().expect("a job");
    let second = until_there_are(1);
    assert!(second.is_disjoint(&first));
    assert_eq!(told(), [(WorkerStart::Executed, true), (WorkerStart::Forked, false)]);

    let mut server = second;
    for signal in [Signal::ILL, Signal::KILL] {
        let mut struck = false;
        let ended = supervisor.run_job(spec(&long_clip()), &CancelToken::new(), &mut |_| {
            if !std::mem::replace(&mut struck, true) {
                strike(&(&children() - &server), signal);
            }
            ControlFlow::Continue(())
        });
        let error = ended.expect_err("killed");
        let killed = matches!(error, WorkerError::Killed { .. } | WorkerError::KilledOutside);
        assert!(killed, "{signal:?}: {error}");
        job().expect("a job");
        let next = until_there_are(1);
        assert!(next.is_disjoint(&server), "another layout of memory after {signal:?}");
        assert_eq!(told(), [(WorkerStart::Forked, false); 2], "{signal:?}");
        server = next;
    }
    drop(supervisor);
    until_there_are(0);
}

#[test]
fn a_worker_outlives_the_thread_that_asked_for_it_and_is_its_servers_child() {
    let _alone = alone();
    let (supervisor, _) = forking(program());
    until_there_are(0);
    let live = thread::scope(|scope| {
        let start = scope.spawn(|| supervisor.start_live(WorkerLimits::default(), |_| Ok(())));
        start.join().expect("no panic").expect("starts")
    });
    let both = until_there_are(2);
    sleep(Duration::from_millis(100));
    assert_eq!(children(), both);
    drop((live, supervisor));
    until_there_are(0);
}

/// Returns the niceness of a process, or of this one.
fn niceness(pid: Option<i32>) -> i32 {
    let pid = pid.map(|pid| Pid::from_raw(pid).expect("positive"));
    getpriority_process(pid).expect("it runs")
}

#[test]
fn a_file_gives_way_where_it_is_asked_to_and_what_is_live_does_not() {
    let _alone = alone();
    let path = rendered("short-h264.mp4", "testsrc2=s=64x48:r=25:d=1", "");
    let own = niceness(None);
    let job = |supervisor: &worker::Supervisor, limits: WorkerLimits| {
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
    let nice = (own + WorkerLimits::file().niceness).min(19);
    until_there_are(0);
    assert!(nice > own || own == 19, "{nice}");
    assert_eq!(job(&supervisor(), WorkerLimits::file()), [nice].into());
    assert_eq!(job(&supervisor(), WorkerLimits::camera()), [own].into());
    let (forking, _) = forking(program());
    let (server, file) = (own, nice);
    assert_eq!(
        job(&forking, WorkerLimits::file()),
        [server, file].into(),
        "the fork server itself does not"
    );
    drop(forking);
    until_there_are(0);
    let live = supervisor().start_live(WorkerLimits::default(), |_| Ok(())).expect("starts");
    assert_eq!(niceness(until_there_are(1).first().copied()), own);
    drop(live);
}
