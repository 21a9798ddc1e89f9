//! Functions that the server spends its time in, timed: `cargo bench -p benches [-- PART OF A NAME]`.
//!
//! Whole processes, memory and loss are measured by the scripts beside this and by the examples that they run.
#![forbid(unsafe_code)]

use std::{
    cell::LazyCell, fs::File, hint::black_box, ops::ControlFlow, path::Path, sync::mpsc, thread,
    time::Duration,
};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use decode::{
    DecoderChain, DemuxLimits, Demuxer, FileOptions, FrameCollector, Sampling, decode_file,
};
use gate::{
    AHEAD, CpuBackend, FrameMeta, MeasureBackend, ReferenceBackend, SignalWindow,
    conformance::{Fill, TestPicture},
};
use media::{Codec, Frame, FrameRate, RunId, SampleFormat, Score, Seq, Signal};
use search::{FoldedPattern, IndexLimits, SearchIndex};
use timeline::{Event, FindingKind, FindingPayload, NewEvent, Timeline, TimelineOptions};
use transport::rtp::{ReceiverOutput, RtpPacket, RtpReceiver};

#[path = "http.rs"]
mod http;

/// Descriptions and events that a log and an index are measured with.
const MILLION: u64 = 1_000_000;

fn run(number: u64) -> RunId {
    RunId::from_bytes(u128::from(number).to_be_bytes())
}

/// Measuring of batches: 1080p pictures do not all fit in the cache together.
fn measuring(criterion: &mut Criterion) {
    const BATCH: u64 = 8;
    let mut group = criterion.benchmark_group("measuring");
    group.throughput(Throughput::Elements(BATCH));
    for (width, height) in [(1280, 720), (1920, 1080), (3840, 2160)] {
        for (bits, sample) in [(8, SampleFormat::U8), (10, SampleFormat::U16 { shift: 2 })] {
            let picture = TestPicture { sample, padding: 64, ..TestPicture::new(width, height) };
            let frames: Vec<Frame> = (0..BATCH)
                .map(|seed| TestPicture { fill: Fill::Random(seed), ..picture }.frame())
                .collect();
            for measurer in
                [&mut CpuBackend::new() as &mut dyn MeasureBackend, &mut ReferenceBackend]
            {
                let id = BenchmarkId::new(measurer.name(), format!("{height}p, {bits} bits"));
                let mut out = Vec::new();
                group.bench_function(id, |bench| {
                    bench.iter(|| {
                        out.clear();
                        measurer.measure(black_box(&frames), &mut out).expect("measurable");
                    });
                });
            }
        }
    }
}

/// Signals of pictures that are measured, where so many in a row are alike.
fn signals(criterion: &mut Criterion) {
    const PICTURES: u64 = 32;
    let mut group = criterion.benchmark_group("signals");
    group.throughput(Throughput::Elements(PICTURES));
    for (name, shot) in [("calm", 32), ("every picture a cut", 1)] {
        let frames: Vec<Frame> = (0..PICTURES)
            .map(|n| {
                TestPicture { fill: Fill::Random(n / shot), ..TestPicture::new(640, 360) }.frame()
            })
            .collect();
        let mut measured = Vec::new();
        CpuBackend::new().measure(&frames, &mut measured).expect("measurable");
        let (mut window, mut index) = (SignalWindow::new(AHEAD), 0);
        group.bench_function(name, |bench| {
            bench.iter(|| {
                for measurements in &measured {
                    let pts_ms = 33 * index as i64;
                    let stamp = FrameMeta { frame_index: index, source_frame_index: index, pts_ms };
                    window.push(stamp, measurements);
                    while let Some(signal) = window.poll() {
                        black_box(signal);
                    }
                    index += 1;
                }
            });
        });
    }
}

