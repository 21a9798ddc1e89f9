//! Many producers with readers beside them: one order, no gap, nothing visible before it is durable.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    thread,
};

use media::Seq;
use tempfile::TempDir;
use timeline::{Timeline, TimelineOptions};

use crate::support::{all, description, found, run, small};

const PRODUCERS: u8 = 64;
const APPENDS: u64 = 60;

/// Reads run `number` from the first event until `done` is set and nothing is left.
fn follow(log: &Timeline, number: u8, done: &AtomicBool) -> Vec<String> {
    let mut next = Seq(1);
    let mut seen = Vec::new();
    loop {
        let last_look = done.load(Ordering::Acquire);
        let page = log.read(run(number), next, 7, None).unwrap();
        for event in &page {
            assert!(event.head.seq >= next && event.head.seq <= log.head());
            next = Seq(event.head.seq.0 + 1);
            seen.push(description(event));
        }
        if page.is_empty() && last_look {
            return seen;
        }
        thread::yield_now();
    }
}

fn produce(log: &Timeline, number: u8, last: &AtomicU64) {
    for append in 0..APPENDS {
        let pair = ["a", "b"].map(|half| found(number, &format!("{append}{half}")));
        let appended = log.append_wait(pair.into()).unwrap();
        assert_eq!(appended.len(), 2);
        assert_eq!(appended[1].seq.0, appended[0].seq.0 + 1, "a batch stays together");
        assert!(log.head() >= appended[1].seq, "acknowledged but not readable");
        let newest = log.get(appended[1].seq).unwrap().unwrap();
        assert_eq!(description(&newest), format!("{append}b"));
        last.fetch_max(appended[1].seq.0, Ordering::Relaxed);
    }
}

#[test]
fn readers_see_each_run_in_order_without_gaps_while_64_producers_append() {
    let dir = TempDir::new().unwrap();
    let options = TimelineOptions { file_bytes: 200_000, grow_bytes: 50_000, ..small() };
    let (log, _) = Timeline::open(dir.path(), options).unwrap();
    let published = Arc::new(Mutex::new(Vec::new()));
    let sink = published.clone();
    log.on_publish(Box::new(move |heads| {
        sink.lock().unwrap().extend(heads.iter().map(|head| head.seq.0));
    }));
    let (done, last) = (AtomicBool::new(false), AtomicU64::new(0));
    let expected: Vec<String> =
        (0..APPENDS).flat_map(|append| [format!("{append}a"), format!("{append}b")]).collect();
    thread::scope(|scope| {
        let (log, done, last) = (&log, &done, &last);
        let readers: Vec<_> =
            (0..4).map(|number| scope.spawn(move || follow(log, number * 21, done))).collect();
        let producers: Vec<_> =
            (0..PRODUCERS).map(|number| scope.spawn(move || produce(log, number, last))).collect();
        producers.into_iter().for_each(|producer| producer.join().unwrap());
        done.store(true, Ordering::Release);
        for reader in readers {
            assert_eq!(reader.join().unwrap(), expected);
        }
    });
    let total = u64::from(PRODUCERS) * APPENDS * 2;
    assert_eq!(last.into_inner(), total);
    assert_eq!(*published.lock().unwrap(), (1..=total).collect::<Vec<_>>());
    let events = all(&log);
    assert!(events.is_sorted_by_key(|event| event.head.at), "time goes backwards");
    drop(log);
    let (reopened, recovery) = Timeline::open(dir.path(), TimelineOptions::default()).unwrap();
    assert_eq!(recovery.events, total);
    assert_eq!(recovery.torn, None);
    assert_eq!(all(&reopened), events);
}
