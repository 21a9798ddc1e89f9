//! Tests of sweeps over a real log with a simulated clock: removed and kept data, and quota charges.

use std::{
    path::{Path, PathBuf},
    sync::atomic::{AtomicI64, Ordering},
};

use media::{EventType, RequestId};
use timeline::{KeyframeStored, Timeline, TimelineOptions};

use super::*;
use crate::{
    base::quota::Quota,
    runs::registry::{RunLimits, tests::samples},
};

const REQUEST: RequestId = RequestId::from_bytes([7; 8]);
const HOUR_MS: i64 = 3_600_000;
const AGES: RetentionAges = RetentionAges {
    stills: Some(Duration::from_secs(3600)),
    deleted_runs: Some(Duration::from_secs(3600)),
    runs: Some(Duration::from_secs(3600)),
};

/// Log, stills and retention of a test; the log's clock moves only on request.
struct Bench {
    dir: tempfile::TempDir,
    clock: Arc<AtomicI64>,
    registry: Arc<RunRegistry>,
    blobs: BlobStore,
    metrics: Arc<Metrics>,
}

impl Bench {
    fn new() -> Bench {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(AtomicI64::new(HOUR_MS));
        let (registry, blobs) = open(dir.path(), &clock);
        Bench { dir, clock, registry, blobs, metrics: Arc::new(Metrics::new()) }
    }

    fn retention(&self, readers: Vec<ReaderLag>) -> Arc<Retention> {
        let clock = RetentionClock::starting(crate::base::clock::wall_now(), None);
        self.retention_by(clock, readers)
    }

    fn retention_by(&self, clock: RetentionClock, readers: Vec<ReaderLag>) -> Arc<Retention> {
        let (registry, blobs) = (Arc::clone(&self.registry), self.blobs.clone());
        let metrics = Arc::clone(&self.metrics);
        let retention = Retention::new(AGES, registry, blobs, metrics, readers, clock);
        retention.count_stored().expect("readable");
        retention
    }

    async fn run(&self) -> Arc<Run> {
        self.registry.create(samples::origin("alice"), None, REQUEST).await.expect("created")
    }

    async fn still(&self, run: &Arc<Run>, jpeg: &[u8]) -> PathBuf {
        let mut lease = self.blobs.lease();
        let hash = lease.put(jpeg).expect("stored");
        let event = Event::KeyframeStored(KeyframeStored {
            frame_index: 0,
            pts_ms: 0,
            event_type: EventType::SceneCut,
            reason: None,
            description: format!("of {hash}"),
            image_ref: String::new(),
            image_bytes: jpeg.len() as u64,
            image_sha256: hash,
            truncated: false,
        });
        self.registry.commit(run, vec![event]).await.expect("active");
        self.blobs.path(&hash)
    }

    fn later(&self, ms: i64) {
        self.clock.fetch_add(ms, Ordering::Relaxed);
    }

    fn stored_beside_the_log(&self) -> u64 {
        let mut log = HashMap::new();
        let timeline = self.registry.timeline();
        timeline.scan(|head| {
            log.insert(head.run, timeline.run_bytes(head.run));
        });
        self.registry.quota.total() - log.into_values().sum::<u64>()
    }
}

fn open(dir: &Path, clock: &Arc<AtomicI64>) -> (Arc<RunRegistry>, BlobStore) {
    let clock = Arc::clone(clock);
    let now = move || WallTime { epoch_ms: clock.load(Ordering::Relaxed) };
    let options = TimelineOptions { clock: Arc::new(now), ..TimelineOptions::default() };
    let (timeline, _) = Timeline::open(&dir.join("log"), options).expect("opened");
    let limits = RunLimits { active: 9, ttl: Duration::from_secs(86_400), tag: None };
    let quota = Quota::new(crate::base::quota::QuotaLimits::default(), None);
    let registry =
        RunRegistry::open(timeline, limits, quota, WallTime { epoch_ms: 0 }, &Default::default());
    let blobs = BlobStore::open(&dir.join("blobs"), None).expect("opened");
    (registry.expect("rebuilt"), blobs)
}

#[test]
fn purges_come_in_steps_of_an_eighth_of_the_age() {
    let age = Duration::from_millis(800);
    let at = |epoch_ms| stepped(ago(WallTime { epoch_ms }, age), age).epoch_ms;
    assert_eq!([at(1800), at(1899), at(1900)], [1000, 1000, 1100]);
    assert_eq!(stepped(WallTime { epoch_ms: 77 }, Duration::ZERO).epoch_ms, 77);
}

#[tokio::test]
async fn a_clock_that_runs_ahead_removes_nothing_before_the_log_has_moved() {
    // The system's clock is decades ahead of the log's last event.
    let bench = Bench::new();
    let run = bench.run().await;
    let still = bench.still(&run, b"a still").await;
    let ended = bench.run().await;
    bench.registry.stop(&ended, REQUEST).await.expect("active");
    let retention = bench.retention(Vec::new());
    let stop = CancellationToken::new();
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.stills.files, swept.runs_deleted), (0, 0));
    assert!(still.exists());
    assert_eq!(bench.blobs.removed_before().expect("readable"), Some(WallTime { epoch_ms: 0 }));
    bench.later(2 * HOUR_MS);
    bench.run().await;
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.stills.files, swept.runs_deleted), (1, 1));
    assert!(!still.exists());
    assert_eq!(
        bench.blobs.removed_before().expect("readable"),
        Some(WallTime { epoch_ms: 2 * HOUR_MS })
    );
}