/// Decoding of a file of 640x360, or of the traffic camera's 1280x720 in the media folder.
fn decoding(criterion: &mut Criterion) {
    let path = clips::pick_one("street.mp4", "surv_traffic-camera.mp4");
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut group = criterion.benchmark_group("decoding");
    group.sample_size(10);
    let one_a_second = Sampling::Fixed(FrameRate::from_f64(1.0).expect("a rate"));
    for (name, sampling) in [("every frame", Sampling::Every), ("1 a second", one_a_second)] {
        let options = FileOptions { sampling, max_frames: u64::MAX, threads, plan: true };
        group.bench_function(name, |bench| {
            bench.iter(|| {
                let file = File::open(&path).expect("a clip");
                let demuxer =
                    Demuxer::open(Box::new(file), DemuxLimits::default()).expect("a video");
                let go_on = |frames| {
                    black_box(frames);
                    ControlFlow::Continue(())
                };
                let count = || {
                    FrameCollector::new(|_, frame| {
                        black_box(frame);
                        Ok(())
                    })
                };
                decode_file(&DecoderChain::software(), demuxer, &options, count, go_on)
                    .expect("decoded")
            });
        });
    }
}

fn event(run: RunId, frame_index: u64) -> NewEvent {
    let finding = FindingPayload {
        frame_index,
        pts_ms: frame_index as i64 * 33,
        confidence: Score::from_millionths((frame_index % 1_000_000) as u32),
        description: "A person in a red coat crosses the yard from left to right.".to_owned(),
        ..FindingPayload::default()
    };
    NewEvent { run, event: Event::Found(FindingKind::Vlm, finding) }
}

/// Appends batches of so many events, all at once, and waits until they are durable.
fn append_all(log: &Timeline, runs: u64, batches: u64, each: u64) {
    let (sender, receiver) = mpsc::sync_channel(batches as usize);
    for batch in 0..batches {
        let events = (0..each).map(|at| event(run((batch * each + at) % runs), batch)).collect();
        let sender = sender.clone();
        log.append(events, move |result| sender.send(result.map(drop)).expect("waited for"));
    }
    drop(sender);
    receiver.iter().for_each(|result| result.expect("the log takes it"));
}

fn appending(criterion: &mut Criterion) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("a log");
    let mut group = criterion.benchmark_group("timeline");
    for (name, batches, each) in
        [("append 1", 1, 1), ("append 64 at once", 64, 1), ("append 64 batches of 100", 64, 100)]
    {
        group.throughput(Throughput::Elements(batches * each));
        group.bench_function(name, |bench| bench.iter(|| append_all(&log, 64, batches, each)));
    }
}

/// A log of a million events of ten thousand runs.
fn million(dir: &Path) -> Timeline {
    let (log, _) = Timeline::open(dir, TimelineOptions::default()).expect("a log");
    (0..MILLION / 10_000).for_each(|_| append_all(&log, 10_000, 100, 100));
    log
}

fn reading(criterion: &mut Criterion) {
    const RUNS: u64 = 10_000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let written = LazyCell::new(|| drop(million(dir.path())));
    let log = LazyCell::new(|| {
        *written;
        Timeline::open(dir.path(), TimelineOptions::default()).expect("a log").0
    });
    let mut group = criterion.benchmark_group("timeline");
    group.sample_size(10);
    group.bench_function("reopen 1,000,000 events", |bench| {
        *written;
        bench.iter_with_large_drop(|| {
            Timeline::open(dir.path(), TimelineOptions::default()).expect("a log")
        });
    });
    group.sample_size(100);
    let mut number = 0;
    group.bench_function("read 100 events of a run", |bench| {
        let log = &*log;
        bench.iter(|| {
            number += 7;
            let events = log.read(run(number % RUNS), Seq(1), 100, None).expect("readable");
            assert_eq!(events.len(), 100);
        });
    });
    group.sample_size(10);
    group.bench_function("scan 1,000,000 heads", |bench| {
        let log = &*log;
        bench.iter(|| log.scan(|head| _ = black_box(head)));
    });
}

/// The signals of the longest ingest.
fn columns(criterion: &mut Criterion) {
    const SIGNALS: u64 = 500_000;
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
    let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("a log");
    let write = || {
        let mut writer = log.column_writer();
        for frame_index in 0..SIGNALS {
            let perceptual_hash = frame_index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
            let scene_score = Some(Score::from_millionths(frame_index as u32));
            let plain = Signal::plain(frame_index, frame_index as i64 * 33);
            writer.push(&Signal { perceptual_hash, scene_score, ..plain }).expect("written");
        }
        writer.finish().expect("written")
    };
    let mut group = criterion.benchmark_group("timeline");
    group.sample_size(10).throughput(Throughput::Elements(SIGNALS));
    group.bench_function("write a column", |bench| bench.iter_with_large_drop(write));
    let (signals, _lease) = write();
    group.bench_function("read a column", |bench| {
        bench.iter_with_large_drop(|| log.signals(&signals).expect("readable"));
    });
}

