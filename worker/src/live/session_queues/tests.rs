//! Tests of the order of requests and of refusals, without a worker.

use std::ops::Range;

use gate::GateConfig;
use media::{Signal, Timestamp};
use proptest::prelude::*;

use super::*;
use crate::{FrameImages, FrameRecord};

fn spec() -> SessionSpec {
    SessionSpec::new(Codec::H264, GateConfig::default())
}

fn unit(at: i64, keyframe: bool, len: usize) -> AccessUnit {
    let pts = Timestamp::from_millis(at);
    AccessUnit { codec: Codec::H264, pts, keyframe, data: vec![0; len] }
}

/// Returns the queues of these sessions, all open.
fn opened(sessions: impl IntoIterator<Item = u32>) -> SessionQueues {
    let mut lanes = SessionQueues::default();
    sessions.into_iter().for_each(|session| lanes.open(session, spec()).expect("open"));
    lanes
}

/// Returns the session, the time and the gap flag of the next unit that is sent.
fn sent(lanes: &mut SessionQueues, now: Instant) -> Option<(u32, i64, bool)> {
    loop {
        match lanes.next(now)? {
            WorkerRequest::AccessUnit { session, pts, follows_gap, .. } => {
                return Some((session, pts.as_millis(), follows_gap));
            }
            WorkerRequest::OpenSession { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_unit_a_session_is_under_way_and_sessions_take_turns() {
    let (mut lanes, now) = (opened([1, 2]), Instant::now());
    for at in 0..3 {
        lanes.push(1, unit(at, at == 0, 9)).expect("taken");
    }
    lanes.push(2, unit(7, true, 9)).expect("taken");
    assert_eq!(sent(&mut lanes, now), Some((1, 0, false)));
    assert_eq!(sent(&mut lanes, now), Some((2, 7, false)), "before the second of 1");
    assert_eq!(sent(&mut lanes, now), None, "both are busy");
    lanes.taken(1, now).expect("under way");
    lanes.push(2, unit(8, false, 9)).expect("taken");
    assert_eq!(sent(&mut lanes, now), Some((1, 1, false)));
    lanes.taken(2, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((2, 8, false)));
    assert_eq!(lanes.load(1), Some(2));
}

#[test]
fn a_session_over_its_bound_is_refused_up_to_a_keyframe_and_others_are_not() {
    // Units accepted at first, and bytes of each.
    let bounds = [(SESSION_UNITS_MAX, 10), (4, SESSION_BYTES_MAX / 4), (1, 3 * SESSION_BYTES_MAX)];
    for (taken, bytes) in bounds {
        let (mut lanes, now) = (opened([1, 2]), Instant::now());
        for at in 0..taken {
            lanes.push(1, unit(at as i64, at == 0, bytes)).expect("within its bound");
        }
        let error = lanes.push(1, unit(50, false, bytes)).expect_err("full");
        let full = bytes * taken;
        assert!(matches!(error, WorkerError::Backlog { queued_bytes } if queued_bytes == full));
        lanes.push(2, unit(0, true, 9)).expect("another session has its own bound");

        for at in 0..taken {
            let (session, pts, follows_gap) = sent(&mut lanes, now).expect("waits");
            assert_eq!((session, pts, follows_gap), (1, at as i64, false), "nothing is cut off");
            lanes.taken(1, now).expect("under way");
            if at == 0 {
                assert_eq!(sent(&mut lanes, now), Some((2, 0, false)));
            }
        }
        lanes.push(1, unit(51, false, 9)).expect_err("refers to what was refused");
        lanes.push(1, unit(52, true, 9)).expect("a keyframe");
        lanes.push(1, unit(53, false, 9)).expect("what follows it");
        assert_eq!(sent(&mut lanes, now), Some((1, 52, true)), "the worker is told");
        lanes.taken(1, now).expect("under way");
        assert_eq!(sent(&mut lanes, now), Some((1, 53, false)));
    }
}

#[test]
fn all_sessions_together_have_a_bound_that_keeps_none_out() {
    let (mut lanes, now) = (opened(0..9), Instant::now());
    for session in 0..8 {
        lanes.push(session, unit(0, true, SESSION_BYTES_MAX)).expect("its share");
    }
    for at in 0..3 {
        lanes.push(8, unit(at, at == 0, 1)).expect("nothing of it waits");
        let error = lanes.push(8, unit(at, false, 1)).expect_err("more than all may have");
        assert!(matches!(error, WorkerError::Backlog { queued_bytes: 1 }), "{error}");
        while sent(&mut lanes, now).is_some_and(|(session, ..)| session != 8) {}
        lanes.taken(8, now).expect("under way");
        if at < 2 {
            lanes.push(8, unit(at, true, 1)).expect("a keyframe ends the refusal");
            assert!(sent(&mut lanes, now).is_some());
            lanes.taken(8, now).expect("under way");
        }
    }
    (0..9).for_each(|session| lanes.close(session).expect("a close is always taken"));
}

/// Checks an event of a session that is `bytes` long.
fn look(lanes: &mut SessionQueues, session: u32, bytes: i64, now: Instant) -> EventCheck {
    let said = WorkerSessionEvent::Damaged { detail: String::new() };
    lanes.check_event(session, &said, bytes as u64, now).expect("in good order")
}

#[test]
fn a_session_ends_behind_as_many_frames_as_it_said() {
    let now = Instant::now();
    for (frames, is_right) in [(2, false), (3, true), (4, false)] {
        let mut lanes = busy(0..8, now);
        let record = |at| FrameRecord {
            signal: Signal::plain(at, 0),
            pts: None,
            pictures: FrameImages::default(),
        };
        let said = WorkerSessionEvent::Frames((0..3).map(record).collect());
        lanes.check_event(0, &said, 9, now).expect("in good order");
        let closed = WorkerSessionEvent::Closed { frames, decoder: String::new() };
        assert_eq!(lanes.check_event(0, &closed, 9, now).is_ok(), is_right, "{frames}");
    }
}

/// Returns the queues of sessions that each have one unit in progress and one waiting.
fn busy(sessions: Range<u32>, now: Instant) -> SessionQueues {
    let mut lanes = opened(sessions.clone());
    for session in sessions {
        lanes.push(session, unit(0, true, 9)).expect("taken");
        assert_eq!(sent(&mut lanes, now), Some((session, 0, false)));
        lanes.push(session, unit(1, false, 9)).expect("taken");
    }
    lanes
}

#[test]
fn a_session_over_its_share_waits_and_the_others_go_on() {
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut lanes = busy(0..8, start);
    assert_eq!(look(&mut lanes, 0, SECOND_BYTES * 3 / 2, start), EventCheck::Wanted);
    (0..8).for_each(|session| lanes.taken(session, start).expect("under way"));
    for session in 1..8 {
        assert_eq!(sent(&mut lanes, at(1)), Some((session, 1, false)));
    }
    assert_eq!(sent(&mut lanes, at(400)), None, "it is over its share by half a second");
    let refused = (2..100).filter(|at| lanes.push(0, unit(*at, false, 9)).is_err()).count();
    assert_eq!(refused, 98 + 1 - SESSION_UNITS_MAX, "its own newest find no room");
    lanes.push(1, unit(2, false, 9)).expect("another has room");
    assert!(!lanes.is_stalled(Duration::from_secs(5), at(4000)), "what waits is not begun");
    assert_eq!(sent(&mut lanes, at(501)), Some((0, 1, false)), "it goes on where it was");
}

#[test]
fn sessions_that_say_all_they_may_end_nobody() {
    let start = Instant::now();
    let mut lanes = busy(0..8, start);
    let mut units = [0_u64; 8];
    // For three minutes, each session sends a second's output for every unit that it gets.
    for ms in (0..180_000).step_by(100) {
        let now = start + Duration::from_millis(ms);
        for session in 0..8 {
            if lanes.lanes[&session].under_way.is_some() {
                assert_eq!(look(&mut lanes, session, SECOND_BYTES, now), EventCheck::Wanted);
                lanes.taken(session, now).expect("under way");
                units[session as usize] += 1;
            }
            // Refused if too many wait.
            lanes.push(session, unit(ms as i64, true, 9)).ok();
        }
        while sent(&mut lanes, now).is_some() {}
    }
    assert!(units.iter().all(|units| (180..=182).contains(units)), "one a second: {units:?}");
}

#[test]
fn a_session_that_says_far_too_much_is_closed_alone() {
    let now = Instant::now();
    let mut lanes = busy(1..3, now);
    let most = SECOND_BYTES + OVER_BYTES_MAX;
    assert_eq!(look(&mut lanes, 1, most, now), EventCheck::Wanted);
    let EventCheck::Cut(fault) = look(&mut lanes, 1, 1, now) else { panic!("over its share") };
    assert_eq!(fault.kind(), ErrorKind::Exhausted);
    assert_eq!(look(&mut lanes, 1, 1, now), EventCheck::Unwanted);
    assert_eq!(look(&mut lanes, 2, most, now), EventCheck::Wanted);
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.next(now), Some(WorkerRequest::CloseSession { session: 1 }));
    lanes.taken(1, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((1, 1, false)), "which costs the worker nothing");
    lanes.taken(1, now).expect("under way");
    lanes.close(1).expect("open still: who opened it closes it");
    lanes.open(1, spec()).expect("a closed number is free");
    assert_eq!(lanes.next(now), Some(WorkerRequest::CloseSession { session: 1 }));
    lanes.taken(1, now).expect("under way");
    assert!(matches!(lanes.next(now), Some(WorkerRequest::OpenSession { session: 1, .. })));
    assert_eq!(
        look(&mut lanes, 1, most, now),
        EventCheck::Wanted,
        "another session has its own share"
    );
    assert!(matches!(look(&mut lanes, 1, 1, now), EventCheck::Cut(_)));
    assert_eq!(look(&mut lanes, 1, OVER_BYTES_MAX - 1, now), EventCheck::Unwanted);
    let said = WorkerSessionEvent::Damaged { detail: String::new() };
    let goes_on = lanes.check_event(1, &said, 1, now);
    assert_eq!(goes_on, Err(WireError::Unexpected("session")), "no worker in order does");
}

#[test]
fn a_worker_stalls_when_it_finishes_nothing_and_not_when_sessions_wait_for_it() {
    let start = Instant::now();
    let stall = Duration::from_secs(5);
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut lanes = opened(0..20);
    (0..20).for_each(|session| lanes.push(session, unit(0, true, 9)).expect("taken"));
    assert!(!lanes.is_stalled(stall, at(100)), "nothing is under way");
    while sent(&mut lanes, start).is_some() {}
    for session in 0..10 {
        let now = at(2 * u64::from(session) + 2);
        assert!(!lanes.is_stalled(stall, now), "session {session} has waited its turn");
        lanes.taken(session, now).expect("under way");
    }
    assert!(!lanes.is_stalled(stall, at(25)));
    assert!(lanes.is_stalled(stall, at(26)), "nothing was finished since 20");
    (10..20).for_each(|session| lanes.taken(session, at(80)).expect("under way"));
    assert!(!lanes.is_stalled(stall, at(999)), "nothing is under way");
}

#[test]
fn a_unit_that_others_overtake_is_being_worked_at() {
    let start = Instant::now();
    let stall = Duration::from_secs(5);
    let at = |seconds| start + Duration::from_secs(seconds);
    // Kind of the other session's units, and the second in which the first unit counts as stalled.
    let rows = [("decoded", false, 7), ("of a session that has failed", true, 6)];
    for (name, has_failed, lost_at) in rows {
        let mut lanes = opened([1, 2]);
        (1..3).for_each(|session| lanes.push(session, unit(0, true, 9)).expect("taken"));
        while sent(&mut lanes, start).is_some() {}
        if has_failed {
            let fault = JobFault::Other { kind: ErrorKind::Exhausted, message: String::new() };
            let failed = WorkerSessionEvent::Failed(fault);
            assert_eq!(lanes.check_event(2, &failed, 9, start), Ok(EventCheck::Wanted));
        }
        let lost = (1..60).find(|&second| {
            lanes.taken(2, at(second)).expect("under way");
            lanes.push(2, unit(1, true, 9)).expect("taken");
            sent(&mut lanes, at(second)).expect("its turn");
            lanes.is_stalled(stall, at(second))
        });
        assert_eq!(lost, Some(lost_at), "{name}");
    }
}

#[test]
fn a_closed_number_is_free_and_its_end_comes_first() {
    let (mut lanes, now) = (opened([1]), Instant::now());
    let other = AccessUnit { codec: Codec::Vp8, ..unit(0, true, 9) };
    let error = lanes.push(1, other).expect_err("another codec");
    assert_eq!(error.to_string(), "access unit of codec vp8, the decoder is for h264");
    lanes.push(1, unit(0, true, 9)).expect("taken");
    lanes.close(1).expect("open");
    for refused in [lanes.push(1, unit(1, true, 9)), lanes.close(1), lanes.close(2)] {
        assert!(matches!(refused, Err(WorkerError::NoSession(_))), "{refused:?}");
    }
    lanes.open(1, spec()).expect("a closed number is free");
    assert!(matches!(lanes.open(1, spec()), Err(WorkerError::SessionInUse(1))));
    lanes.push(1, unit(2, true, 9)).expect("taken");
    assert_eq!(sent(&mut lanes, now), Some((1, 0, false)));
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.next(now), Some(WorkerRequest::CloseSession { session: 1 }));
    assert_eq!(lanes.next(now), None, "until the worker says that it is closed");
    lanes.taken(1, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((1, 2, false)));
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.taken(1, now), Err(WireError::Unexpected("taken")));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u32),
    Push(u32, bool, usize),
    Close(u32),
    Next,
    Taken(u32),
}

