//! Tests of the store alone: each state of a key, and the limits.

use std::{path::Path, thread};

use media::RunId;
use redb::WriteTransaction;
use timeline::{Event, NewEvent};

use super::*;

const NOW: WallTime = WallTime { epoch_ms: 1_700_000_000_000 };
const DAY: i64 = KEPT.as_millis() as i64;
const ID: RequestId = RequestId::from_bytes([7; 8]);

fn open(dir: &Path, now: WallTime) -> Arc<IdempotencyStore> {
    let ledger = MetaStore::open(&dir.join("ledger")).expect("opens");
    // The system's clock is ahead of all times here, so that the simulated time stands still.
    let clock = RetentionClock::starting(now, None);
    IdempotencyStore::open(ledger, clock, Quota::new(Default::default(), None)).expect("opens")
}

fn open_log(dir: &Path) -> Timeline {
    Timeline::open(&dir.join("log"), timeline::TimelineOptions::default()).expect("opened").0
}

/// Event by which a request shows an effect in its run.
fn failed(id: RequestId) -> NewEvent {
    let failed = timeline::RunFailed { request_id: Some(id), reason: "x".to_owned() };
    NewEvent { run: RunId::from_bytes([1; 16]), event: Event::RunFailed(failed) }
}

fn past(id: RequestId, after: u64) -> Interrupted {
    Interrupted { fingerprint: None, request_id: id.to_string(), after: Seq(after) }
}

fn scope(key: &str) -> KeyScope {
    KeyScope::new(&Principal::named("alice"), "POST /v1/runs", key)
}

fn later(ms: i64) -> WallTime {
    WallTime { epoch_ms: NOW.epoch_ms + ms }
}

fn moment(at: WallTime) -> DatedInstant {
    DatedInstant { dated: at, counted: at }
}

fn begin(keys: &Arc<IdempotencyStore>, key: &str, at: WallTime) -> KeyLookup {
    let body = BodyDigest::of(&[b"body"]);
    keys.begin(scope(key), Some(body), ID, Seq(5), moment(at)).expect("readable")
}

fn is_left(keys: &IdempotencyStore, scope: &KeyScope) -> bool {
    records::find(&keys.ledger, scope).expect("readable").is_some()
}

fn fresh(begun: KeyLookup) -> KeyedRequest {
    match begun {
        KeyLookup::Fresh(attempt) => attempt,
        _ => panic!("the key is known"),
    }
}

fn answer(bytes: usize) -> StoredResponse {
    let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    StoredResponse { status: 200, headers, body: vec![b'x'; bytes] }
}

fn name(begun: &KeyLookup) -> &'static str {
    match begun {
        KeyLookup::Fresh(_) => "fresh",
        KeyLookup::Answered(..) => "answered",
        KeyLookup::Interrupted(..) => "interrupted",
        KeyLookup::UnderWay => "under way",
        KeyLookup::Full { .. } => "full",
    }
}

#[test]
fn a_key_goes_from_fresh_to_answered_and_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let attempt = fresh(begin(&keys, "a", NOW));
    assert_eq!(name(&begin(&keys, "a", NOW)), "under way");
    drop(attempt);
    let KeyLookup::Interrupted(attempt, past) = begin(&keys, "a", later(1)) else {
        panic!("begun")
    };
    assert_eq!((past.request_id, past.after), (ID.to_string(), Seq(5)));
    attempt.answered(BodyDigest::of(&[b"body"]), answer(3)).expect("written");
    drop(attempt);
    drop(keys);
    let keys = open(dir.path(), NOW);
    let KeyLookup::Answered(body, found) = begin(&keys, "a", later(2)) else { panic!("answered") };
    assert_eq!((body, found), (BodyDigest::of(&[b"body"]), answer(3)));
    // A look-up that finds a response leaves no key in use.
    assert_eq!(name(&begin(&keys, "a", later(DAY + 1))), "answered");
    assert_eq!(name(&begin(&keys, "a", later(DAY + 2))), "fresh");
    let refused = fresh(begin(&keys, "b", NOW));
    refused.refused().expect("written");
    drop(refused);
    assert_eq!(name(&begin(&keys, "b", NOW)), "fresh");
    drop(keys);
    let keys = open(dir.path(), later(3 * DAY));
    assert!(!is_left(&keys, &scope("a")), "what is over goes at start");
}

