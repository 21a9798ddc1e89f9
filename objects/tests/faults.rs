//! Tests of faults, by a table: the result of each operation for each fault, within its limit.
#![allow(missing_docs)]

mod support;

use std::{
    thread,
    time::{Duration, Instant},
};

use media::BlobHash;
use s3_server::{Fault, SECRET_KEY};
use support::{Size as _, World, upload, whole};
use timeline::{Remote, RemoteError};

/// Limit of the uploads in these tests.
const LIMIT: Duration = Duration::from_secs(4);
/// Tolerance over a limit on a busy machine.
const SLACK: Duration = Duration::from_secs(6);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    Fault(Fault),
    /// The server has ended.
    Gone,
    /// The client has a wrong secret.
    WrongSecret,
}

/// Results of: upload, size of a file, fetch, remove.
type Answers = [&'static str; 4];

/// Fault, the results of a server without a claim, and those after a claim and an upload.
const TABLE: [(Way, Answers, Answers); 9] = [
    (Way::Fault(Fault::None), ["ok", "none", "none", "ok"], ["ok", "some", "some", "ok"]),
    (Way::Fault(Fault::NoConditions), ["ok", "none", "none", "ok"], ["ok", "some", "some", "ok"]),
    (Way::Fault(Fault::Closed), ["unreachable"; 4], ["unreachable"; 4]),
    (Way::Gone, ["unreachable"; 4], ["unreachable"; 4]),
    (Way::Fault(Fault::Silent), ["slow"; 4], ["slow"; 4]),
    (Way::Fault(Fault::WritesDenied), ["denied"; 4], ["denied", "some", "some", "denied"]),
    (Way::Fault(Fault::SlowDown), ["failed"; 4], ["failed"; 4]),
    // The answer to a HEAD request has no body, so that it names no bucket.
    (
        Way::Fault(Fault::NoBucket),
        ["no_bucket"; 4],
        ["no_bucket", "none", "no_bucket", "no_bucket"],
    ),
    // After a successful check, the next upload is not read back.
    (Way::Fault(Fault::KeepsNothing), ["not_kept"; 4], ["ok", "some", "some", "ok"]),
];

/// Two further faults, for a server without a claim.
const AT_START: [(Way, Answers); 2] =
    [(Way::WrongSecret, ["denied"; 4]), (Way::Fault(Fault::Talks), ["denied"; 4])];

fn name<T>(outcome: Result<Option<T>, RemoteError>) -> &'static str {
    match outcome {
        Ok(Some(_)) => "some",
        Ok(None) => "none",
        Err(error) => {
            assert!(!error.detail.is_empty() && error.detail.len() <= 200, "{error}");
            error.fault.as_str()
        }
    }
}

fn done(outcome: Result<(), RemoteError>) -> &'static str {
    match outcome {
        Ok(()) => "ok",
        Err(error) => name::<()>(Err(error)),
    }
}

/// Makes the four calls concurrently, and asserts that each ends within its limit.
fn answers(world: &World, folder: &dyn Remote, stored: &BlobHash) -> Answers {
    let new = world.file(2, 30_000);
    let absent = BlobHash::from_bytes([7; 32]);
    let timed = |bound: Duration, call: &dyn Fn() -> &'static str| {
        let started = Instant::now();
        let answer = call();
        let took = started.elapsed();
        assert!(took < bound + SLACK, "{answer} after {took:?}");
        answer
    };
    let bound = objects::ANSWER_TIME;
    thread::scope(|scope| {
        let uploading = scope.spawn(|| {
            let limited = || folder.upload(std::slice::from_ref(&new), LIMIT).remove(0);
            timed(LIMIT, &|| done(limited()))
        });
        let sizing = scope.spawn(|| timed(bound, &|| name(folder.size(stored))));
        let opening = scope.spawn(|| timed(bound, &|| name(whole(folder, stored))));
        let removing = scope.spawn(|| timed(bound, &|| done(folder.remove(&[absent]))));
        [uploading, sizing, opening, removing].map(|call| call.join().expect("an answer"))
    })
}

/// Results in a new world, where a file was stored before if `has_claim`.
fn played(way: Way, has_claim: bool) -> Answers {
    let mut world = World::new();
    let secret = if way == Way::WrongSecret { "another" } else { SECRET_KEY };
    let folder = world.client_with("srv-1", secret).folder("stills");
    let stored = world.file(1, 10_000);
    if has_claim {
        upload(&*folder, &stored).expect("stored");
    }
    match way {
        Way::Fault(fault) => world.server.set(fault),
        Way::Gone => world.server.stop(),
        Way::WrongSecret => {}
    }
    answers(&world, &*folder, &stored.0)
}

#[test]
fn each_operation_answers_each_fault_within_its_bound() {
    thread::scope(|scope| {
        for (way, first, then) in TABLE {
            scope.spawn(move || assert_eq!(played(way, false), first, "{way:?} at the start"));
            scope.spawn(move || assert_eq!(played(way, true), then, "{way:?} later"));
        }
        for (way, first) in AT_START {
            scope.spawn(move || assert_eq!(played(way, false), first, "{way:?} at the start"));
        }
    });
}
