//! Writer, acknowledgement and publication in every order of their steps with at most two preemptions:
//! acknowledged events are durable and readable, published ones were durable before, each batch is answered
//! once, no thread hangs. A step is one at a lock, a channel or a thread: loom knows of no disk.
#![allow(missing_docs, clippy::unwrap_used, dead_code)]

extern crate timeline_schedules as timeline;

#[path = "../../tests/timeline/disk.rs"]
mod disk;
#[path = "../../tests/timeline/support.rs"]
mod support;
#[path = "../../tests/timeline/survivor.rs"]
mod survivor;

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use disk::{Fault, SimDisk};
use fastrand::Rng;
use loom::{model::Builder, thread};
use media::Seq;
use support::{found, small, texts};
use timeline::{Timeline, TimelineOptions};

/// Beginning of the text of every event.
const TEXT: &str = "a text of ";

/// Runs `model` in each order, the same ones in turn every time: what fails once fails again.
fn explore(model: fn()) {
    let orders = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&orders);
    let mut builder = Builder::new();
    builder.preemption_bound = Some(2);
    builder.max_branches = 100_000;
    builder.check(move || {
        counted.fetch_add(1, Relaxed);
        model();
    });
    println!("{orders:?} orders");
}

fn log(disk: &SimDisk) -> Arc<Timeline> {
    let options = TimelineOptions { file_bytes: 4096, grow_bytes: 1024, ..small() };
    Arc::new(disk.open_log(options).unwrap().0)
}

/// Returns how often `text` is on `disk` after a power cut at this moment.
fn durable(disk: &SimDisk, text: &str) -> usize {
    let left = disk.after_power_cut(&mut Rng::with_seed(7));
    let count = |name: &String| {
        left.bytes(name).windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count()
    };
    left.names().iter().map(count).sum()
}

/// Appends an event of a producer; returns 1 if it was acknowledged.
fn produce(log: &Timeline, disk: &SimDisk, number: u8) -> u64 {
    let text = format!("{TEXT}{number}.");
    let Ok(appended) = log.append_wait(vec![found(number, &text)]) else { return 0 };
    assert!(log.head() >= appended[0].seq, "acknowledged and not readable");
    assert!(log.get(appended[0].seq).unwrap().is_some());
    assert!(durable(disk, &text) > 0, "acknowledged and not durable");
    1
}

/// Starts the thread of a producer.
fn producer(log: &Arc<Timeline>, disk: &SimDisk, number: u8) -> thread::JoinHandle<u64> {
    let (log, disk) = (Arc::clone(log), disk.clone());
    thread::spawn(move || produce(&log, &disk, number))
}

/// Collects what `log` publishes; fails on what a power cut would have lost.
fn publications(log: &Timeline, disk: &SimDisk) -> Arc<Mutex<Vec<u64>>> {
    let published = Arc::new(Mutex::new(Vec::new()));
    let (sink, seen) = (Arc::clone(&published), disk.clone());
    log.on_publish(Box::new(move |heads| {
        let last = heads.last().expect("never nothing").seq;
        assert!(durable(&seen, TEXT) as u64 >= last.0, "published and not durable");
        sink.lock().unwrap().extend(heads.iter().map(|head| head.seq.0));
    }));
    published
}

#[test]
fn what_is_acknowledged_or_published_is_durable_and_readable() {
    explore(|| {
        let disk = SimDisk::default();
        let log = log(&disk);
        let published = publications(&log, &disk);
        let producers = [1, 2].map(|number| producer(&log, &disk, number));
        let mut head = Seq(0);
        for _ in 0..2 {
            let now = log.head();
            assert!(now >= head, "the head goes back");
            assert!((1..=now.0).all(|seq| log.get(Seq(seq)).unwrap().is_some()));
            head = now;
        }
        let acknowledged: u64 = producers.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!((acknowledged, texts(&log).len()), (2, 2));
        assert_eq!(*published.lock().unwrap(), [1, 2]);
    });
}

#[test]
fn a_close_amid_appends_answers_each_once() {
    explore(|| {
        let disk = SimDisk::default();
        let log = log(&disk);
        let published = publications(&log, &disk);
        let answers = Arc::new(AtomicU64::new(0));
        let (told, kept) = (Arc::clone(&answers), Arc::new(AtomicU64::new(0)));
        let taken = Arc::clone(&kept);
        let other = producer(&log, &disk, 1);
        let closer = Arc::clone(&log);
        let closer = thread::spawn(move || closer.close());
        log.append(vec![found(0, TEXT)], move |answer| {
            told.fetch_add(1, Relaxed);
            taken.fetch_add(u64::from(answer.is_ok()), Relaxed);
        });
        let acknowledged = other.join().unwrap();
        closer.join().unwrap();
        drop(log);
        assert_eq!(answers.load(Relaxed), 1);
        let acknowledged = acknowledged + kept.load(Relaxed);
        assert_eq!(*published.lock().unwrap(), (1..=acknowledged).collect::<Vec<_>>());
    });
}

#[test]
fn a_sync_that_fails_amid_appends_lets_nothing_through_afterwards() {
    explore(|| {
        let disk = SimDisk::default();
        let log = log(&disk);
        let (failing, seen) = (disk.clone(), Arc::clone(&log));
        let breaker = thread::spawn(move || {
            // Takes a lock that the writer takes before each batch: loom moves a thread only to where it meets others.
            seen.state();
            failing.set_fault(Some(Fault::Sync));
        });
        let other = producer(&log, &disk, 1);
        let own = produce(&log, &disk, 0);
        let acknowledged = own + other.join().unwrap();
        breaker.join().unwrap();
        disk.set_fault(None);
        assert!(
            acknowledged == 2 || log.append_wait(vec![found(9, TEXT)]).is_err(),
            "a sync failed and was forgotten"
        );
        assert_eq!(texts(&log).len() as u64, acknowledged);
    });
}
