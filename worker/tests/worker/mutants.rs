//! A thousand damaged files: each ends with a result or with an error that names the fault.

use std::{
    collections::BTreeMap,
    fs,
    ops::ControlFlow,
    sync::Mutex,
    thread,
    time::{Duration, Instant},
};

use media::ErrorKind;
use worker::{CancelToken, JobSpec, Supervisor, WorkerError, WorkerLimits};

use crate::{
    damaged::{MUTANTS, Mutants},
    support::{alone, program, spec, with},
};

/// Far more time than forty frames of 176x144 take on the busiest machine: only a hang reaches it.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// Most mutants that may exceed the memory limit: a header can announce pictures of 8192x8192.
const HUNGRY_MAX: usize = 5;

/// Limits a job on a damaged source to forty frames, and gives it time.
pub fn patient(spec: JobSpec) -> JobSpec {
    let (first_frame, stall, wall) = (PATIENCE, PATIENCE, PATIENCE);
    let limits = WorkerLimits { first_frame, stall, wall, ..spec.limits };
    with(JobSpec { limits, ..spec }, |it| (it.max_frames, it.threads) = (40, 1))
}

pub fn verdict(error: &WorkerError) -> &'static str {
    match error {
        WorkerError::Fault(fault) if fault.kind() == ErrorKind::Internal => "internal",
        WorkerError::Fault(_) => "clear error",
        WorkerError::FirstFrameTimeout(_)
        | WorkerError::Stalled(_)
        | WorkerError::WallClock(_)
        | WorkerError::ProcessorTime => "watchdog",
        WorkerError::MemoryLimit { .. } => "memory limit",
        WorkerError::Killed { .. } | WorkerError::KilledOutside | WorkerError::Exited { .. } => {
            "crash"
        }
        _ => "other",
    }
}

#[test]
fn mutants_end_in_a_result_or_a_clear_error() {
    let _alone = alone();
    let supervisor = Supervisor::new(program().with_fork_server(|_, _| ()));
    let folder = tempfile::tempdir().expect("a folder");
    #[expect(clippy::disallowed_methods, reason = "another seed by hand finds other mutants")]
    let seed = std::env::var("SIGHTLINE_MUTANT_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = seed.unwrap_or(1);
    let mutants = Mutants::new(seed);
    let tally = Mutex::new(BTreeMap::<&str, usize>::new());
    let slowest = Mutex::new((Duration::ZERO, 0));
    let work = &|share: u64| {
        for number in (share..MUTANTS).step_by(2) {
            let (name, bytes) = mutants.get(number);
            let path = folder.path().join(format!("mutant-{share}"));
            fs::write(&path, bytes).expect("written");
            let started = Instant::now();
            let heard = &mut |_| ControlFlow::Continue(());
            let outcome = supervisor.run_job(patient(spec(&path)), &CancelToken::new(), heard);
            let took = started.elapsed();
            let verdict = outcome.as_ref().map_or_else(verdict, |_| "result");
            if !matches!(verdict, "result" | "clear error") {
                eprintln!("mutant {number} of {name}: {:?}", outcome.err());
            }
            assert!(verdict != "other", "mutant {number} of {name}");
            *tally.lock().expect("no panic").entry(verdict).or_default() += 1;
            let mut slowest = slowest.lock().expect("no panic");
            *slowest = (took, number).max(*slowest);
        }
    };
    thread::scope(|scope| {
        for share in 0..2 {
            thread::Builder::new()
                .name(format!("mutants-{share}"))
                .spawn_scoped(scope, move || work(share))
                .expect("a thread");
        }
    });
    let tally = tally.into_inner().expect("no panic");
    let (took, number) = slowest.into_inner().expect("no panic");
    let (source, _) = mutants.get(number);
    eprintln!("seed {seed}: {tally:?}, slowest {number} of {source} in {took:?}");
    assert_eq!(tally.values().sum::<usize>() as u64, MUTANTS);
    assert_eq!(tally.get("internal"), None, "damage is the file's fault, not ours");
    assert_eq!(tally.get("watchdog"), None, "something hangs: contained, and worth a report");
    let hungry = tally.get("memory limit").copied().unwrap_or(0);
    assert!(hungry <= HUNGRY_MAX, "{hungry} mutants reached the memory limit");
    assert_eq!(tally.get("crash"), None, "a decoder crashed: contained, and still worth a report");
}
