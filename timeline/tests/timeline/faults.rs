//! Failing and full disks: a clear error, never a torn log, never a retried sync.

use std::sync::{Mutex, mpsc};

use media::{ErrorKind, Seq};
use timeline::{EVENTS_MAX, LogState, Timeline, TimelineError, TimelineOptions};

use crate::{
    disk::{Fault, SimDisk},
    support::{deleted, events, found, new_log, small, texts},
};

fn open(disk: &SimDisk) -> Timeline {
    disk.open_log(small()).unwrap().0
}

#[test]
fn a_failed_sync_poisons_the_log_for_good() {
    // And so does a write that cannot be undone.
    for (fault, told) in [(Fault::Sync, "sync"), (Fault::HalfWrite, "mark")] {
        let disk = SimDisk::default();
        let log = open(&disk);
        log.append_wait(vec![found(1, "before")]).unwrap();
        disk.set_fault(Some(fault));
        let error = log.append_wait(vec![found(1, "lost")]).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{fault:?}: {error}");
        disk.set_fault(None);
        let later = log.append_wait(vec![found(1, "later")]).unwrap_err();
        assert!(matches!(later, TimelineError::Poisoned { .. }), "{fault:?}: {later}");
        let LogState::Poisoned { reason } = log.state() else { panic!("{:?}", log.state()) };
        assert!(reason.contains(told), "{fault:?}: {reason}");
        assert_eq!(texts(&log), ["before"], "{fault:?}");
        // After a failed sync, the operating system still shows the batch.
        if fault == Fault::HalfWrite {
            assert_eq!(texts(&open(&disk.after_kill())), ["before"]);
        }
    }
}

#[test]
fn a_full_disk_refuses_the_batch_and_goes_on_when_there_is_room() {
    for limit in [0, 100, 300, 600, 900, 1024, 1300] {
        let disk = SimDisk::default();
        let log = open(&disk);
        log.append_wait(vec![found(1, "before")]).unwrap();
        let used = 32 + 200;
        disk.set_fault(Some(Fault::Full(used + limit)));
        let mut expected = vec!["before".to_owned()];
        for number in 0..9 {
            let text = format!("{number} {}", "x".repeat(150));
            match log.append_wait(vec![found(1, &text)]) {
                Ok(_) => expected.push(text),
                Err(error) => assert_eq!(error.kind(), ErrorKind::Exhausted, "{limit}: {error}"),
            }
        }
        assert!(expected.len() < 10, "{limit}: the disk never filled up");
        assert_eq!(log.state(), LogState::Writable, "{limit}");
        disk.set_fault(None);
        expected.push("after".to_owned());
        log.append_wait(vec![found(1, "after")]).unwrap();
        assert_eq!(texts(&log), expected, "{limit}");
        assert_eq!(texts(&open(&disk.after_kill())), expected, "{limit}");
    }
}

#[test]
fn what_ends_a_run_has_room_on_a_full_disk() {
    // In the middle of a file, and where another file would begin.
    for (file_bytes, grow_bytes, allocated) in [(1 << 20, 2048, 4096), (3000, 8192, 8192)] {
        let disk = SimDisk::default();
        let options = || TimelineOptions { file_bytes, grow_bytes, spare_bytes: 2000, ..small() };
        let open = |disk: &SimDisk| disk.open_log(options()).unwrap().0;
        let log = open(&disk);
        log.append_wait(vec![found(1, "before")]).unwrap();
        // No file can be created, and none can grow.
        disk.set_fault(Some(Fault::Full(allocated - 1)));
        let mut kept = 1;
        let text = "x".repeat(100);
        while let Ok(appended) = log.append_wait(vec![found(2, &text)]) {
            kept += appended.len();
        }
        let refused = log.append_wait(vec![found(2, &text)]).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Exhausted, "{refused}");
        // Beside a batch without room, and alone.
        let (sender, receiver) = mpsc::sync_channel(2);
        for batch in [vec![found(3, &text)], vec![deleted(3)]] {
            let sender = sender.clone();
            log.append(batch, move |result| sender.send(result.is_ok()).unwrap());
        }
        assert_eq!([receiver.recv().unwrap(), receiver.recv().unwrap()], [false, true]);
        for number in 4..14 {
            log.append_wait(vec![deleted(number)]).unwrap();
        }
        assert_eq!(log.head().0 as usize, kept + 11, "{file_bytes}");
        let error = (14..100).find_map(|number| log.append_wait(vec![deleted(number)]).err());
        assert_eq!(error.map(|error| error.kind()), Some(ErrorKind::Exhausted), "it has an end");
        let head = log.head();
        assert_eq!(events(&open(&disk.after_kill())).len() as u64, head.0);
    }
    let disk = SimDisk::default();
    let log = open(&disk);
    disk.set_fault(Some(Fault::Full(1024)));
    while log.append_wait(vec![found(2, &"x".repeat(100))]).is_ok() {}
    disk.set_fault(None);
    log.append_wait(vec![found(2, "room again"), deleted(2)]).unwrap();
    assert_eq!(log.state(), LogState::Writable);
}