#[test]
fn a_full_table_keeps_what_it_has_and_refuses_new_keys() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let size = BYTES_MAX as usize / 4;
    for at in 0..4 {
        let attempt = fresh(begin(&keys, &format!("key-{at}"), later(at)));
        attempt.answered(BodyDigest::of(&[b"body"]), answer(size)).expect("written");
    }
    let KeyLookup::Full { frees_in } = begin(&keys, "new", later(9)) else { panic!("full") };
    assert_eq!(frees_in, KEPT - Duration::from_millis(9), "when the first is over");
    for at in 0..4 {
        assert_eq!(name(&begin(&keys, &format!("key-{at}"), later(9))), "answered", "{at}");
    }
    let bobs = KeyScope::new(&Principal::named("bob"), "POST /v1/runs", "new");
    let begun = keys.begin(bobs, None, ID, Seq(5), moment(later(9))).expect("readable");
    assert_eq!(name(&begun), "fresh");
    assert_eq!(name(&begin(&keys, "new", later(DAY + 1))), "fresh", "the first is over");
}

#[test]
fn so_many_records_are_as_full() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let owner = Principal::named("alice");
    let put = |change: &WriteTransaction, at: usize| {
        let scope = KeyScope::new(&owner, "POST /v1/runs", &at.to_string());
        let state = KeyState::Answered(BodyDigest::of(&[]), answer(1));
        records::put(change, &scope, later(at as i64), &state)
    };
    let fill = |change: &WriteTransaction| (1..RECORDS_MAX).try_for_each(|at| put(change, at));
    keys.ledger.write(fill).expect("written");
    let keys = &keys;
    let fresh = thread::scope(|threads| {
        let begin = |at: usize| {
            let begin = move || name(&begin(keys, &format!("last-{at}"), later(1)));
            let named = thread::Builder::new().name("begin".into());
            named.spawn_scoped(threads, begin).expect("a thread")
        };
        let begun: Vec<_> = (0..8).map(begin).collect();
        let begun = begun.into_iter().map(|thread| thread.join().expect("no panic"));
        begun.filter(|begun| *begun == "fresh").count()
    });
    assert_eq!(fresh, 1);
    assert_eq!(name(&begin(keys, "new", later(1))), "full");
    assert_eq!(name(&begin(keys, "1", later(1))), "answered");
}

#[test]
fn what_was_cut_off_and_did_nothing_makes_room() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(dir.path());
    let keys = open(dir.path(), NOW);
    let owner = Principal::named("alice");
    let id = |at: usize| RequestId::from_bytes((at as u64).to_le_bytes());
    let put = |change: &WriteTransaction, at: usize| {
        let begun = KeyState::Begun(past(id(at), 0));
        records::put(change, &scope(&at.to_string()), later(at as i64), &begun)
    };
    keys.ledger.write(|change| (0..40).try_for_each(|at| put(change, at))).expect("written");
    // All requests but the first and the last had an effect, and the last is in progress.
    log.append_wait((1..39).map(|at| failed(id(at))).collect()).expect("durable");
    let KeyLookup::Interrupted(under_way, _) = begin(&keys, "39", later(40)) else {
        panic!("begun")
    };
    assert!(keys.make_room(&owner, &log).expect("readable"));
    let is_left = |key: &str| is_left(&keys, &scope(key));
    assert!(!is_left("0"));
    assert!((1..40).all(|at| is_left(&at.to_string())));
    drop(under_way);
    assert!(!keys.make_room(&owner, &log).expect("readable"), "it was looked a moment ago");
    assert!(is_left("39"));
}

#[test]
fn a_look_back_over_the_log_ends_at_its_bound() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(dir.path());
    let id = |at: u64| RequestId::from_bytes(at.to_le_bytes());
    // More events than a step, so that the search crosses a step.
    let events = STEP as u64 + 10;
    log.append_wait((1..=events).map(|at| failed(id(at))).collect()).expect("durable");
    let begun = [(900_000, 0), (5, 0), (900_001, events - 20), (events - 3, events - 20)];
    let idle = |reads| {
        let begun = begun.map(|(at, after)| (at, past(id(at), after))).to_vec();
        let idle = attempt::idle(begun, &log, reads).expect("readable");
        idle.into_iter().map(|(at, _)| at).collect::<Vec<_>>()
    };
    assert_eq!(idle(usize::MAX), [900_000, 900_001]);
    assert_eq!(idle(events as usize), [900_000, 900_001]);
    assert_eq!(idle(20), [900_001], "the older ones may have done something");
    assert_eq!(idle(19), [0; 0]);
    let none = attempt::idle(Vec::<((), Interrupted)>::new(), &log, 1).expect("readable");
    assert!(none.is_empty());
}