fn step() -> impl Strategy<Value = Step> {
    let session = || 0..4_u32;
    prop_oneof![
        session().prop_map(Step::Open),
        (session(), any::<bool>(), 0..SESSION_BYTES_MAX)
            .prop_map(|(session, keyframe, len)| Step::Push(session, keyframe, len)),
        session().prop_map(Step::Close),
        Just(Step::Next),
        Just(Step::Next),
        session().prop_map(Step::Taken),
        session().prop_map(Step::Taken),
    ]
}

proptest! {
    #[test]
    fn whatever_is_taken_is_sent_in_its_order(steps in prop::collection::vec(step(), 0..120)) {
        let (mut lanes, now) = (SessionQueues::default(), Instant::now());
        let (mut given, mut got) = (BTreeMap::new(), BTreeMap::new());
        let note = |request: WorkerRequest, got: &mut BTreeMap<u32, Vec<i64>>| {
            if let WorkerRequest::AccessUnit { session, pts, .. } = request {
                got.entry(session).or_default().push(pts.as_millis());
            }
        };
        for (at, step) in (0_i64..).zip(steps) {
            match step {
                Step::Open(session) => drop(lanes.open(session, spec())),
                Step::Push(session, keyframe, len) => {
                    if lanes.push(session, unit(at, keyframe, len)).is_ok() {
                        given.entry(session).or_insert_with(Vec::new).push(at);
                    }
                }
                Step::Close(session) => drop(lanes.close(session)),
                Step::Next => lanes.next(now).into_iter().for_each(|it| note(it, &mut got)),
                Step::Taken(session) => drop(lanes.taken(session, now)),
            }
            prop_assert!(lanes.bytes <= BACKLOG_BYTES_MAX + 4 * SESSION_BYTES_MAX);
            let bytes: usize = lanes.lanes.values().map(|lane| lane.bytes).sum();
            prop_assert_eq!(lanes.bytes, bytes);
        }
        // The worker then finishes everything.
        for _ in 0..500 {
            while let Some(request) = lanes.next(now) {
                note(request, &mut got);
            }
            (0..4).for_each(|session| drop(lanes.taken(session, now)));
        }
        prop_assert_eq!(given, got);
        prop_assert_eq!(lanes.bytes, 0);
        prop_assert!(lanes.lanes.values().all(|lane| lane.open_for.is_some()));
    }
}
