//! Events to append and to compare with.

use std::{
    fs,
    io::{BufRead, BufReader, Lines, Write, stdin},
    ops::Range,
    path::{Path, PathBuf},
    process::{Child, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use media::{Activity, CellBox, RunId, Score, Seq, Signal, WallTime};
use tempfile::TempDir;
use timeline::{
    Event, EventKind, EventMeta, FindingKind, FindingPayload, FramesDecoded, NewEvent, RunDeleted,
    Signals, StoredEvent, Timeline, TimelineOptions,
};

pub fn run(number: u8) -> RunId {
    RunId::from_bytes([number; 16])
}

/// Returns a finding of run `number` with the description `text`.
pub fn found(number: u8, text: &str) -> NewEvent {
    let finding = FindingPayload {
        frame_index: 7,
        pts_ms: 280,
        confidence: Score::from_millionths(900_000),
        description: text.to_owned(),
        ..FindingPayload::default()
    };
    NewEvent { run: run(number), event: Event::Found(FindingKind::Vlm, finding) }
}

pub fn deleted(number: u8) -> NewEvent {
    let event = Event::RunDeleted(RunDeleted { request_id: None, reclaim: None });
    NewEvent { run: run(number), event }
}

pub fn description(event: &StoredEvent) -> String {
    match event.decode().unwrap() {
        Event::Found(FindingKind::Vlm, finding) => finding.description,
        other => panic!("not a finding: {other:?}"),
    }
}

pub fn frames(number: u8, signals: Signals) -> NewEvent {
    let payload = r#"{"request_id":"req-0123456789abcdef","source_uri":"/media/yard.mp4","stream_id":"yard","sampling_policy":"fixed","source_fps":30.0,"sample_fps":2.0,"decoded_frames":0,"width":1280,"height":720,"pixel_format":"yuv420p","signals":[]}"#;
    let (run, kind, payload) = (run(number), EventKind::FramesDecoded, payload.into());
    let head = EventMeta { seq: Seq(1), at: WallTime { epoch_ms: 0 }, run, kind };
    let stored = StoredEvent { head, payload };
    let Ok(Event::FramesDecoded(frames)) = stored.decode() else { panic!("{stored:?}") };
    let frames = FramesDecoded { decoded_frames: signals.count(), signals, ..frames };
    NewEvent { run, event: Event::FramesDecoded(frames) }
}

pub fn signal(index: u64) -> Signal {
    let score = |step: u64| Score::from_millionths((index * step % 1_000_001) as u32);
    Signal {
        frame_index: index,
        source_frame_index: (!index.is_multiple_of(3)).then_some(index * 15),
        pts_ms: index as i64 * 500 - 40,
        perceptual_hash: index.wrapping_mul(0x9e37_79b9_7f4a_7c15),
        luma_mean: score(7),
        flicker_score: score(11),
        ghosting_score: score(13),
        noise_variance_score: score(100),
        scene_score: (!index.is_multiple_of(5)).then_some(score(1)),
        activity: (!index.is_multiple_of(4)).then(|| Activity {
            score: score(17),
            region: CellBox { left: (index % 64) as u8, top: 3, right: 64, bottom: 40 },
            zones: index as u16,
        }),
    }
}

/// Opens a new log of [`small`] files.
pub fn new_log() -> (TempDir, Timeline) {
    let dir = TempDir::new().unwrap();
    let (log, recovery) = Timeline::open(dir.path(), small()).unwrap();
    assert_eq!((recovery.events, recovery.torn), (0, None));
    (dir, log)
}

/// Stores these signals; they stay as long as the second value.
pub fn stored(log: &Timeline, rows: Range<u64>) -> (Signals, impl Sized + use<>) {
    let mut writer = log.column_writer();
    rows.for_each(|index| writer.push(&signal(index)).unwrap());
    writer.finish().unwrap()
}

/// Returns the files of the journal below `dir`, in order.
pub fn journal_files(dir: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(dir.join("journal")).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

/// Flips a bit of the byte at `at`.
pub fn flip(file: &Path, at: usize) {
    let mut bytes = fs::read(file).unwrap();
    bytes[at] ^= 0x10;
    fs::write(file, bytes).unwrap();
}

/// Returns every event of the log in order, across gaps of purged ones.
pub fn events(log: &Timeline) -> Vec<StoredEvent> {
    let mut heads: Vec<EventMeta> = Vec::new();
    log.scan(|head| heads.push(head));
    let event = |head: EventMeta| {
        let event = log.get(head.seq).unwrap().unwrap();
        assert_eq!(event.head, head);
        event
    };
    heads.into_iter().map(event).collect()
}

/// Returns every event of a log without purges, in order.
pub fn all(log: &Timeline) -> Vec<StoredEvent> {
    let events = events(log);
    for (event, seq) in events.iter().zip(1..) {
        assert_eq!(event.head.seq, Seq(seq), "seqs have no gap");
    }
    events
}

pub fn texts(log: &Timeline) -> Vec<String> {
    all(log).iter().map(description).collect()
}

/// Returns sizes so small that a handful of events exceeds them.
pub fn small() -> TimelineOptions {
    let clock = ticking();
    TimelineOptions {
        file_bytes: 4096,
        grow_bytes: 1024,
        spare_bytes: 0,
        clock,
        ..TimelineOptions::default()
    }
}

/// Returns a clock that advances by a millisecond on each read.
pub fn ticking() -> Arc<dyn Fn() -> WallTime + Send + Sync> {
    let now = AtomicI64::new(1_700_000_000_000);
    Arc::new(move || WallTime { epoch_ms: now.fetch_add(1, Ordering::Relaxed) })
}

pub fn head_of(log: &Timeline, number: u8, kind: EventKind) -> Option<Seq> {
    log.latest(run(number), kind).map(|head| head.seq)
}

/// Starts the ignored test `name` as a process that works in `dir`; returns it with what it prints.
pub fn start(name: &str, dir: &Path) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--ignored", "--nocapture"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    writeln!(child.stdin.take().unwrap(), "{}", dir.display()).unwrap();
    let output = BufReader::new(child.stdout.take().unwrap());
    (child, output.lines())
}

/// Returns the directory of a process that [`start`] started.
pub fn started_in() -> PathBuf {
    let mut dir = String::new();
    stdin().read_line(&mut dir).unwrap();
    assert!(!dir.is_empty(), "started by another test, which names a directory");
    dir.trim_end().into()
}