#[test]
fn what_is_over_is_forgotten_while_running() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let rows = EXPIRED_AT_ONCE + 5;
    let bobs = KeyScope::new(&Principal::named("bob"), "POST /v1/runs", "1");
    keys.ledger
        .write(|change| {
            let state = KeyState::Answered(BodyDigest::of(&[]), answer(1));
            records::put(change, &bobs, NOW, &state)?;
            (0..rows).try_for_each(|at| records::put(change, &scope(&at.to_string()), NOW, &state))
        })
        .expect("written");
    let attempt = fresh(begin(&keys, "0", later(DAY + 1)));
    drop(fresh(begin(&keys, "late", later(10))));
    keys.expire(later(DAY + 2)).expect("written");
    let has = |key| is_left(&keys, &scope(key));
    assert_eq!(["0", "1", "1004", "late"].map(has), [true, false, false, true]);
    assert!(!is_left(&keys, &bobs), "of every owner");
    drop(attempt);
    keys.expire(later(DAY + 20)).expect("written");
    assert_eq!(["0", "late"].map(has), [true, false]);
}

#[test]
fn a_trace_is_found_across_gaps_and_ends_at_its_bound() {
    let dir = tempfile::tempdir().expect("a directory");
    let log = open_log(dir.path());
    let run = |at: usize| RunId::from_bytes((at as u128).to_le_bytes());
    let id = |at: usize| RequestId::from_bytes((at as u64).to_le_bytes());
    let created = |at: usize| NewEvent {
        run: run(at),
        event: Event::RunCreated(timeline::RunCreated {
            request_id: id(at),
            mode: "balanced".to_owned(),
            model: None,
            principal_key: "alice".to_owned(),
            tenant_id: None,
        }),
    };
    log.append_wait((1..=9).map(created).collect()).expect("durable");
    let body = || timeline::JsonText::parse("{}").expect("JSON");
    let started = Event::IngestStarted(timeline::IngestStarted {
        request_id: id(20),
        job_id: media::JobId::from_bytes([8; 16]),
        ingest: body(),
    });
    let received = Event::IngestReceived(timeline::IngestReceived {
        request_id: id(21),
        ingest: body(),
        decoded_frames: Some(3),
        source_uri: None,
        sampling_policy: None,
        sample_fps: None,
    });
    let of_a_job = [started, received].map(|event| NewEvent { run: run(9), event });
    log.append_wait(of_a_job.into()).expect("durable");
    let past = |at, after| past(id(at), after);
    let rows = [
        (past(7, 0), None, 7, RecoveredOutcome::Run(run(7))),
        (past(7, 0), None, 6, RecoveredOutcome::Unknown),
        (past(7, 7), None, 9, RecoveredOutcome::Nothing),
        (past(7, 0), Some(run(7)), 1, RecoveredOutcome::Run(run(7))),
        (past(7, 0), Some(run(8)), 1, RecoveredOutcome::Nothing),
        (past(77, 0), None, 10, RecoveredOutcome::Nothing),
        (past(7, 900), None, 9, RecoveredOutcome::Nothing),
        // A reasoning is repeated if it recorded only its start.
        (past(20, 0), Some(run(9)), 9, RecoveredOutcome::Nothing),
        (past(21, 0), Some(run(9)), 9, RecoveredOutcome::Run(run(9))),
    ];
    for (past, about, reads, expected) in rows {
        let found = past.trace(&log, about, reads).expect("readable");
        assert_eq!(found, expected, "{past:?} {about:?} {reads}");
    }
}

#[test]
fn another_division_of_the_same_bytes_is_another_body() {
    assert_ne!(BodyDigest::of(&[b"ab", b"c"]), BodyDigest::of(&[b"a", b"bc"]));
}

#[test]
fn what_is_dated_while_a_long_silence_is_not_believed_lasts_past_the_next_start() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let now = DatedInstant { dated: later(10 * DAY), counted: later(8 * DAY) };
    let begun = keys.begin(scope("a"), None, ID, Seq(5), now).expect("readable");
    fresh(begun).answered(BodyDigest::of(&[b"body"]), answer(3)).expect("written");
    drop(keys);
    let keys = open(dir.path(), later(10 * DAY + 1));
    assert_eq!(name(&begin(&keys, "a", later(10 * DAY + 1))), "answered");
}
