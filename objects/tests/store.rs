//! Tests of transfers in one request and in parts, of keys and limits, and of the read-back check.
#![allow(missing_docs)]

mod support;

use std::time::{Duration, Instant};

use media::BlobHash;
use objects::{ANSWER_TIME, Operation, PART_BYTES, REQUESTS_MAX, UPLOADS_PER_CHECK};
use s3_server::Fault;
use support::{LIMIT, Size as _, World, content, key, soon, upload, whole};
use timeline::RemoteFault;

#[test]
fn a_file_goes_there_and_back_and_a_large_one_in_parts() {
    let world = World::new();
    let stills = world.client("srv-1").folder("stills");
    let part = usize::try_from(PART_BYTES).expect("a size");
    let sizes = [0, 1, 70_000, part, 2 * part + 11];
    let files: Vec<_> = (1..).zip(sizes).map(|(seed, size)| world.file(seed, size)).collect();
    assert_eq!(stills.upload(&files, LIMIT), vec![Ok(()); 5]);
    for ((seed, size), (hash, _)) in (1..).zip(sizes).zip(&files) {
        assert_eq!(stills.size(hash), Ok(Some(size as u64)));
        let back = whole(&*stills, hash).expect("there").expect("whole");
        assert!(back == content(seed, size), "{size} bytes came back as others");
        assert!(world.server.object(&key("stills", hash)).is_some(), "{size} bytes");
    }
    let parts = world.server.seen().iter().filter(|s| s.target.contains("partNumber=")).count();
    assert_eq!((parts, world.server.unfinished()), (3, 0), "of the last alone");
    assert_eq!(world.server.object("cameras/north/00a1/owner").as_deref(), Some(&b"srv-1"[..]));
    // Another folder does not have the files.
    let columns = world.client("srv-1").folder("columns");
    assert_eq!(columns.size(&files[2].0), Ok(None));
    assert!(whole(&*columns, &files[2].0).expect("an answer").is_none());
    assert!(stills.upload(&[], LIMIT).is_empty());
}

#[test]
fn an_upload_in_parts_that_fails_is_aborted() {
    let world = World::new();
    let columns = world.client("srv-1").folder("columns");
    let file = world.file(9, 12 * 1024 * 1024);
    upload(&*columns, &world.file(1, 10)).expect("claimed");
    world.server.set(Fault::NoParts);
    let error = upload(&*columns, &file).expect_err("no parts");
    assert_eq!(
        (error.fault, error.detail.as_str()),
        (RemoteFault::Failed, "InternalError: We failed.")
    );
    soon("aborted", || world.server.unfinished() == 0);
    let aborts = || world.server.seen().iter().filter(|seen| seen.method == "DELETE").count();
    // An upload exceeds its limit while a part is being sent; on a busy machine perhaps before, and then again.
    soon("aborted within a part", || {
        world.server.set(Fault::Delayed(Duration::from_millis(700)));
        let outcomes = columns.upload(std::slice::from_ref(&file), Duration::from_millis(1100));
        assert_eq!(outcomes[0].as_ref().expect_err("over").fault, RemoteFault::Slow);
        world.server.set(Fault::None);
        soon("aborted", || world.server.unfinished() == 0);
        aborts() == 2
    });
    assert_eq!(columns.size(&file.0), Ok(None));
}

#[test]
fn many_are_removed_and_some_of_them_are_not_there() {
    let world = World::new();
    let stills = world.client("srv-1").folder("stills");
    let files: Vec<_> = (1..=20).map(|seed| world.file(seed, 500)).collect();
    assert_eq!(stills.upload(&files, LIMIT), vec![Ok(()); 20]);
    let absent = (0..2500_u32).map(|n| {
        let mut bytes = [1; 32];
        bytes[..4].copy_from_slice(&n.to_be_bytes());
        BlobHash::from_bytes(bytes)
    });
    let mut hashes: Vec<_> = absent.collect();
    hashes.extend(files[..19].iter().map(|(hash, _)| *hash));
    stills.remove(&hashes).expect("removed");
    stills.remove(&[]).expect("nothing to remove");
    let left = vec!["cameras/north/00a1/owner".to_owned(), key("stills", &files[19].0)];
    assert_eq!(world.server.keys(), left);
    let bulk = world.server.seen().iter().filter(|s| s.target.contains("?delete")).count();
    assert_eq!(bulk, 3);
}

