//! Turns and refusals, without a worker.

use gate::GateConfig;
use media::Timestamp;
use proptest::prelude::*;

use super::*;

fn spec() -> SessionSpec {
    SessionSpec::new(Codec::H264, GateConfig::default())
}

fn unit(at: i64, keyframe: bool, len: usize) -> AccessUnit {
    let pts = Timestamp::from_millis(at);
    AccessUnit { codec: Codec::H264, pts, keyframe, data: vec![0; len] }
}

/// Session, time and whether a gap is before it, of the next unit that is sent.
fn sent(lanes: &mut Lanes, now: Instant) -> Option<(u32, i64, bool)> {
    loop {
        match lanes.next(now)? {
            Request::AccessUnit { session, pts, follows_gap, .. } => {
                return Some((session, pts.as_millis(), follows_gap));
            }
            Request::OpenSession { .. } => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn one_unit_a_session_is_under_way_and_sessions_take_turns() {
    let (mut lanes, now) = (Lanes::new(8000), Instant::now());
    for session in [1, 2] {
        lanes.open(session, spec()).expect("open");
    }
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
    assert_eq!(lanes.load(1), Some(SessionLoad { units: 2, bytes: 18, refused_units: 0 }));
}

#[test]
fn a_session_over_its_bound_is_refused_up_to_a_keyframe_and_others_are_not() {
    // Units that are taken at first, bytes of each.
    let bounds = [(SESSION_UNITS_MAX, 10), (4, SESSION_BYTES_MAX / 4), (1, 3 * SESSION_BYTES_MAX)];
    for (taken, bytes) in bounds {
        let (mut lanes, now) = (Lanes::new(8000), Instant::now());
        for session in [1, 2] {
            lanes.open(session, spec()).expect("open");
        }
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
        assert_eq!(lanes.load(1).expect("open").refused_units, 2);
        assert_eq!(sent(&mut lanes, now), Some((1, 52, true)), "the worker is told");
        lanes.taken(1, now).expect("under way");
        assert_eq!(sent(&mut lanes, now), Some((1, 53, false)));
    }
}

#[test]
fn all_sessions_together_have_a_bound_that_keeps_none_out() {
    let (mut lanes, now) = (Lanes::new(8000), Instant::now());
    for session in 0..9 {
        lanes.open(session, spec()).expect("open");
    }
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
}

#[test]
fn a_session_that_says_too_much_is_closed_alone() {
    let (mut lanes, now) = (Lanes::new(8000), Instant::now());
    for session in [1, 2] {
        lanes.open(session, spec()).expect("open");
        lanes.push(session, unit(0, true, 9)).expect("taken");
        lanes.push(session, unit(1, false, 9)).expect("taken");
        assert_eq!(sent(&mut lanes, now), Some((session, 0, false)));
    }
    let said = SessionEvent::Damaged { detail: String::new() };
    let look = |lanes: &mut Lanes, session, bytes| {
        lanes.look(session, &said, bytes, now).expect("in good order")
    };
    assert_eq!(look(&mut lanes, 1, 1000), Looked::Wanted);
    let Looked::Cut(fault) = look(&mut lanes, 1, 1) else { panic!("over its share") };
    assert_eq!(fault.kind(), WorkerError::OutputBudget { limit_bytes: 1000 }.kind());
    assert_eq!(look(&mut lanes, 1, 1), Looked::Unwanted);
    assert_eq!(look(&mut lanes, 2, 1000), Looked::Wanted);
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.next(now), Some(Request::CloseSession { session: 1 }));
    lanes.taken(1, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((1, 1, false)), "which costs the worker nothing");
    lanes.taken(1, now).expect("under way");
    lanes.close(1).expect("open still: who opened it closes it");
    lanes.open(1, spec()).expect("a closed number is free");
    assert_eq!(lanes.next(now), Some(Request::CloseSession { session: 1 }));
    lanes.taken(1, now).expect("under way");
    assert!(matches!(lanes.next(now), Some(Request::OpenSession { session: 1, .. })));
    assert_eq!(look(&mut lanes, 1, 1000), Looked::Wanted, "another session has its own share");
}

#[test]
fn a_worker_stalls_when_it_finishes_nothing_and_not_when_sessions_wait_for_it() {
    let start = Instant::now();
    let stall = Duration::from_secs(5);
    let at = |seconds| start + Duration::from_secs(seconds);
    let mut lanes = Lanes::new(8000);
    for session in 0..20 {
        lanes.open(session, spec()).expect("open");
        lanes.push(session, unit(0, true, 9)).expect("taken");
    }
    assert!(!lanes.is_stalled(stall, at(100)), "nothing is under way");
    while sent(&mut lanes, start).is_some() {}
    for session in 0..10 {
        let now = at(2 * u64::from(session) + 2);
        assert!(!lanes.is_stalled(stall, now), "session {session} has waited its turn");
        lanes.taken(session, now).expect("under way");
    }
    assert!(!lanes.is_stalled(stall, at(25)));
    assert!(lanes.is_stalled(stall, at(26)), "nothing was finished since 20");
    for second in 21..80 {
        lanes.push(0, unit(1, true, 9)).expect("taken");
        sent(&mut lanes, at(second)).expect("its turn");
        lanes.taken(0, at(second)).expect("under way");
        let is_lost = second > 60;
        assert_eq!(lanes.is_stalled(stall, at(second)), is_lost, "19 since 0, now {second}");
    }
    (10..20).for_each(|session| lanes.taken(session, at(80)).expect("under way"));
    assert!(!lanes.is_stalled(stall, at(999)), "nothing is under way");
}

#[test]
fn a_loss_that_the_caller_tells_goes_with_the_next_unit() {
    let (mut lanes, now) = (Lanes::new(8000), Instant::now());
    lanes.open(1, spec()).expect("open");
    lanes.push(1, unit(0, true, 9)).expect("taken");
    lanes.lose(1).expect("open");
    lanes.push(1, unit(1, false, 9)).expect("taken: the decoder knows what can be shown");
    assert_eq!(sent(&mut lanes, now), Some((1, 0, false)));
    lanes.taken(1, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((1, 1, true)));
}

#[test]
fn a_closed_number_is_free_and_its_end_comes_first() {
    let (mut lanes, now) = (Lanes::new(8000), Instant::now());
    lanes.open(1, spec()).expect("open");
    lanes.push(1, unit(0, true, 9)).expect("taken");
    lanes.close(1).expect("open");
    assert!(matches!(lanes.push(1, unit(1, true, 9)), Err(WorkerError::NoSession { session: 1 })));
    lanes.open(1, spec()).expect("a closed number is free");
    assert!(matches!(lanes.open(1, spec()), Err(WorkerError::SessionInUse { session: 1 })));
    lanes.push(1, unit(2, true, 9)).expect("taken");
    assert_eq!(sent(&mut lanes, now), Some((1, 0, false)));
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.next(now), Some(Request::CloseSession { session: 1 }));
    assert_eq!(lanes.next(now), None, "until the worker says that it is closed");
    lanes.taken(1, now).expect("under way");
    assert_eq!(sent(&mut lanes, now), Some((1, 2, false)));
    lanes.taken(1, now).expect("under way");
    assert_eq!(lanes.taken(1, now), Err(ProtocolError::Unexpected("taken")));
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Open(u32),
    Push(u32, bool, usize),
    Lose(u32),
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
        session().prop_map(Step::Lose),
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
        let (mut lanes, now) = (Lanes::new(8000), Instant::now());
        let (mut given, mut got) = (BTreeMap::new(), BTreeMap::new());
        let note = |request: Request, got: &mut BTreeMap<u32, Vec<i64>>| {
            if let Request::AccessUnit { session, pts, .. } = request {
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
                Step::Lose(session) => drop(lanes.lose(session)),
                Step::Close(session) => drop(lanes.close(session)),
                Step::Next => lanes.next(now).into_iter().for_each(|it| note(it, &mut got)),
                Step::Taken(session) => drop(lanes.taken(session, now)),
            }
            prop_assert!(lanes.bytes <= BACKLOG_BYTES_MAX + 4 * SESSION_BYTES_MAX);
            let bytes: usize = lanes.lanes.values().map(|lane| lane.load.bytes).sum();
            prop_assert_eq!(lanes.bytes, bytes);
        }
        // A worker that works everything off.
        for _ in 0..500 {
            while let Some(request) = lanes.next(now) {
                note(request, &mut got);
            }
            (0..4).for_each(|session| drop(lanes.taken(session, now)));
        }
        prop_assert_eq!(given, got);
        prop_assert_eq!(lanes.bytes, 0);
        prop_assert!(lanes.lanes.values().all(|lane| lane.is_open));
    }
}
