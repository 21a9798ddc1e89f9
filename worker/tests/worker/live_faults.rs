//! Outcomes of live sessions whose worker fails.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use media::AccessUnit;
use rustix::process::Signal as Kill;
use worker::{LiveWorkerEvent, WorkerError, WorkerLimits};

use crate::{
    faults::{children, signal_worker},
    live::{Listener, access_units, push, signals_alone, start, with_stills},
    support::{alone, annex_b, supervisor},
};

/// Limits under which a stopped worker does not count as stalled.
pub fn patient() -> WorkerLimits {
    WorkerLimits { stall: Duration::from_secs(60), ..WorkerLimits::default() }
}

#[test]
fn a_worker_over_its_limit_ends_its_sessions_once() {
    let _alone = alone();
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits { memory_bytes: 1 << 20, ..WorkerLimits::default() });
    let said = listener.wait("ended", |said| said.ended.is_some());
    assert!(matches!(said.ended, Some(WorkerError::MemoryLimit { .. })), "{:?}", said.ended);
    drop(said);
    let error = live.open(1, signals_alone()).expect_err("ended");
    assert!(matches!(error, WorkerError::Ended), "{error}");
}

#[test]
fn a_killed_worker_ends_its_eight_sessions_and_says_why() {
    let _alone = alone();
    let units = access_units(&annex_b("testsrc2"));
    let listener = Listener::default();
    let live = start(&listener, WorkerLimits::default());
    for session in 0..8 {
        live.open(session, with_stills()).expect("open");
        units[..10].iter().for_each(|unit| push(&live, session, unit));
    }
    let all_speak = listener.wait("signals of all", |said| said.signals.len() == 8);
    drop(all_speak);
    signal_worker(Kill::KILL);
    let said = listener.wait("ended", |said| said.ended.is_some());
    assert!(matches!(said.ended, Some(WorkerError::KilledOutside)), "{:?}", said.ended);
    assert_eq!((said.closed.len(), said.failed.len()), (0, 0), "one event tells of all");
    drop(said);
    for session in 0..8 {
        let error = live.push(session, units[10].clone()).expect_err("ended");
        assert!(matches!(error, WorkerError::Ended), "{error}");
    }
    drop(live);
    assert!(children().is_empty());
    assert_eq!(listener.wait("nothing", |_| true).late, 0, "the end comes last");
}

#[test]
fn a_listener_that_panics_is_told_the_end_and_nothing_more_is_taken() {
    let _alone = alone();
    let units = access_units(&annex_b("testsrc2"));
    let listener = Listener::default();
    let passed_on = listener.clone();
    let on_event = move |event| match event {
        LiveWorkerEvent::Session { .. } => panic!("a listener that breaks"),
        ended => passed_on.take(ended),
    };
    let live = supervisor().start_live(WorkerLimits::default(), on_event).expect("a worker");
    live.open(1, signals_alone()).expect("open");
    units[..10].iter().for_each(|unit| push(&live, 1, unit));
    let said = listener.wait("ended", |said| said.ended.is_some());
    assert!(matches!(said.ended, Some(WorkerError::Listener)), "{:?}", said.ended);
    drop(said);
    let error = live.push(1, units[10].clone()).expect_err("ended");
    assert!(matches!(error, WorkerError::Ended), "{error}");
    assert!(children().is_empty());
}

#[test]
fn a_worker_that_stands_still_stalls() {
    let _alone = alone();
    let units = access_units(&annex_b("testsrc2"));
    let listener = Listener::default();
    let after = Duration::from_millis(300);
    let live = start(&listener, WorkerLimits { stall: after, ..WorkerLimits::default() });
    live.open(1, signals_alone()).expect("open");
    signal_worker(Kill::STOP);
    push(&live, 1, &units[0]);
    let said = listener.wait("ended", |said| said.ended.is_some());
    let is_stalled = matches!(said.ended, Some(WorkerError::Stalled(limit)) if limit == after);
    assert!(is_stalled, "{:?}", said.ended);
}

#[test]
fn a_session_that_is_too_much_loses_whole_groups_and_no_other_loses_anything() {
    let _alone = alone();
    // GOPs of 25 pictures.
    let units = access_units(&annex_b("testsrc2"));
    let listener = Listener::default();
    let live = start(&listener, patient());
    for session in [1, 2] {
        live.open(session, signals_alone()).expect("open");
    }
    signal_worker(Kill::STOP);
    let taken = |session: u32, units: &[AccessUnit]| -> Vec<usize> {
        let push = |unit: &AccessUnit| live.push(session, unit.clone());
        units.iter().enumerate().filter(|(_, unit)| push(unit).is_ok()).map(|(at, _)| at).collect()
    };
    let of_first = taken(1, &units);
    assert_eq!(of_first, (0..64).collect::<Vec<_>>(), "two groups and a part of the third");
    let of_second = taken(2, &units[..50]);
    assert_eq!(of_second.len(), 50);
    assert_eq!(live.load(1), Some(64));
    signal_worker(Kill::CONT);

    // With room again, nothing before a keyframe is accepted and everything after it is.
    let drained = |session| {
        let deadline = Instant::now() + Duration::from_secs(60);
        while live.load(session).is_some_and(|units| units > 0) {
            assert!(Instant::now() < deadline, "session {session} waits for ever");
            std::thread::sleep(Duration::from_millis(2));
        }
    };
    drained(1);
    assert_eq!(taken(1, &units[70..]), (5..units.len() - 70).collect::<Vec<_>>());
    drained(1);
    drained(2);
    assert_eq!(live.load(2), Some(0));
    for session in [1, 2] {
        live.close(session).expect("close");
    }
    let said = listener.wait("closed", |said| said.closed.len() == 2);
    assert_eq!((said.damaged, &said.failed), (0, &BTreeMap::new()));
    let times = |session| -> Vec<i64> {
        said.signals[&session].iter().map(|signal| signal.pts_ms / 40).collect()
    };
    assert_eq!(times(1), (0..64).chain(75..units.len() as i64).collect::<Vec<_>>());
    assert_eq!(times(2), (0..50).collect::<Vec<_>>());
}
