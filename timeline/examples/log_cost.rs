//! Cost of the log on this machine: durable events a second, polls, reopening, memory.
//!
//! `cargo run --release -p timeline --example log_cost [DIR]`; DIR should be on the disk to
//! measure (default: the build's target directory) and is removed afterwards.

use std::{
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use media::{RequestId, RunId, Score, Seq, Signal, Zones};
use timeline::{
    Event, Finding, FindingKind, FramesDecoded, NewEvent, Options, SamplingPolicy, Timeline,
    TimelineError,
};

const PRODUCERS: u64 = 64;
const DURABLE_SECONDS: u64 = 5;
const EVENTS: u64 = 1_000_000;
const RUNS: u64 = 10_000;
const POLLED: usize = 100;
const WAITING: usize = 256;
const SIGNALS: u64 = 500_000;

fn main() -> Result<(), TimelineError> {
    let dir = std::env::args_os().nth(1).map(PathBuf::from);
    let dir =
        dir.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/log_cost"));
    remove(&dir);
    durable(&dir.join("durable"))?;
    fill(&dir.join("million"))?;
    reopen_and_poll(&dir.join("million"))?;
    column(&dir.join("column"))?;
    remove(&dir);
    Ok(())
}

fn remove(dir: &Path) {
    if dir.exists() {
        std::fs::remove_dir_all(dir).expect("the directory is ours");
    }
}

fn run(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

fn event(run: RunId, frame_index: u64) -> NewEvent {
    let finding = Finding {
        frame_index,
        pts_ms: frame_index as i64 * 33,
        confidence: Score::from_millionths((frame_index % 1_000_000) as u32),
        description: "A person in a red coat crosses the yard from left to right.".to_owned(),
        ..Finding::default()
    };
    NewEvent { run, event: Event::Found(FindingKind::Vlm, finding) }
}

/// Each producer appends one event, waits until it is durable, appends the next.
fn durable(dir: &Path) -> Result<(), TimelineError> {
    let (log, _) = Timeline::open(dir, Options::default())?;
    let end = Instant::now() + Duration::from_secs(DURABLE_SECONDS);
    let mut latencies: Vec<Duration> = thread::scope(|scope| {
        let produce = |producer| {
            let log = log.clone();
            move || {
                let mut latencies = Vec::new();
                while Instant::now() < end {
                    let start = Instant::now();
                    let event = event(run(producer), latencies.len() as u64);
                    log.append_wait(vec![event]).expect("the log takes it");
                    latencies.push(start.elapsed());
                }
                latencies
            }
        };
        let threads: Vec<_> =
            (0..PRODUCERS).map(|producer| scope.spawn(produce(producer))).collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    latencies.sort_unstable();
    let at = |percent: usize| latencies[latencies.len() * percent / 100].as_micros();
    println!(
        "durable, {PRODUCERS} producers: {} events/s, p50 {} us, p99 {} us",
        latencies.len() as u64 / DURABLE_SECONDS,
        at(50),
        at(99),
    );
    Ok(())
}

/// A million events over many runs, acknowledged out of band.
fn fill(dir: &Path) -> Result<(), TimelineError> {
    let (log, _) = Timeline::open(dir, Options::default())?;
    let start = Instant::now();
    let (sender, receiver) = mpsc::sync_channel(WAITING);
    let mut waiting = 0;
    for group in 0..EVENTS / 100 {
        let batch = (0..100).map(|i| event(run((group * 100 + i) % RUNS), group)).collect();
        let sender = sender.clone();
        log.append(batch, move |result| sender.send(result.map(drop)).expect("main waits"));
        waiting += 1;
        if waiting == WAITING {
            receiver.recv().expect("one ack an append")?;
            waiting -= 1;
        }
    }
    for _ in 0..waiting {
        receiver.recv().expect("one ack an append")?;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!("bulk, batches of 100: {:.0} events/s", EVENTS as f64 / seconds);
    println!("index as written: {:.1} bytes an event", log.index_bytes() as f64 / EVENTS as f64);
    Ok(())
}

fn reopen_and_poll(dir: &Path) -> Result<(), TimelineError> {
    let mut times = Vec::new();
    for _ in 0..5 {
        let start = Instant::now();
        let (log, recovery) = Timeline::open(dir, Options::default())?;
        times.push(start.elapsed());
        assert_eq!(recovery.events, EVENTS);
        drop(log);
    }
    times.sort_unstable();
    println!("reopen of {EVENTS} events: {} ms (median of 5)", times[2].as_millis());
    let (log, recovery) = Timeline::open(dir, Options::default())?;
    println!(
        "index as opened: {:.1} bytes an event over {RUNS} runs, {} files",
        log.index_bytes() as f64 / EVENTS as f64,
        recovery.files,
    );
    // The first round warms the caches.
    for measured in [false, true] {
        let mut times = Vec::new();
        for number in 0..2000 {
            let start = Instant::now();
            let events = log.read(run(number * 7 % RUNS), Seq(1), POLLED, None)?;
            times.push(start.elapsed());
            assert_eq!(events.len(), POLLED);
        }
        times.sort_unstable();
        if measured {
            println!(
                "poll of {POLLED} events of a run: p50 {} us, p99 {} us",
                times[times.len() / 2].as_micros(),
                times[times.len() * 99 / 100].as_micros(),
            );
        }
    }
    let start = Instant::now();
    let mut count = 0;
    log.scan(|_| count += 1);
    println!("scan of {count} heads: {} ms", start.elapsed().as_millis());
    Ok(())
}

/// The signals of the longest ingest, written as a stream and read both ways.
fn column(dir: &Path) -> Result<(), TimelineError> {
    let (log, _) = Timeline::open(dir, Options::default())?;
    let start = Instant::now();
    let mut writer = log.column_writer();
    for frame_index in 0..SIGNALS {
        writer.push(&Signal {
            frame_index,
            source_frame_index: Some(frame_index),
            pts_ms: frame_index as i64 * 33,
            perceptual_hash: frame_index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
            luma_mean: Score::from_millionths(500_000),
            flicker_score: Score::from_millionths(12_345),
            ghosting_score: Score::ZERO,
            noise_variance_score: Score::from_millionths(1_000),
            scene_score: Some(Score::from_millionths(frame_index as u32)),
            activity: None,
        })?;
    }
    let (signals, _lease) = writer.finish()?;
    let written = start.elapsed();
    let event = Event::FramesDecoded(FramesDecoded {
        request_id: RequestId::from_bytes([0; 8]),
        source_uri: "/media/yard.mp4".to_owned(),
        stream_id: "yard".parse().expect("a label"),
        sampling_policy: SamplingPolicy::SourceFpsAdaptive,
        source_fps: None,
        sample_fps: None,
        decoded_frames: SIGNALS,
        width: 1920,
        height: 1080,
        pixel_format: "yuv420p".to_owned(),
        decoder: None,
        decoder_fallback: None,
        truncated: false,
        reason: None,
        gate: None,
        zones: Zones::default(),
        wall_start_ms: None,
        signals: signals.clone(),
    });
    let seq = log.append_wait(vec![NewEvent { run: run(0), event }])?[0].seq;
    let start = Instant::now();
    assert_eq!(log.signals(&signals)?.len() as u64, SIGNALS);
    let read = start.elapsed();
    let start = Instant::now();
    let payload = log.get(seq)?.expect("just appended").payload;
    println!(
        "column of {SIGNALS} signals: write {} ms, read {} ms, as {} MB of JSON {} ms",
        written.as_millis(),
        read.as_millis(),
        payload.len() >> 20,
        start.elapsed().as_millis(),
    );
    Ok(())
}