const WORDS: [&str; 24] = [
    "A", "person", "in", "a", "red", "coat", "crosses", "the", "yard", "from", "left", "to",
    "right", "while", "two", "white", "vans", "wait", "near", "Straße", "gate", "at", "night",
    "slowly",
];

/// About a hundred bytes, different each time.
fn description(number: u64) -> String {
    let mut random = fastrand::Rng::with_seed(number);
    let mut text = String::new();
    while text.len() < 90 {
        text.push_str(WORDS[random.usize(..WORDS.len())]);
        text.push(' ');
    }
    text + &number.to_string()
}

/// A million descriptions of a thousand runs, in memory and in the cache file; every processor takes part in a scan.
fn searching(criterion: &mut Criterion) {
    const RUNS: u64 = 1000;
    let threads = thread::available_parallelism().map_or(1, usize::from);
    let mut group = criterion.benchmark_group("search");
    group.sample_size(10);
    for (place, memory_bytes) in [("memory", 1 << 30), ("file", 8 << 20)] {
        let dir = tempfile::tempdir().expect("a directory");
        let index = LazyCell::new(|| {
            let limits = IndexLimits { memory_bytes, chunk_bytes: 1 << 20 };
            let mut index = SearchIndex::new(limits, &dir.path().join("cache")).expect("a file");
            for number in 0..MILLION {
                let run = run(number * RUNS / MILLION);
                index
                    .insert("alice", run, Seq(number + 1), &description(number))
                    .expect("room on disk");
            }
            index
        });
        for query in ["e", "zebra", "STRASSE", "red coat", "person in a 9"] {
            group.bench_function(BenchmarkId::new(place, query), |bench| {
                let index = &*index;
                bench.iter(|| {
                    let needle = FoldedPattern::new(query).expect("not empty");
                    let scan = index.scan("alice", (0..RUNS).map(run).collect(), needle, 50);
                    thread::scope(|scope| {
                        for _ in 0..threads {
                            let work = || scan.work().expect("readable");
                            thread::Builder::new().spawn_scoped(scope, work).expect("a thread");
                        }
                    });
                    scan.result().total_hits
                });
            });
        }
    }
}

/// Pictures of VP8 in six packets of 1,041 bytes each, 30 a second, in order and as they were sent.
fn receiving(criterion: &mut Criterion) {
    const PACKETS: u16 = 6;
    let mut receiver = RtpReceiver::new(Codec::Vp8, &[]).expect("served over RTP");
    let (mut now, mut datagram) = (std::time::Instant::now(), vec![0; 12 + 1042]);
    let (mut sequence, mut timestamp, mut pictures, mut units) = (0_u16, 0_u32, 0, 0);
    let mut group = criterion.benchmark_group("rtp");
    group.throughput(Throughput::Elements(u64::from(PACKETS)));
    group.bench_function("receive a picture of 6 packets", |bench| {
        bench.iter(|| {
            for part in 0..PACKETS {
                let is_last = part == PACKETS - 1;
                datagram[..2].copy_from_slice(&[0x80, if is_last { 0xe0 } else { 0x60 }]);
                datagram[2..4].copy_from_slice(&sequence.to_be_bytes());
                datagram[4..8].copy_from_slice(&timestamp.to_be_bytes());
                let begins = [0x10, 0, 0, 0, 0x9d, 0x01, 0x2a];
                datagram[12..19].copy_from_slice(if part == 0 { &begins } else { &[0; 7] });
                let packet = RtpPacket::parse(black_box(&datagram)).expect("well formed");
                receiver.packet(&packet, now);
                while let Some(output) = receiver.poll(now) {
                    units += usize::from(matches!(output, ReceiverOutput::Unit(_)));
                }
                sequence = sequence.wrapping_add(1);
            }
            pictures += 1;
            timestamp = timestamp.wrapping_add(3000);
            now += Duration::from_nanos(33_333_333);
        });
    });
    // The first is held until another shows that it was whole.
    assert!(units + 1 >= pictures, "{units} of {pictures}");
}

criterion_group! {
    name = functions;
    config = Criterion::default().warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = measuring, signals, decoding, appending, reading, columns, searching, receiving, http::serving
}
criterion_main!(functions);
