//! Compaction: purged runs are removed, everything else is unchanged, whenever the power is cut.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    ops::ControlFlow,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use media::{RunId, Seq, WallTime};
use tempfile::TempDir;
use timeline::{
    CompactionStats, EventKind, StoredEvent, Timeline, TimelineError, TimelineOptions, cat, repair,
    verify,
};

use crate::{
    disk::SimDisk,
    support::{deleted, events, flip, found, journal_files, new_log, run, small},
};
use fastrand::Rng;

pub fn open(disk: &SimDisk) -> Result<Timeline, TimelineError> {
    disk.open_log(small()).map(|(log, _)| log)
}

pub fn purge(log: &Timeline, runs: &[u8]) -> Result<CompactionStats, TimelineError> {
    let purged = runs.iter().map(|number| run(*number)).collect();
    log.compact(&purged, &mut |_| ControlFlow::Continue(()))
}

fn without(events: &[StoredEvent], runs: &[u8]) -> Vec<StoredEvent> {
    let purged: HashSet<RunId> = runs.iter().map(|number| run(*number)).collect();
    events.iter().filter(|event| !purged.contains(&event.head.run)).cloned().collect()
}

/// Appends events of five runs over about a dozen files.
fn fill(log: &Timeline) {
    for number in 0..150u32 {
        let text = format!("{number} {}", "x".repeat(number as usize * 37 % 300));
        log.append_wait(vec![found((number % 5) as u8, &text)]).unwrap();
    }
}

#[test]
fn a_purged_run_is_gone_and_every_other_event_is_as_it_was() {
    let (dir, log) = new_log();
    fill(&log);
    let before = events(&log);
    let (memory, bytes) = (log.index_bytes(), log.run_bytes(run(3)));
    let done = purge(&log, &[1, 3]).unwrap();
    assert_eq!(done.events_removed, 60);
    assert!(done.files_after < done.files_before && !done.stopped, "{done:?}");
    let expected = without(&before, &[1, 3]);
    assert!(log.index_bytes() < memory && bytes > 0);
    assert_eq!((log.run_bytes(run(1)), log.run_bytes(run(3))), (0, 0));
    let check = |log: &Timeline| {
        assert_eq!(events(log), expected);
        assert_eq!(log.last_at(), expected.last().map(|event| event.head.at));
        assert_eq!(log.read(run(1), Seq(0), 99, None).unwrap(), []);
        assert_eq!(log.read(run(2), Seq(0), 99, None).unwrap().len(), 30);
        assert_eq!(log.get(Seq(2)).unwrap(), None);
        assert_eq!(log.latest(run(3), EventKind::Vlm), None);
    };
    check(&log);
    assert_eq!(log.head(), Seq(150), "the purged numbers are not given again");
    assert_eq!(log.append_wait(vec![found(1, "again")]).unwrap()[0].seq, Seq(151));
    assert_eq!(purge(&log, &[1]).unwrap().events_removed, 1);
    check(&log);
    drop(log);
    let report = verify(dir.path()).unwrap();
    assert!(report.problems.is_empty() && report.footers_missing == 0, "{report:?}");
    assert_eq!(report.events, 90);
    let mut printed = Vec::new();
    cat(dir.path(), |event| {
        printed.push(event);
        ControlFlow::Continue(())
    })
    .unwrap();
    assert_eq!(printed, expected);
    let (log, recovery) = Timeline::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.events, recovery.footers_rebuilt, recovery.torn), (90, 0, None));
    check(&log);
    assert_eq!(log.append_wait(vec![found(1, "later")]).unwrap()[0].seq, Seq(152));
}

#[test]
fn footers_of_compacted_files_are_made_again_from_their_events() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    fill(&log);
    purge(&log, &[0, 1, 2]).unwrap();
    let expected = events(&log);
    drop(log);
    let sealed = disk.names();
    for name in &sealed[..sealed.len() - 1] {
        let mut bytes = disk.bytes(name);
        let last = bytes.len() - 60;
        bytes[last] ^= 1;
        disk.set_bytes(name, bytes);
    }
    let (log, recovery) = disk.open_log(small()).unwrap();
    assert_eq!(recovery.footers_rebuilt, sealed.len() as u64 - 1);
    assert_eq!(events(&log), expected);
}

