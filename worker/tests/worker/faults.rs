//! Outcomes of jobs whose worker fails.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    ops::ControlFlow,
    path::Path,
    thread,
    time::Duration,
};

use rustix::process::{Pid, Signal, kill_process};
use worker::{
    CancelToken, JobEvent, JobFault, JobSpec, Supervisor, WorkerError, WorkerLimits, WorkerProgram,
};

use crate::support::{Heard, alone, long_clip, run, spec, supervisor, whole, with};

/// Process ids of this process's children, zombies included.
pub fn children() -> BTreeSet<i32> {
    let own = std::process::id().to_string();
    let is_child = |pid: &i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let after_name = stat.rsplit(')').next().unwrap_or_default();
        after_name.split_whitespace().nth(1) == Some(&own)
    };
    let entries = fs::read_dir("/proc").expect("proc is there");
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(is_child)
        .collect()
}

pub fn signal_worker(signal: Signal) {
    let pids = children();
    assert_eq!(pids.len(), 1, "one worker");
    for pid in pids {
        kill_process(Pid::from_raw(pid).expect("positive"), signal).expect("it is ours");
    }
}

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").expect("proc is there").count()
}

/// Runs a job and calls `strike` at its first progress event.
fn run_and(spec: JobSpec, mut strike: impl FnMut()) -> Result<Heard, WorkerError> {
    let (mut heard, mut struck) = (Heard::default(), false);
    supervisor().run_job(spec, &CancelToken::new(), &mut |event| {
        if matches!(event, JobEvent::Progress { .. }) && !struck {
            struck = true;
            strike();
        }
        heard.take(event)
    })?;
    Ok(heard)
}

fn limited(path: &Path, limit: impl FnOnce(&mut WorkerLimits)) -> JobSpec {
    let mut spec = spec(path);
    limit(&mut spec.limits);
    spec
}

#[test]
fn a_killed_worker_is_one_error() {
    let _alone = alone();
    let path = long_clip();
    let error = run_and(spec(&path), || signal_worker(Signal::KILL)).expect_err("killed");
    assert!(matches!(error, WorkerError::KilledOutside), "{error}");
    let error = run_and(spec(&path), || signal_worker(Signal::ILL)).expect_err("crashed");
    assert!(matches!(error, WorkerError::Killed { signal: 4, .. }), "{error}");
    let error = run_and(spec(&path), || signal_worker(Signal::XCPU)).expect_err("out of time");
    assert!(matches!(error, WorkerError::ProcessorTime), "{error}");
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn a_stopped_worker_stalls() {
    let _alone = alone();
    let path = long_clip();
    let after = Duration::from_millis(300);
    let spec = limited(&path, |limits| limits.stall = after);
    let error = run_and(spec, || signal_worker(Signal::STOP)).expect_err("stopped");
    assert!(matches!(error, WorkerError::Stalled(limit) if limit == after), "{error}");
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn a_worker_without_a_first_frame_is_ended() {
    let _alone = alone();
    let path = long_clip();
    let spec = limited(&path, |limits| limits.first_frame = Duration::from_millis(300));
    let outcome = supervisor().run_job(spec, &CancelToken::new(), &mut |event| {
        if matches!(event, JobEvent::Opened(_)) {
            signal_worker(Signal::STOP);
        }
        ControlFlow::Continue(())
    });
    // On a fast machine the first frame is sent before the worker is stopped.
    let error = outcome.expect_err("stopped");
    let expected = matches!(error, WorkerError::FirstFrameTimeout(_) | WorkerError::Stalled(_));
    assert!(expected, "{error}");
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn each_limit_ends_the_job_by_its_name() {
    let _alone = alone();
    let path = long_clip();
    let error = run(limited(&path, |limits| limits.memory_bytes = 48 << 20)).expect_err("memory");
    assert!(matches!(error, WorkerError::MemoryLimit { limit_bytes } if limit_bytes == 48 << 20));

    let wall = Duration::from_millis(200);
    let error = run(limited(&path, |limits| limits.wall = wall)).expect_err("wall clock");
    assert!(matches!(error, WorkerError::WallClock(after) if after == wall), "{error}");

    let error = run(limited(&path, |limits| limits.output_bytes = 2000)).expect_err("output");
    assert!(matches!(error, WorkerError::OutputBudget { limit_bytes: 2000 }), "{error}");

    let error = run(limited(&path, |limits| limits.threads = Some(1))).expect_err("threads");
    assert!(matches!(error, WorkerError::ThreadLimit(1)), "{error}");
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn a_cancelled_job_ends_before_its_file() {
    let _alone = alone();
    let path = long_clip();
    let token = CancelToken::new();
    thread::scope(|scope| {
        scope.spawn(|| {
            thread::sleep(Duration::from_millis(150));
            token.cancel();
        });
        let ignore = &mut |_| ControlFlow::Continue(());
        let error = supervisor().run_job(spec(&path), &token, ignore).expect_err("cancelled");
        assert!(matches!(error, WorkerError::Cancelled), "{error}");
    });
    let mut messages = 0;
    let outcome = supervisor().run_job(spec(&path), &CancelToken::new(), &mut |event| {
        messages += usize::from(matches!(event, JobEvent::Frames(_)));
        if messages == 3 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    assert!(matches!(outcome, Err(WorkerError::Cancelled)), "{outcome:?}");
    assert_eq!(messages, 3, "nothing comes after the stop");
    assert_eq!(children(), BTreeSet::new());
}

#[test]
fn ends_leave_no_process_and_no_descriptor() {
    let _alone = alone();
    let folder = tempfile::tempdir().expect("a folder");
    let garbage = folder.path().join("garbage");
    fs::write(&garbage, b"no media").expect("written");
    let clip = long_clip();
    let before = descriptors();
    for round in 0..clips::sized(60, 200) {
        let outcome = match round % 4 {
            0 => run_and(spec(&clip), || signal_worker(Signal::KILL)),
            1 => run(limited(&clip, |limits| limits.wall = Duration::from_millis(20 + round % 30))),
            2 => run(with(spec(&clip), |it| it.max_frames = 3)),
            _ => run(spec(&garbage)),
        };
        if let Err(error) = outcome {
            let expected = matches!(
                error,
                WorkerError::KilledOutside
                    | WorkerError::WallClock(_)
                    | WorkerError::Fault(JobFault::Decode(_))
            );
            assert!(expected, "round {round}: {error}");
        }
    }
    assert_eq!(children(), BTreeSet::new());
    assert_eq!(descriptors(), before);
}

#[test]
fn what_is_no_file_says_so() {
    let _alone = alone();
    for path in ["/", "/dev/zero"] {
        let outcome = run(whole(File::open(path).expect("opens")));
        assert!(matches!(outcome, Err(WorkerError::NotAFile)), "{path}: {outcome:?}");
    }
}

#[test]
fn a_program_that_is_no_worker_is_an_error_with_its_words() {
    let _alone = alone();
    let report = |program: &str| Supervisor::new(WorkerProgram::at(program)).capabilities();
    let error = report("/nonexistent").expect_err("not there");
    assert!(matches!(error, WorkerError::Spawn(_)), "{error}");
    let error = report("/bin/ls").expect_err("no worker");
    let WorkerError::Exited { code, stderr } = error else { panic!("{error:?}") };
    assert!(code != 0 && stderr.contains("media-worker"), "{code} {stderr}");
    assert_eq!(children(), BTreeSet::new());
}