#[test]
fn a_read_that_ends_early_or_stands_still_is_an_error() {
    let world = World::new();
    let stills = world.client("srv-1").folder("stills");
    let file = world.file(3, 3_000_000);
    upload(&*stills, &file).expect("stored");
    for (fault, expected) in
        [(Fault::ReadsHang, RemoteFault::Slow), (Fault::ReadsCut, RemoteFault::Unreachable)]
    {
        world.server.set(fault);
        let started = Instant::now();
        let error = whole(&*stills, &file.0).expect_err("half of it");
        assert_eq!(error.fault, expected, "{error}");
        // On a busy machine it takes longer to find out.
        assert!(started.elapsed() < 2 * ANSWER_TIME, "{fault:?}: {:?}", started.elapsed());
    }
    // A read that is cut off once is resumed.
    let gets = || {
        let seen = world.server.seen();
        seen.iter().filter(|seen| seen.target.ends_with(&file.0.to_string())).count()
    };
    let before = gets();
    let content = std::thread::scope(|scope| {
        scope.spawn(|| {
            support::soon("it is asked", || gets() > before);
            world.server.set(Fault::None);
        });
        whole(&*stills, &file.0).expect("whole").expect("there")
    });
    assert!(content == support::content(3, 3_000_000), "other bytes came back");
}

#[test]
fn a_store_that_keeps_nothing_is_found_out() {
    let world = World::new();
    world.server.put("cameras/north/00a1/owner", b"srv-1").expect("claimed");
    let stills = world.client("srv-1").folder("stills");
    let file = world.file(1, 300);
    world.server.set(Fault::KeepsNothing);
    for _ in 0..2 {
        let error = upload(&*stills, &file).expect_err("not kept");
        assert_eq!(error.fault, RemoteFault::NotKept, "{error}");
    }
    world.server.set(Fault::None);
    upload(&*stills, &file).expect("kept");
    // The stored bytes differ from those sent, with the same length.
    world.server.set(Fault::KeepsNothing);
    world.server.put(&key("stills", &file.0), &[0; 300]).expect("stored");
    for _ in 1..UPLOADS_PER_CHECK {
        upload(&*stills, &file).expect("not looked at");
    }
    let error = upload(&*stills, &file).expect_err("not kept");
    assert_eq!(error.fault, RemoteFault::NotKept);
    assert!(error.detail.contains("is another"), "{error}");
}

#[test]
fn a_file_that_is_damaged_here_is_no_fault_of_the_store() {
    let world = World::new();
    let stills = world.client("srv-1").folder("stills");
    let (_, path) = world.file(1, 300);
    let (hash, gone) = world.file(2, 300);
    let error = upload(&*stills, &(hash, path)).expect_err("damaged");
    assert_eq!(error.fault, RemoteFault::Local);
    assert!(error.detail.ends_with("is damaged here"), "{error}");
    std::fs::remove_file(&gone).expect("removed");
    let error = upload(&*stills, &(hash, gone)).expect_err("gone");
    assert!(error.detail.contains("cannot be read here"), "{error}");
}

#[test]
fn requests_take_turns_and_end_within_the_limit() {
    let world = World::new();
    let objects = world.client("srv-1");
    let stills = objects.folder("stills");
    let columns = objects.folder("columns");
    upload(&*stills, &world.file(1, 10)).expect("claimed");
    let files: Vec<_> = (0..60).map(|seed| world.file(seed, 2000)).collect();
    world.server.set(Fault::Delayed(Duration::from_millis(100)));
    std::thread::scope(|scope| {
        for folder in [&stills, &columns] {
            scope.spawn(|| assert_eq!(folder.upload(&files, LIMIT), vec![Ok(()); 60]));
        }
    });
    let most = world.server.in_flight_max();
    assert!((REQUESTS_MAX / 2..=REQUESTS_MAX).contains(&most), "{most}");
    world.server.set(Fault::Silent);
    let started = Instant::now();
    let outcomes = stills.upload(&files, Duration::from_secs(1));
    assert!(started.elapsed() < Duration::from_secs(5), "{:?}", started.elapsed());
    let slow = |error: &timeline::RemoteError| error.fault == RemoteFault::Slow;
    assert!(outcomes.iter().all(|outcome| outcome.as_ref().is_err_and(slow)));
    // The permits of the abandoned requests are free again.
    world.server.set(Fault::None);
    assert_eq!(stills.size(&files[0].0), Ok(Some(2000)));
}

#[test]
fn each_call_is_told_of() {
    let world = World::new();
    let stills = world.client("srv-1").folder("stills");
    let file = world.file(1, 10);
    upload(&*stills, &file).expect("stored");
    stills.size(&file.0).expect("a size");
    stills.remove(&[file.0]).expect("removed");
    world.server.set(Fault::WritesDenied);
    upload(&*stills, &file).expect_err("denied");
    let calls = world.calls.lock().expect("calls").clone();
    assert_eq!(
        calls,
        [
            (Operation::Claim, Ok(())),
            (Operation::Upload, Ok(())),
            (Operation::Size, Ok(())),
            // The claim is checked again before a removal.
            (Operation::Claim, Ok(())),
            (Operation::Remove, Ok(())),
            (Operation::Upload, Err(RemoteFault::Denied)),
        ]
    );
}