#[tokio::test]
async fn a_jump_that_the_log_has_taken_over_removes_nothing() {
    let bench = Bench::new();
    let run = bench.run().await;
    let still = bench.still(&run, b"a still").await;
    let ended = bench.run().await;
    bench.registry.stop(&ended, REQUEST).await.expect("active");
    // The clock is right at the start; then it jumps, and an event is dated by the jumped clock.
    let clock = RetentionClock::starting(WallTime { epoch_ms: HOUR_MS }, None);
    let retention = bench.retention_by(clock, Vec::new());
    bench.later(48 * HOUR_MS);
    bench.run().await;
    let swept = retention.sweep(&CancellationToken::new()).await.expect("swept");
    assert_eq!((swept.stills.files, swept.runs_deleted), (0, 0));
    assert!(still.exists());
}

#[tokio::test]
async fn a_sweep_that_ends_early_leaves_no_still_charged() {
    let bench = Bench::new();
    let run = bench.run().await;
    bench.still(&run, &[1; 1000]).await;
    bench.later(2 * HOUR_MS);
    bench.still(&run, &[2; 30]).await;
    let retention = bench.retention(Vec::new());
    let now = retention.until(crate::base::clock::wall_now());
    let stopped = CancellationToken::new();
    stopped.cancel();
    let swept = retention.sweep_stills(now, &stopped).expect("swept");
    assert_eq!(swept.files, 0, "it stopped behind the mark that it left");
    assert!(bench.blobs.removed_before().expect("readable").is_some());
    for _ in 0..2 {
        retention.sweep_stills(now, &CancellationToken::new()).expect("swept");
        assert_eq!(bench.stored_beside_the_log(), 30, "the old one counts no more");
    }
}

#[tokio::test]
async fn stills_of_a_run_whose_owner_cannot_be_read_stay_until_their_age() {
    let mut bench = Bench::new();
    let run = bench.run().await;
    let still = bench.still(&run, b"of nobody").await;
    samples::damage(&bench.dir.path().join("log"), "alice");
    let (timeline, limits) = (bench.registry.timeline().clone(), bench.registry.limits);
    let (quota, now) = (Arc::clone(&bench.registry.quota), WallTime { epoch_ms: 0 });
    let rebuilt = RunRegistry::open(timeline, limits, quota, now, &Default::default());
    bench.registry = rebuilt.expect("rebuilt");
    bench.later(2 * HOUR_MS);
    let (retention, stop) = (bench.retention(Vec::new()), CancellationToken::new());
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.stills.files, still.exists()), (0, true));
    bench.run().await;
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.stills.files, still.exists()), (1, false), "past its age");
}

#[tokio::test]
async fn a_damaged_event_is_passed_over_and_what_it_may_name_stays() {
    let bench = Bench::new();
    let run = bench.run().await;
    let old = bench.still(&run, b"old").await;
    bench.later(2 * HOUR_MS);
    let damaged = bench.still(&run, b"its event is damaged").await;
    let kept = bench.still(&run, b"kept").await;
    let hash = damaged.file_name().expect("a name").to_string_lossy().into_owned();
    samples::damage(&bench.dir.path().join("log"), &format!("of {hash}"));
    let retention = bench.retention(Vec::new());
    assert_eq!(bench.metrics.retention_unreadable.get(), 1, "at start");
    let swept = retention.sweep(&CancellationToken::new()).await.expect("swept");
    assert_eq!(swept.stills.files, 1, "the old one alone");
    assert_eq!([old, damaged, kept].map(|still| still.exists()), [false, true, true]);
    assert!(bench.metrics.retention_unreadable.get() > 1);
    assert_eq!(bench.metrics.retention_failures.get(), 0);
}

#[tokio::test]
async fn what_a_reader_was_not_given_is_neither_deleted_nor_purged() {
    let bench = Bench::new();
    let (ended, deleted) = (bench.run().await, bench.run().await);
    bench.registry.stop(&ended, REQUEST).await.expect("active");
    bench.registry.delete(&deleted, REQUEST).await.expect("there");
    bench.later(3 * HOUR_MS);
    bench.run().await;
    let (ended, deleted) = (ended.id(), deleted.id());
    let behind: Arc<Mutex<HashSet<RunId>>> = Arc::new(Mutex::new([ended, deleted].into()));
    let told = Arc::clone(&behind);
    let reader: ReaderLag = Box::new(move || Ok(told.lock().clone()));
    let retention = bench.retention(vec![reader]);
    let stop = CancellationToken::new();
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.runs_deleted, swept.log.events_removed), (0, 0));
    behind.lock().clear();
    let swept = retention.sweep(&stop).await.expect("swept");
    assert_eq!((swept.runs_deleted, swept.log.events_removed), (1, 2));
    assert!(bench.registry.timeline().heads_of(deleted, media::Seq(0), 9).is_empty());
}
