//! Power cuts and truncations: acknowledged events stay, batches stay whole.

use std::{collections::HashMap, sync::mpsc, thread};

use media::{ErrorKind, Seq};
use timeline::{EventMeta, StoredEvent, Timeline, TimelineError, TimelineOptions};

use crate::{
    compact::{open, purge},
    disk::SimDisk,
    support::{description, events, found, run, small, texts},
};
use fastrand::Rng;

/// Run whose events are purged at times.
const PURGED: u8 = 9;

/// Events that must survive any number of power cuts: all but those of the purged run.
#[derive(Default)]
struct Witness {
    acknowledged: Vec<StoredEvent>,
    batches: u64,
}

impl Witness {
    /// Checks that all acknowledged events exist, and that every batch is whole or absent.
    fn check(&mut self, log: &Timeline, context: &str) {
        let events = events(log);
        let kept = kept(&events);
        let there: HashMap<Seq, &StoredEvent> =
            kept.iter().map(|event| (event.head.seq, event)).collect();
        for expected in &self.acknowledged {
            let found = there.get(&expected.head.seq);
            assert_eq!(found, Some(&expected), "{context}: an acknowledged event changed");
        }
        let mut expected = (0, 0);
        for event in &events {
            let text = description(event);
            let mut parts = text.split(' ').map(|part| part.parse::<u64>());
            let mut part = || parts.next().expect("a part").expect("a number");
            let (batch, position, length) = (part(), part(), part());
            let at = if expected.1 == 0 { (batch, 0) } else { expected };
            assert_eq!((batch, position), at, "{context}: a batch is torn apart");
            expected = if position + 1 == length { (0, 0) } else { (batch, position + 1) };
        }
        assert_eq!(expected.1, 0, "{context}: the last batch is cut short");
        // The survivors are visible from here on, so they must not vanish later.
        self.acknowledged = kept;
    }

    /// Purges and appends batches until the power is cut; keeps the acknowledged ones.
    fn live(&mut self, log: &Timeline, random: &mut Rng) {
        if random.u64(..100) < 30
            && let Err(error) = purge(log, &[PURGED])
        {
            assert_ne!(error.kind(), ErrorKind::DataLoss, "{error}");
        }
        let appends = 4 + random.u64(..12);
        let (sender, receiver) = mpsc::sync_channel(appends as usize);
        for _ in 0..appends {
            self.batches += 1;
            let length = 1 + random.u64(..4);
            let run = if random.u64(..100) < 25 { PURGED } else { random.u64(..3) as u8 };
            let batch = (0..length).map(|position| {
                let padding = "x".repeat(random.u64(..2000) as usize);
                let text = format!("{} {position} {length} {padding}", self.batches);
                found(run, &text)
            });
            let sender = sender.clone();
            log.append(batch.collect(), move |result| sender.send(result).unwrap());
            if random.u64(..100) < 70 {
                self.acknowledged.extend(read_back(log, receiver.recv().unwrap()));
            }
        }
        drop(sender);
        receiver.iter().for_each(|result| self.acknowledged.extend(read_back(log, result)));
    }
}

fn read_back(log: &Timeline, result: Result<Vec<EventMeta>, TimelineError>) -> Vec<StoredEvent> {
    let read = |appended: EventMeta| {
        let event = log.get(appended.seq).unwrap().unwrap();
        assert_eq!(event.head, appended);
        event
    };
    // Failed appends mean that the power was cut.
    let appended: Vec<_> = result.unwrap_or_default().into_iter().map(read).collect();
    kept(&appended)
}

fn kept(events: &[StoredEvent]) -> Vec<StoredEvent> {
    events.iter().filter(|event| event.head.run != run(PURGED)).cloned().collect()
}

/// Lives of a log, each ended by a power cut.
const LIVES: u64 = 8;