#[test]
fn a_log_of_purged_runs_only_is_empty_and_goes_on_behind_them() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    fill(&log);
    purge(&log, &[0, 1, 2, 3, 4]).unwrap();
    assert_eq!((events(&log), log.head(), log.last_at()), (Vec::new(), Seq(150), None));
    let at = log.append_wait(vec![found(1, "one")]).unwrap()[0];
    drop(log);
    let log = open(&disk).unwrap();
    assert_eq!(events(&log).len(), 1);
    let next = log.append_wait(vec![found(1, "two")]).unwrap()[0];
    assert_eq!((at.seq, next.seq), (Seq(151), Seq(152)));
    assert!(next.at >= at.at);
}

#[test]
fn many_small_files_become_one_without_a_purge() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    for number in 0..30 {
        log.append_wait(vec![found(1, &format!("kept {number}")), found(2, "gone")]).unwrap();
        purge(&log, &[2]).unwrap();
    }
    assert!(disk.names().len() < 12, "{:?}", disk.names());
    assert_eq!(events(&log).len(), 30);
    assert_eq!(events(&open(&disk.after_kill()).unwrap()).len(), 30);
}

#[test]
fn a_deleted_run_is_purged_by_the_time_of_its_deletion() {
    let (_dir, log) = new_log();
    log.append_wait(vec![found(1, "a"), found(2, "b")]).unwrap();
    let at = log.append_wait(vec![deleted(1)]).unwrap()[0].at;
    assert_eq!(log.deleted_before(at), HashSet::new());
    let later = WallTime { epoch_ms: at.epoch_ms + 1 };
    assert_eq!(log.deleted_before(later), HashSet::from([run(1)]));
}

#[test]
fn a_stopped_compaction_changes_nothing_more_and_can_be_taken_up() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    // Files with many batches each, so that `Break` comes in the middle of one.
    let text = "x".repeat(200_000);
    for number in 0..12 {
        log.append_wait(vec![found(number % 2, &text), found(2, "small")]).unwrap();
    }
    let before = events(&log);
    let purged = HashSet::from([run(1)]);
    let names = disk.names();
    let big = TimelineOptions { file_bytes: 1 << 30, ..small() };
    drop(log);
    let (log, _) = disk.open_log(big).unwrap();
    let done = log.compact(&purged, &mut |_| ControlFlow::Break(())).unwrap();
    assert!(done.stopped && done.files_after == 0, "{done:?}");
    assert_eq!((events(&log), disk.names().len()), (before.clone(), names.len() + 1));
    purge(&log, &[1]).unwrap();
    assert_eq!(events(&log), without(&before, &[1]));
}

#[test]
fn a_damaged_file_stays_and_no_other_run_waits_for_it() {
    let disk = SimDisk::default();
    let log = open(&disk).unwrap();
    fill(&log);
    (0..40).for_each(|_| drop(log.append_wait(vec![found(7, &"y".repeat(300))]).unwrap()));
    log.close();
    let name = disk.names().remove(2);
    let mut bytes = disk.bytes(&name);
    bytes[600] ^= 1;
    disk.set_bytes(&name, bytes.clone());
    let log = open(&disk).unwrap();
    let error = purge(&log, &[1, 7]).unwrap_err();
    assert!(error.to_string().contains(&name), "{error}");
    assert_eq!(disk.bytes(&name), bytes);
    assert!(log.run_bytes(run(1)) > 0 && log.run_bytes(run(7)) == 0);
}

#[test]
fn repair_cuts_a_compacted_file_at_its_damage() {
    let dir = TempDir::new().unwrap();
    let options = TimelineOptions { file_bytes: 1 << 20, ..small() };
    let (log, _) = Timeline::open(dir.path(), options.clone()).unwrap();
    for number in 0..60 {
        log.append_wait(vec![found(number % 5, &"x".repeat(40_000))]).unwrap();
    }
    purge(&log, &[1, 3]).unwrap();
    let before = events(&log);
    drop(log);
    flip(&journal_files(dir.path())[0], 500_000);
    let report = repair(dir.path()).unwrap();
    assert!(report.damage.is_some());
    let (log, recovery) = Timeline::open(dir.path(), options).unwrap();
    let left = events(&log);
    assert_eq!(recovery.events, report.events);
    assert_eq!(left, before[..left.len()]);
    assert!((5..20).contains(&left.len()), "the batches before the damage: {}", left.len());
    log.append_wait(vec![found(1, "on")]).unwrap();
    drop(log);
    assert!(verify(dir.path()).unwrap().problems.is_empty());
}

