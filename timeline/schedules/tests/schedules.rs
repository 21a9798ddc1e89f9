//! Writer, acknowledgement and publication in thousands of orders of their steps: acknowledged events are
//! durable and readable, published ones were durable before, each batch is answered once, no thread hangs.
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
    atomic::{AtomicUsize, Ordering::Relaxed},
};

use disk::{Fault, SimDisk};
use fastrand::Rng;
use media::Seq;
use shuttle::{Config, Runner, scheduler::PctScheduler, thread};
use support::{found, small, texts};
use timeline::{Timeline, TimelineOptions};

const PRODUCERS: u8 = 3;
const APPENDS: usize = 2;
/// Beginning of the text of every event.
const TEXT: &str = "a text of ";
/// Orders per model: some random, some with few preemptions, which find what random ones seldom do.
const ORDERS: usize = 1500;

/// Runs a model in many orders; a failing one is printed and can be replayed.
fn explore(model: fn()) {
    shuttle::check_random(model, ORDERS);
    let scheduler = PctScheduler::new(3, ORDERS);
    Runner::new(scheduler, Config::new()).run(model);
}

fn log(disk: &SimDisk) -> Timeline {
    let options = TimelineOptions { file_bytes: 4096, grow_bytes: 1024, ..small() };
    disk.open_log(options).unwrap().0
}

/// Returns how often `text` is on `disk` after a power cut at this moment.
fn durable(disk: &SimDisk, text: &str) -> usize {
    let left = disk.after_power_cut(&mut Rng::with_seed(7));
    let count = |name: &String| {
        left.bytes(name).windows(text.len()).filter(|bytes| *bytes == text.as_bytes()).count()
    };
    left.names().iter().map(count).sum()
}

/// Appends the batches of a producer; returns the acknowledged texts.
fn produce(log: &Timeline, disk: &SimDisk, number: u8) -> Vec<String> {
    let mut acknowledged = Vec::new();
    for append in 0..APPENDS {
        let text = format!("{TEXT}{number}-{append}.");
        if let Ok(appended) = log.append_wait(vec![found(number, &text)]) {
            assert!(log.head() >= appended[0].seq, "acknowledged and not readable");
            assert!(log.get(appended[0].seq).unwrap().is_some());
            assert!(durable(disk, &text) > 0, "acknowledged and not durable");
            acknowledged.push(text);
        }
    }
    acknowledged
}

#[test]
fn what_is_acknowledged_or_published_is_durable_and_readable() {
    explore(|| {
        let disk = SimDisk::default();
        let log = Arc::new(log(&disk));
        let published = Arc::new(Mutex::new(Vec::new()));
        let (sink, seen) = (Arc::clone(&published), disk.clone());
        log.on_publish(Box::new(move |heads| {
            let last = heads.last().expect("never nothing").seq;
            assert!(durable(&seen, TEXT) as u64 >= last.0, "published and not durable");
            sink.lock().unwrap().extend(heads.iter().map(|head| head.seq.0));
        }));
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let (log, disk) = (Arc::clone(&log), disk.clone());
                thread::spawn(move || produce(&log, &disk, number))
            })
            .collect();
        let reader = Arc::clone(&log);
        let reader = thread::spawn(move || {
            let mut head = Seq(0);
            for _ in 0..4 {
                let now = reader.head();
                assert!(now >= head, "the head goes back");
                assert!((1..=now.0).all(|seq| reader.get(Seq(seq)).unwrap().is_some()));
                head = now;
                thread::yield_now();
            }
        });
        let acknowledged: usize = producers.into_iter().map(|one| one.join().unwrap().len()).sum();
        reader.join().unwrap();
        let all = PRODUCERS as usize * APPENDS;
        assert_eq!((acknowledged, texts(&log).len()), (all, all));
        assert_eq!(*published.lock().unwrap(), (1..=all as u64).collect::<Vec<_>>());
    });
}

#[test]
fn a_close_amid_appends_answers_each_once() {
    explore(|| {
        let disk = SimDisk::default();
        let log = Arc::new(log(&disk));
        let answers = Arc::new(AtomicUsize::new(0));
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let (log, disk, answers) = (Arc::clone(&log), disk.clone(), Arc::clone(&answers));
                thread::spawn(move || {
                    let told = Arc::clone(&answers);
                    log.append(vec![found(number, TEXT)], move |_| {
                        told.fetch_add(1, Relaxed);
                    });
                    produce(&log, &disk, number)
                })
            })
            .collect();
        let closer = Arc::clone(&log);
        let closer = thread::spawn(move || closer.close());
        let acknowledged: Vec<String> =
            producers.into_iter().flat_map(|one| one.join().unwrap()).collect();
        closer.join().unwrap();
        drop(log);
        assert_eq!(answers.load(Relaxed), PRODUCERS as usize);
        assert!(acknowledged.iter().all(|text| durable(&disk, text) > 0), "{acknowledged:?}");
    });
}

#[test]
fn a_sync_that_fails_amid_appends_lets_nothing_through_afterwards() {
    explore(|| {
        let disk = SimDisk::default();
        let log = Arc::new(log(&disk));
        let failing = disk.clone();
        let breaker = thread::spawn(move || failing.set_fault(Some(Fault::Sync)));
        let producers: Vec<_> = (0..PRODUCERS)
            .map(|number| {
                let (log, disk) = (Arc::clone(&log), disk.clone());
                thread::spawn(move || produce(&log, &disk, number))
            })
            .collect();
        producers.into_iter().for_each(|one| drop(one.join().unwrap()));
        breaker.join().unwrap();
        disk.set_fault(None);
        let is_whole = texts(&log).len() == PRODUCERS as usize * APPENDS;
        assert!(
            is_whole || log.append_wait(vec![found(9, TEXT)]).is_err(),
            "a sync failed and was forgotten"
        );
    });
}