/// Runs the lives and power cuts of `seed`; returns the number of torn tails.
fn live_through(seed: u64) -> u64 {
    let mut random = Rng::with_seed(seed);
    let (mut disk, mut witness, mut torn) = (SimDisk::default(), Witness::default(), 0);
    let (file_bytes, grow_bytes) = (2048 + random.u64(..60_000), 512 + random.u64(..4096));
    let options = TimelineOptions { file_bytes, grow_bytes, ..small() };
    for life in 0..LIVES {
        if random.u64(..100) < 20 {
            disk.cut_power_after(random.u64(..6));
        }
        let context = format!("seed {seed}, life {life}");
        let opened = || disk.open_log(options.clone());
        // Twice: the second opening must find the same.
        let reopened = opened().and_then(|(log, recovery)| {
            torn += u64::from(recovery.torn.is_some());
            witness.check(&log, &context);
            drop(log);
            opened()
        });
        match reopened {
            Ok((log, recovery)) => {
                assert_eq!(recovery.torn, None, "{context}: a tail is cut once");
                assert_eq!(kept(&events(&log)), witness.acknowledged, "{context}: opened twice");
                disk.cut_power_after(random.u64(..30));
                witness.live(&log, &mut random);
            }
            Err(error) => assert_ne!(error.kind(), ErrorKind::DataLoss, "{context}: {error}"),
        }
        disk = disk.after_power_cut(&mut random);
    }
    witness.check(&open(&disk).unwrap(), &format!("seed {seed}, at the end"));
    torn
}

#[test]
fn power_cuts_lose_nothing_acknowledged_and_raise_no_alarm() {
    let cuts: u64 = clips::sized(10_000, 1_000_000);
    let (seeds, stripes) = (cuts / LIVES, 4);
    // One seed in ten is random.
    let (same, drawn) = (seeds - seeds / 10, fastrand::u64(seeds..u64::MAX / 2));
    let seed = move |at| if at < same { at } else { drawn + at };
    let torn: u64 = thread::scope(|scope| {
        let all = move |first| (first..seeds).step_by(stripes);
        let live = |first| move || all(first).map(seed).map(live_through).sum::<u64>();
        let stripes: Vec<_> = (0..stripes as u64).map(|first| scope.spawn(live(first))).collect();
        stripes.into_iter().map(|stripe| stripe.join().expect("no alarm, told above")).sum()
    });
    println!(
        "{cuts} cuts of seeds 0 to {} and from {} on, {torn} torn tails",
        same - 1,
        drawn + same
    );
    // The test is useful only if cuts tear batches.
    assert!(torn > cuts / 20, "only {torn} torn tails");
}

fn journal_of(batches: &[Vec<String>]) -> (SimDisk, String) {
    let disk = SimDisk::default();
    let options = TimelineOptions { file_bytes: 1 << 20, ..small() };
    let (log, _) = disk.open_log(options).unwrap();
    for batch in batches {
        log.append_wait(batch.iter().map(|text| found(1, text)).collect()).unwrap();
    }
    log.close();
    let name = disk.names().pop().unwrap();
    (disk, name)
}

#[test]
fn what_a_block_held_before_the_file_grew_is_no_damage() {
    let (disk, name) = journal_of(&[vec!["kept".to_owned()]]);
    let mut bytes = disk.bytes(&name);
    let mark = bytes.windows(4).rposition(|bytes| bytes == b"\xff\xfeSB").unwrap();
    // The next batch is torn, and a block after it shows the mark that was once in its place.
    bytes.copy_within(mark..mark + 32, mark + 512);
    bytes[mark..mark + 32].fill(7);
    disk.set_bytes(&name, bytes);
    let log = open(&disk).unwrap();
    assert_eq!(texts(&log), ["kept"]);
}

fn is_prefix_of_batches(texts: &[String], batches: &[Vec<String>]) -> bool {
    let mut prefix: Vec<String> = Vec::new();
    let mut prefixes = batches.iter().map(|batch| {
        prefix.extend(batch.iter().cloned());
        prefix.clone()
    });
    texts.is_empty() || prefixes.any(|prefix| prefix == texts)
}

fn check_cut(disk: &SimDisk, name: &str, cut: usize, batches: &[Vec<String>]) {
    const HEADER_BYTES: usize = 32;
    let damaged = SimDisk::default();
    damaged.set_bytes(name, disk.bytes(name)[..cut].to_vec());
    match open(&damaged) {
        Ok(log) => {
            let kept = texts(&log);
            assert!(is_prefix_of_batches(&kept, batches), "cut at {cut}: {kept:?}");
            log.append_wait(vec![found(1, "goes on")]).unwrap();
        }
        Err(error) => {
            assert!(cut < HEADER_BYTES, "cut at {cut}: {error}");
            assert_eq!(error.kind(), ErrorKind::DataLoss);
        }
    }
}

#[test]
fn a_journal_cut_at_any_byte_is_a_prefix() {
    let batches = [vec!["one"], vec!["two \"\\", "three \u{e9}"], vec![""], vec!["four"]]
        .map(|batch| batch.into_iter().map(str::to_owned).collect());
    let (disk, name) = journal_of(&batches);
    for cut in 0..disk.bytes(&name).len() {
        check_cut(&disk, &name, cut, &batches);
    }
}