#[test]
fn a_second_opener_is_told_which_directory_is_taken() {
    let (dir, log) = new_log();
    let error = Timeline::open(dir.path(), small()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains(dir.path().to_str().unwrap()), "{error}");
    drop(log);
    Timeline::open(dir.path(), small()).unwrap();
}

#[test]
fn a_full_queue_refuses_and_loses_nothing_it_took() {
    let (_dir, log) = new_log();
    let (release, blocked) = mpsc::sync_channel::<()>(1);
    let blocked = Mutex::new(blocked);
    log.on_publish(Box::new(move |_| {
        // Blocks the writer until the sender is dropped.
        assert!(blocked.lock().unwrap().recv().is_err());
    }));
    let (sender, receiver) = mpsc::sync_channel(32);
    // Four of these, and the one that the writer has, exceed the queue's bytes.
    let batch = || (0..20).map(|_| found(1, &"x".repeat(1 << 20 >> 1))).collect::<Vec<_>>();
    let mut appends = 0;
    loop {
        let sender = sender.clone();
        appends += 1;
        log.append(batch(), move |result| sender.send(result.map(drop)).unwrap());
        match receiver.try_recv() {
            Ok(Err(error)) => {
                assert!(matches!(error, TimelineError::QueueFull { .. }), "{error}");
                assert_eq!(error.kind(), ErrorKind::Exhausted);
                break;
            }
            Ok(Ok(())) => panic!("the writer is blocked"),
            Err(_) => assert!(appends < 20, "the queue takes without end"),
        }
    }
    drop(release);
    for _ in 1..appends {
        receiver.recv().unwrap().unwrap();
    }
    assert_eq!(log.head(), Seq(20 * (appends - 1)));
}

/// Returns a journal file without events: its version, and the numbers of its header.
fn empty_file(version: u32, numbers: &[u64]) -> Vec<u8> {
    let start = [&b"SLJOURN\xff"[..], &version.to_le_bytes()].concat();
    let numbers: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
    let sum = crc32c::crc32c_append(crc32c::crc32c(&start), &numbers);
    [&start[..], &sum.to_le_bytes(), &numbers].concat()
}

#[test]
fn a_log_without_further_numbers_says_so() {
    const BASE: u64 = 1_700_000_000_000;
    let disk = SimDisk::default();
    // A compacted file covers all numbers but the last.
    let name = |first: u64| format!("{first:020}.journal");
    disk.set_bytes(&name(1), empty_file(2, &[1, BASE, EVENTS_MAX, 0]));
    disk.set_bytes(&name(EVENTS_MAX), empty_file(1, &[EVENTS_MAX, BASE]));
    let log = open(&disk);
    let is_full = |batch| {
        let error = log.append_wait(batch).unwrap_err();
        assert_eq!(error.to_string(), "the log is full at its limit of 4294967295 events");
        assert_eq!(error.kind(), ErrorKind::Exhausted);
    };
    is_full(vec![found(1, "last"), found(1, "one more")]);
    assert_eq!(log.append_wait(vec![found(1, "last")]).unwrap()[0].seq, Seq(EVENTS_MAX));
    is_full(vec![found(1, "one more")]);
    assert_eq!((events(&log).len(), log.state()), (1, LogState::Writable));
}

#[test]
fn a_panicking_listener_poisons_instead_of_hanging() {
    let disk = SimDisk::default();
    let log = open(&disk);
    log.on_publish(Box::new(|_| panic!("a listener with a bug")));
    for text in ["first", "second"] {
        let error = log.append_wait(vec![found(1, text)]).unwrap_err();
        assert!(matches!(error, TimelineError::Poisoned { .. }), "{error}");
    }
}

#[test]
fn closing_writes_what_is_queued_and_refuses_the_rest() {
    let disk = SimDisk::default();
    let log = open(&disk);
    for number in 0..50 {
        log.append(vec![found(1, &format!("{number}"))], |result| drop(result.unwrap()));
    }
    log.close();
    assert_eq!(log.state(), LogState::Closed);
    let error = log.append_wait(vec![found(1, "late")]).unwrap_err();
    assert!(matches!(error, TimelineError::Closed), "{error}");
    assert_eq!(texts(&log).len(), 50);
}
