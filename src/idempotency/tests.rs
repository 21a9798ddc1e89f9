//! The records alone: what a key is worth in each of its states, and how many are kept.

use std::path::Path;

use super::*;

const NOW: WallTime = WallTime { epoch_ms: 1_700_000_000_000 };

fn open(dir: &Path, now: WallTime) -> Arc<Idempotency> {
    Idempotency::open(Ledger::open(&dir.join("ledger")).expect("opens"), now).expect("opens")
}

fn scope(key: &str) -> Scope {
    Scope::new(&Principal::named("alice"), "POST /v1/runs", key)
}

fn later(ms: i64) -> WallTime {
    WallTime { epoch_ms: NOW.epoch_ms + ms }
}

fn begin(keys: &Arc<Idempotency>, key: &str, at: WallTime) -> Begun {
    let (body, id) = (Fingerprint::of(&[b"body"]), RequestId::from_bytes([7; 8]));
    keys.begin(scope(key), Some(body), id, Seq(5), at).expect("readable")
}

fn fresh(begun: Begun) -> Attempt {
    match begun {
        Begun::Fresh(attempt) => attempt,
        _ => panic!("the key is known"),
    }
}

fn answer(bytes: usize) -> Answer {
    let headers = vec![("content-type".to_owned(), "text/plain".to_owned())];
    Answer { status: 200, headers, body: vec![b'x'; bytes] }
}

fn name(begun: &Begun) -> &'static str {
    match begun {
        Begun::Fresh(_) => "fresh",
        Begun::Answered(..) => "answered",
        Begun::Interrupted(..) => "interrupted",
        Begun::UnderWay => "under way",
    }
}

#[test]
fn a_key_goes_from_fresh_to_answered_and_over() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let attempt = fresh(begin(&keys, "a", NOW));
    assert_eq!(name(&begin(&keys, "a", NOW)), "under way");
    drop(attempt);
    let Begun::Interrupted(attempt, past) = begin(&keys, "a", later(1)) else { panic!("begun") };
    let id = RequestId::from_bytes([7; 8]).to_string();
    assert_eq!((past.request_id, past.after), (id, Seq(5)));
    attempt.answered(Fingerprint::of(&[b"body"]), answer(3)).expect("written");
    drop(attempt);
    drop(keys);
    let keys = open(dir.path(), NOW);
    let Begun::Answered(body, found) = begin(&keys, "a", later(2)) else { panic!("answered") };
    assert_eq!((body, found), (Fingerprint::of(&[b"body"]), answer(3)));
    // Whoever finds an answer leaves nothing under way.
    let day = KEPT.as_millis() as i64;
    assert_eq!(name(&begin(&keys, "a", later(day + 1))), "answered");
    assert_eq!(name(&begin(&keys, "a", later(day + 2))), "fresh");
    let refused = fresh(begin(&keys, "b", NOW));
    refused.refused().expect("written");
    drop(refused);
    assert_eq!(name(&begin(&keys, "b", NOW)), "fresh");
    drop(keys);
    let keys = open(dir.path(), later(3 * day));
    let left = keys.ledger.read(|view| records::find(view, &scope("a"))).expect("readable");
    assert!(left.is_none(), "what is over goes at start");
}

#[test]
fn the_oldest_go_when_there_are_too_many_bytes() {
    let dir = tempfile::tempdir().expect("a directory");
    let keys = open(dir.path(), NOW);
    let size = BYTES_MAX as usize / 4;
    for at in 0..6 {
        let attempt = fresh(begin(&keys, &format!("key-{at}"), later(at)));
        attempt.answered(Fingerprint::of(&[b"body"]), answer(size)).expect("written");
    }
    let found: Vec<_> =
        (0..6).map(|at| name(&begin(&keys, &format!("key-{at}"), later(9)))).collect();
    assert_eq!(found, ["fresh", "fresh", "answered", "answered", "answered", "answered"]);
}

#[test]
fn scopes_and_bodies_differ_in_every_part() {
    let alice = Principal::named("alice");
    let scopes = [
        Scope::new(&alice, "POST /a", "k"),
        Scope::new(&alice, "POST /ak", ""),
        Scope::new(&alice, "POST /a", "l"),
        Scope::new(&Principal::named("bob"), "POST /a", "k"),
    ];
    let distinct: HashSet<_> = scopes.iter().collect();
    assert_eq!(distinct.len(), scopes.len());
    assert_ne!(Fingerprint::of(&[b"ab", b"c"]), Fingerprint::of(&[b"a", b"bc"]));
}
