//! Measures a compaction and a producer beside it: `cargo run --release -p timeline --example compaction_cost
//! -- DIR`. The log has a million events of a thousand runs, half of which are purged.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    path::{Path, PathBuf},
    sync::{
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use media::{RunId, Score};
use timeline::{
    Event, FindingKind, FindingPayload, NewEvent, Timeline, TimelineError, TimelineOptions,
};

const EVENTS: u64 = 1_000_000;
const RUNS: u64 = 1000;
const BATCH: u64 = 100;
const WAITING: usize = 64;
const MEASURED: Duration = Duration::from_secs(5);
/// Rate in bytes per second to which the server limits a sweep.
const PACED_BYTES_PER_SECOND: u32 = 32 << 20;

fn main() -> Result<(), TimelineError> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from).expect("a directory to use");
    fill(&dir)?;
    reopen(&dir, "reopen before")?;
    let (log, _) = Timeline::open(&dir, TimelineOptions::default())?;
    let alone = latencies(&log, &AtomicBool::new(false));
    print("append alone", &alone);
    let half = |from: u64| (from..RUNS).step_by(4).map(run).collect::<HashSet<_>>();
    compact(&log, &half(0), 0)?;
    compact(&log, &half(2), PACED_BYTES_PER_SECOND)?;
    drop(log);
    reopen(&dir, "reopen after")?;
    Ok(())
}

fn run(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

fn event(run: RunId) -> NewEvent {
    let finding = FindingPayload {
        frame_index: 1,
        pts_ms: 33,
        confidence: Score::ONE,
        description: "A person in a red coat crosses the yard from left to right.".to_owned(),
        ..FindingPayload::default()
    };
    NewEvent { run, event: Event::Found(FindingKind::Vlm, finding) }
}

fn fill(dir: &Path) -> Result<(), TimelineError> {
    let (log, _) = Timeline::open(dir, TimelineOptions::default())?;
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    for group in 0..EVENTS / BATCH {
        let batch = (0..BATCH).map(|each| event(run((group * BATCH + each) % RUNS))).collect();
        let sender = sender.clone();
        log.append(batch, move |result| sender.send(result.map(drop)).expect("main waits"));
        if group >= WAITING as u64 {
            receiver.recv().expect("one ack an append")?;
        }
    }
    drop(sender);
    receiver.iter().collect()
}

fn reopen(dir: &Path, what: &str) -> Result<(), TimelineError> {
    let started = Instant::now();
    let (log, recovery) = Timeline::open(dir, TimelineOptions::default())?;
    let (took, index) = (started.elapsed(), log.index_bytes() >> 10);
    println!(
        "{what}: {} events, {} files, {took:?}, index {index} KiB",
        recovery.events, recovery.files
    );
    Ok(())
}

/// Returns one producer's append latencies, sorted, over [`MEASURED`] or until `stop`.
fn latencies(log: &Timeline, stop: &AtomicBool) -> Vec<Duration> {
    let (mut latencies, end) = (Vec::new(), Instant::now() + MEASURED);
    while Instant::now() < end && !stop.load(Ordering::Relaxed) {
        let started = Instant::now();
        log.append_wait(vec![event(run(RUNS))]).expect("the log takes it");
        latencies.push(started.elapsed());
    }
    latencies.sort_unstable();
    latencies
}

fn print(what: &str, sorted: &[Duration]) {
    let at = |percent: usize| sorted[(sorted.len() * percent / 100).min(sorted.len() - 1)];
    println!(
        "{what}: {} appends, p50 {:?}, p99 {:?}, max {:?}",
        sorted.len(),
        at(50),
        at(99),
        at(100)
    );
}

/// Compacts beside one producer, limited to `bytes_per_second` unless that is 0.
fn compact(
    log: &Timeline,
    purged: &HashSet<RunId>,
    bytes_per_second: u32,
) -> Result<(), TimelineError> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let producer = scope.spawn(|| latencies(log, &stop));
        let started = Instant::now();
        let done = log.compact(purged, &mut |bytes| {
            if let Some(wait) =
                (Duration::from_secs(1) * bytes as u32).checked_div(bytes_per_second)
            {
                thread::sleep(wait);
            }
            ControlFlow::Continue(())
        })?;
        let took = started.elapsed();
        stop.store(true, Ordering::Relaxed);
        let mb = done.bytes_copied as f64 / 1e6;
        let (speed, removed) = (mb / took.as_secs_f64(), done.events_removed);
        println!(
            "compaction: {removed} events removed, {mb:.0} MB copied in {took:?}, {speed:.0} MB/s"
        );
        print("append beside it", &producer.join().expect("no panic"));
        Ok(())
    })
}
