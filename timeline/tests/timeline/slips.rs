//! One failing call at every place: the log reports it, keeps the acknowledged events and shows no others.

use std::collections::BTreeSet;

use media::ErrorKind;
use timeline::{RecoveryReport, Timeline, TimelineError};

use crate::{
    compact::{open, purge},
    disk::{Done, SimDisk, Slip},
    support::{description, events, found, run, small},
};
use fastrand::Rng;

/// EIO, ENOSPC and EINTR.
const ERRORS: [i32; 3] = [5, 28, 4];
const DONE: [Done; 3] = [Done::Nothing, Done::Half, Done::All];
/// Run that is purged.
const PURGED: u8 = 9;
const BATCHES: usize = 14;

/// Returns a batch of run 1 or of the purged run.
fn batch(number: usize) -> (u8, Vec<String>) {
    let (run, length) = if number.is_multiple_of(3) { (PURGED, 2) } else { (1, 1 + number % 3) };
    let padding = "x".repeat(number * 397 % 1500);
    (run, (0..length).map(|place| format!("{number}.{place} {padding}")).collect())
}

/// Outcomes reported to the caller of the batches.
#[derive(Clone, Default)]
struct Told {
    /// Acknowledged and not purged texts, in order.
    kept: Vec<String>,
    /// Texts that may exist or not: their batch had no certain outcome, or they are purged.
    uncertain: BTreeSet<String>,
}

impl Told {
    fn append(&mut self, log: &Timeline, number: usize) {
        let (run, texts) = batch(number);
        let result = log.append_wait(texts.iter().map(|text| found(run, text)).collect());
        match result {
            Ok(appended) => {
                assert_eq!(appended.len(), texts.len());
                if run == PURGED { self.uncertain.extend(texts) } else { self.kept.extend(texts) }
            }
            Err(TimelineError::Poisoned { .. }) => self.uncertain.extend(texts),
            Err(error) => {
                let kinds = [ErrorKind::Exhausted, ErrorKind::Unavailable, ErrorKind::Internal];
                assert!(kinds.contains(&error.kind()), "{:?}: {error}", error.kind());
            }
        }
    }

    /// Checks that all required texts exist, in order, and no forbidden ones.
    fn check(&mut self, log: &Timeline, context: &str) {
        let shown: Vec<String> = events(log).iter().map(description).collect();
        let (kept, rest): (Vec<&String>, Vec<&String>) =
            shown.iter().partition(|text| self.kept.contains(text));
        assert!(
            kept.into_iter().eq(&self.kept),
            "{context}: acknowledged events are lost or moved"
        );
        for text in &rest {
            assert!(
                self.uncertain.contains(*text),
                "{context}: {text:.9} was refused, and is shown"
            );
        }
        for number in 0..BATCHES {
            let (_, texts) = batch(number);
            let there = texts.iter().filter(|text| shown.contains(text)).count();
            assert!([0, texts.len()].contains(&there), "{context}: batch {number} is torn apart");
        }
    }
}

/// Returns a log that was interrupted during a compaction, with its reported outcomes.
fn left_behind() -> (SimDisk, Told) {
    for operations in 0.. {
        let (disk, mut told) = (SimDisk::default(), Told::default());
        let log = open(&disk).unwrap();
        (0..BATCHES / 2).for_each(|number| told.append(&log, number));
        disk.cut_power_after(operations);
        let purged = purge(&log, &[PURGED]);
        assert!(purged.is_err(), "no step of the compaction leaves files behind");
        drop(log);
        let disk = disk.after_power_cut(&mut Rng::with_seed(operations));
        let has_temporary = disk.names().iter().any(|name| name.ends_with(".tmp"));
        let copy = disk.after_power_cut(&mut Rng::with_seed(0));
        if !has_temporary && leftovers(&copy) > 0 {
            return (disk, told);
        }
    }
    unreachable!("the loop has no end")
}

fn leftovers(disk: &SimDisk) -> u64 {
    disk.open_log(small()).map_or(0, |(_, RecoveryReport { leftovers, .. })| leftovers)
}

/// Opens, fills and purges the log with one failing call; returns true if that call was reached.
fn live(disk: &SimDisk, told: &mut Told, slip: Slip, context: &str) -> bool {
    disk.set_slip(Some(slip));
    let log = match open(disk) {
        Ok(log) => log,
        Err(error) => {
            assert_ne!(error.kind(), ErrorKind::DataLoss, "{context}: {error}");
            assert!(disk.set_slip(None).is_none(), "{context}: {error}");
            return true;
        }
    };
    for number in BATCHES / 2..BATCHES {
        told.append(&log, number);
        if number == BATCHES - 3
            && let Err(error) = purge(&log, &[PURGED])
        {
            assert_ne!(error.kind(), ErrorKind::DataLoss, "{context}: {error}");
        }
    }
    let is_reached = disk.set_slip(None).is_none();
    told.check(&log, &format!("{context}, in place"));
    is_reached
}

#[test]
fn any_call_may_fail_and_nothing_acknowledged_is_lost_or_refused_shown() {
    let mut slips = 0;
    let (base, told) = left_behind();
    for starts_empty in [true, false] {
        for (errno, done) in ERRORS.iter().flat_map(|errno| DONE.map(|done| (*errno, done))) {
            for after in 0.. {
                let (disk, mut told) = if starts_empty {
                    Default::default()
                } else {
                    (base.after_power_cut(&mut Rng::with_seed(0)), told.clone())
                };
                let context =
                    format!("empty {starts_empty}, call {after}, error {errno}, {done:?}");
                let is_reached = live(&disk, &mut told, Slip { after, errno, done }, &context);
                let cut = disk.after_power_cut(&mut Rng::with_seed(after));
                for disk in [cut, disk.after_kill()] {
                    let before = {
                        let log = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
                        told.check(&log, &context);
                        events(&log)
                    };
                    let log = open(&disk).unwrap();
                    assert_eq!(events(&log), before, "{context}: opened twice");
                    let next = log.append_wait(vec![found(2, "on")]).unwrap()[0].seq;
                    let last = before.last().map_or(0, |event| event.head.seq.0);
                    assert!(next.0 > last, "{context}: {next} is given again");
                    purge(&log, &[PURGED]).unwrap();
                    assert!(events(&log).iter().all(|event| event.head.run != run(PURGED)));
                }
                if !is_reached {
                    break;
                }
                slips += 1;
            }
        }
    }
    println!("{slips} calls failed");
    assert!(slips > 1_500, "only {slips} calls failed");
}