/// Checks the events after a crash during a compaction: all that are not purged, none twice and none new.
fn check_survivors(log: &Timeline, before: &[StoredEvent], purged: &[u8], context: &str) {
    let left = events(log);
    let seqs: BTreeSet<Seq> = left.iter().map(|event| event.head.seq).collect();
    assert_eq!(seqs.len(), left.len(), "{context}: an event is served twice");
    let known: BTreeMap<Seq, &StoredEvent> =
        before.iter().map(|event| (event.head.seq, event)).collect();
    for event in &left {
        assert_eq!(known.get(&event.head.seq), Some(&event), "{context}: an event changed");
    }
    for event in without(before, purged) {
        assert!(seqs.contains(&event.head.seq), "{context}: {} is lost", event.head.seq);
    }
}

#[test]
fn the_power_may_go_at_any_step_of_a_compaction() {
    let purged = [1, 3];
    let (mut cuts, mut unfinished) = (0, 0_u64);
    let seeds: u64 = clips::sized(10, 40);
    for operations in 0.. {
        let mut finished = false;
        for seed in 0..seeds {
            let mut random = Rng::with_seed(operations * 1000 + seed);
            let disk = SimDisk::default();
            let log = open(&disk).unwrap();
            fill(&log);
            let before = events(&log);
            disk.cut_power_after(operations);
            finished = purge(&log, &purged).is_ok();
            check_survivors(&log, &before, &purged, "before the reboot");
            drop(log);
            let context = format!("cut after {operations}, seed {seed}");
            let killed = disk.after_kill();
            for mut disk in [disk.after_power_cut(&mut random), killed] {
                // The power is cut again while the log is opened.
                if random.u64(..100) < 30 {
                    disk.cut_power_after(random.u64(..5));
                    drop(open(&disk));
                    disk = disk.after_power_cut(&mut random);
                }
                let log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                check_survivors(&log, &before, &purged, &context);
                unfinished += u64::from(events(&log).len() > 90);
                assert_eq!(log.append_wait(vec![found(2, "on")]).unwrap()[0].seq, Seq(151));
                purge(&log, &purged).unwrap();
                assert_eq!(events(&log).len(), 91, "{context}");
                cuts += 1;
            }
        }
        if finished {
            break;
        }
    }
    // The test is useful only if cuts leave compactions unfinished.
    assert!(unfinished > 2 * seeds, "only {unfinished} of {cuts} cuts left work");
}

#[test]
fn readers_and_the_writer_go_on_beside_a_compaction() {
    let (dir, log) = new_log();
    fill(&log);
    let kept = without(&events(&log), &[1, 3]);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    for expected in &kept {
                        let found = log.get(expected.head.seq).unwrap();
                        assert_eq!(found.as_ref(), Some(expected));
                    }
                    let read = log.read(run(2), Seq(0), 30, None).unwrap();
                    assert!(read.len() >= 30, "{}", read.len());
                    // A purged event is whole or gone.
                    drop(log.get(Seq(2)).unwrap());
                }
            });
        }
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let report = verify(dir.path()).unwrap();
                assert!(report.problems.is_empty(), "{:?}", report.problems);
                let mut last = Seq(0);
                cat(dir.path(), |event| {
                    assert!(event.head.seq > last, "in order and once");
                    last = event.head.seq;
                    ControlFlow::Continue(())
                })
                .unwrap();
                Timeline::open_read_only(dir.path()).unwrap();
            }
        });
        for round in 0..20u8 {
            for number in 0..40 {
                let run = if number % 2 == 0 { 100 + round } else { 4 };
                log.append_wait(vec![found(run, &format!("{number} {}", "y".repeat(90)))]).unwrap();
            }
            purge(&log, &[1, 3, 100 + round]).unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!(events(&log).len(), kept.len() + 20 * 20);
}
