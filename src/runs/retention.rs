//! Retention: removes old runs, records of deleted runs, stills past their age, and unreferenced files.
//!
//! One sweep at startup, every hour and soon after a deletion, slow on purpose. Stills that nobody can fetch
//! go with the next sweep; records and columns of a deleted run go after its age, or once they take too much
//! of the owner's quota; runs with events that a log reader has not read yet stay. Ages end at the log's last
//! event and follow a `RetentionClock`: a clock that runs ahead removes nothing. A failed sweep is counted
//! and continued by the next. Long because its parts share what they find.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use media::{BlobHash, RunId, WallTime};
use parking_lot::Mutex;
use timeline::{
    BlobStore, CompactionStats, Event, EventKind, EventMeta, SweepStats, TimelineError,
};
use tokio_util::sync::CancellationToken;

use super::registry::{Run, RunRegistry};
use crate::base::{
    blocking::{TaskPanicked, blocking},
    clock::RetentionClock,
    every,
    meta_store::MetaStoreError,
    metrics::{Metrics, StoredFile},
};

/// Interval of sweeps.
const EVERY: Duration = Duration::from_secs(3600);
/// Delay from a deletion to its sweep, to cover further deletions.
const SOON: Duration = Duration::from_secs(1);
/// Delay to the next sweep after one that left files in the object store.
const AGAIN: Duration = Duration::from_secs(60);
/// Minimum pause before the sweep of a deletion, as a multiple of the last sweep's duration.
const REST_FACTOR: u32 = 10;
/// Bytes per second that a sweep may write.
const BYTES_PER_SECOND: u32 = 32 << 20;
/// Events that a sweep reads between pauses.
const EVENTS_A_STEP: usize = 256;
/// Pause of a sweep after each step.
const REST: Duration = Duration::from_millis(1);

/// Ages after which data is removed; `None` keeps it for ever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RetentionAges {
    /// Age of a still, counted from its event.
    pub stills: Option<Duration>,
    /// Age of the records of a deleted run, counted from its deletion.
    pub deleted_runs: Option<Duration>,
    /// Age of a run that has ended, counted from its last event.
    pub runs: Option<Duration>,
}

/// Function that returns the runs with events that a log reader has not read yet.
pub type ReaderLag = Box<dyn Fn() -> Result<HashSet<RunId>, MetaStoreError> + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum RetentionError {
    #[error(transparent)]
    Store(#[from] TimelineError),
    /// The cursors of log readers cannot be read.
    #[error("cannot read the cursors of the log's consumers: {0}")]
    Behind(#[from] MetaStoreError),
    /// The task of the sweep panicked: a bug.
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

/// Removes old and unreferenced data.
pub struct Retention {
    ages: RetentionAges,
    registry: Arc<RunRegistry>,
    blobs: BlobStore,
    metrics: Arc<Metrics>,
    readers: Vec<ReaderLag>,
    clock: RetentionClock,
    /// Stills of events before this time are not charged to their owners.
    released_before: Mutex<Option<WallTime>>,
}

#[derive(Clone, Debug, Default)]
struct Sweep {
    runs_deleted: u64,
    log: CompactionStats,
    stills: SweepStats,
    columns: SweepStats,
}

impl Retention {
    pub fn new(
        ages: RetentionAges,
        registry: Arc<RunRegistry>,
        blobs: BlobStore,
        metrics: Arc<Metrics>,
        readers: Vec<ReaderLag>,
        clock: RetentionClock,
    ) -> Arc<Retention> {
        let released_before = Mutex::default();
        Arc::new(Retention { ages, registry, blobs, metrics, readers, clock, released_before })
    }

    /// Charges the owners of runs for stills and columns stored before this start.
    pub fn count_stored(&self) -> Result<(), TimelineError> {
        let kept_from = self.blobs.removed_before()?;
        let kinds = [EventKind::KeyframeStored, EventKind::FramesDecoded];
        *self.released_before.lock() = kept_from;
        let unreadable = self.read(
            &kinds,
            || ControlFlow::Continue(()),
            |head, event| {
                let Some(run) = self.registry.run(head.run) else { return };
                // Stills of a deleted run are removed by a sweep, past or next.
                let is_shown = run.lifecycle().is_visible();
                let (column_bytes, still_bytes) = match event {
                    Event::KeyframeStored(still)
                        if kept_from.is_none_or(|from| head.at >= from)
                            && (is_shown || self.blobs.has(&still.image_sha256)) =>
                    {
                        (0, still.image_bytes)
                    }
                    Event::FramesDecoded(decoded) => (decoded.signals.column_bytes(), 0),
                    _ => return,
                };
                run.record_stored(column_bytes, still_bytes, &self.registry.quota);
            },
        );
        if unreadable > 0 {
            tracing::error!(
                unreadable,
                "unreadable events: the files that they reference are charged to no quota"
            );
        }
        Ok(())
    }

    /// Sweeps at once, then every hour and soon after deletions, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        // After a suspend of the machine, one sweep replaces the missed ones.
        let mut tick = every(EVERY);
        let mut rest = SOON;
        let mut leaves_some = false;
        loop {
            let after_a_deletion = async {
                self.registry.deletions().await;
                tokio::time::sleep(rest).await;
            };
            let is_due = tokio::select! {
                _ = tick.tick() => true,
                () = after_a_deletion => self.registry.has_leftovers(),
                () = tokio::time::sleep(AGAIN.max(rest)), if leaves_some => true,
                () = stop.cancelled() => return,
            };
            if !is_due {
                continue;
            }
            let started = Instant::now();
            let swept = self.sweep(&stop).await;
            self.metrics.retention_seconds.observe(started.elapsed().as_secs_f64());
            rest = SOON.max(started.elapsed() * REST_FACTOR);
            match swept {
                Ok(swept) => {
                    let parts = [&swept.stills, &swept.columns];
                    leaves_some = parts.iter().any(|part| part.left.is_some());
                    self.tell(&swept, started.elapsed());
                }
                Err(error) => self.failed(&error),
            }
        }
    }

    fn failed(&self, error: &RetentionError) {
        self.metrics.retention_failures.inc();
        tracing::error!(%error, "a retention sweep failed, the next one goes on");
    }

    fn tell(&self, swept: &Sweep, took: Duration) {
        let Sweep { runs_deleted, log, stills, columns } = swept;
        let counted = &self.metrics;
        counted.retention_runs.inc_by(*runs_deleted);
        counted.retention_events.inc_by(log.events_removed);
        for (kind, swept) in [(StoredFile::Still, stills), (StoredFile::Column, columns)] {
            counted.retention_files.of(kind).inc_by(swept.files);
            counted.retention_bytes.of(kind).inc_by(swept.bytes);
        }
        tracing::info!(
            runs_deleted,
            events_purged = log.events_removed,
            log_files = log.files_before,
            stills = stills.files,
            columns = columns.files,
            bytes = stills.bytes + columns.bytes,
            ?took,
            "retention swept"
        );
    }

    async fn sweep(self: &Arc<Self>, stop: &CancellationToken) -> Result<Sweep, RetentionError> {
        let retention = Arc::clone(self);
        let looked = move || (retention.until(retention.clock.now()), retention.behind());
        let (now, behind) = blocking(looked).await?;
        let mut swept = Sweep::default();
        if let (Some(age), Ok(behind)) = (self.ages.runs, &behind) {
            let before = ago(now, age);
            swept.runs_deleted = self.registry.delete_ended_before(before, behind, stop).await;
        }
        let (retention, stop) = (Arc::clone(self), stop.clone());
        blocking(move || {
            // Each part runs even if another fails: one damaged file must not keep all others.
            let purged = behind
                .map_err(RetentionError::from)
                .and_then(|behind| Ok(retention.purge(now, &behind, &stop)?));
            let stills = retention.sweep_stills(now, &stop);
            let columns = retention.registry.timeline().sweep_columns();
            swept.stills = retention.done(stills.map_err(RetentionError::from));
            swept.columns = retention.done(columns.map_err(RetentionError::from));
            swept.log = purged?;
            Ok(swept)
        })
        .await?
    }

    fn done(&self, part: Result<SweepStats, RetentionError>) -> SweepStats {
        let swept = part.unwrap_or_else(|error| {
            self.failed(&error);
            SweepStats::default()
        });
        if let Some(error) = &swept.left {
            self.metrics.retention_failures.inc();
            tracing::warn!(%error, "removed files stay in the object store until a later sweep");
        }
        swept
    }

    /// Time up to which ages are counted: `now`, but at most the time of the log's last event.
    fn until(&self, now: WallTime) -> WallTime {
        self.registry.timeline().last_at().map_or(now, |last| now.min(last))
    }

    /// Runs with events that some log reader has not read yet.
    fn behind(&self) -> Result<HashSet<RunId>, MetaStoreError> {
        let mut runs = HashSet::new();
        for behind in &self.readers {
            runs.extend(behind()?);
        }
        Ok(runs)
    }

    /// Removes the records of runs deleted long enough ago, except `behind`.
    fn purge(
        &self,
        now: WallTime,
        behind: &HashSet<RunId>,
        stop: &CancellationToken,
    ) -> Result<CompactionStats, TimelineError> {
        let timeline = self.registry.timeline();
        let deleted = self
            .ages
            .deleted_runs
            .map(|age| timeline.deleted_before(stepped(ago(now, age), age)))
            .unwrap_or_default();
        let rests = |run: &RunId| self.registry.run(*run).is_none_or(|run| run.is_at_rest());
        let old = deleted.into_iter().filter(rests);
        let purged = old.chain(self.registry.deleted_in_the_way());
        let mut purged: HashSet<RunId> = purged.filter(|run| !behind.contains(run)).collect();
        let pace = |bytes: usize| {
            thread::sleep(Duration::from_secs(1) * bytes as u32 / BYTES_PER_SECOND);
            going(stop)
        };
        let done = timeline.compact(&purged, &mut { pace });
        // A stop or damage leaves events of some.
        purged.retain(|run| timeline.run_bytes(*run) == 0);
        self.registry.forget(&purged);
        done
    }

    /// Removes stills past their age, and stills that neither a visible run nor one without a known owner references.
    fn sweep_stills(
        &self,
        now: WallTime,
        stop: &CancellationToken,
    ) -> Result<SweepStats, TimelineError> {
        // Must come before the sweep begins, which spares later stills, charged since.
        let deleted = self.registry.deleted_stills();
        let Some(sweep) = self.blobs.sweep() else { return Ok(SweepStats::default()) };
        let before = self.blobs.removed_before()?;
        let kept_from = self.ages.stills.map(|age| ago(now, age)).max(before);
        if let Some(from) = kept_from.filter(|_| kept_from > before) {
            self.blobs.remember_removed_before(from)?;
        }
        let released = *self.released_before.lock();
        let (mut named, unowned) = (HashSet::new(), self.registry.unowned());
        let mut releases: HashMap<RunId, (Arc<Run>, u64)> = HashMap::new();
        let unreadable = self.read_stills(stop, |head, hash, bytes| {
            let is_young = kept_from.is_none_or(|from| head.at >= from);
            // Nobody is served a run without a known owner, but its events are kept, and so are its stills.
            if is_young && unowned.contains(&head.run) {
                named.insert(start(hash));
                return;
            }
            let Some(run) = self.shown(head.run) else { return };
            if is_young {
                named.insert(start(hash));
            } else if released.is_none_or(|released| head.at >= released) {
                releases.entry(head.run).or_insert((run, 0)).1 += bytes;
            }
        });
        // An unreadable event may reference any still: then only stills that another event names are removed.
        let mut over = HashSet::new();
        if unreadable > 0 {
            tracing::error!(unreadable, "stills that no event names stay where they are");
            self.read_stills(stop, |_, hash, _| _ = over.insert(start(hash)));
        }
        if stop.is_cancelled() {
            return Ok(SweepStats::default());
        }
        // Released only after the complete read, and once, whatever fails later.
        for (run, bytes) in releases.into_values() {
            run.release_stills(bytes, &self.registry.quota);
        }
        *self.released_before.lock() = kept_from;
        let stays = |hash: &BlobHash| {
            named.contains(&start(hash)) || unreadable > 0 && !over.contains(&start(hash))
        };
        let swept = sweep.finish(stays, || thread::sleep(REST))?;
        for (run, bytes) in deleted {
            run.release_stills(bytes, &self.registry.quota);
        }
        Ok(swept)
    }

    /// Calls `visit` with every readable event of a still, until `stop`; returns the number of
    /// unreadable events.
    fn read_stills(
        &self,
        stop: &CancellationToken,
        mut visit: impl FnMut(EventMeta, &BlobHash, u64),
    ) -> u64 {
        let step = || {
            thread::sleep(REST);
            going(stop)
        };
        self.read(&[EventKind::KeyframeStored], step, |head, event| {
            if let Event::KeyframeStored(still) = event {
                visit(head, &still.image_sha256, still.image_bytes);
            }
        })
    }

    /// Returns the run `id`, unless it is deleted.
    fn shown(&self, id: RunId) -> Option<Arc<Run>> {
        self.registry.run(id).filter(|run| run.lifecycle().is_visible())
    }

    /// Calls `visit` with every readable event of `kinds`, and `step` periodically. Returns the
    /// number of unreadable events, each of which is logged and counted.
    fn read(
        &self,
        kinds: &[EventKind],
        mut step: impl FnMut() -> ControlFlow<()>,
        mut visit: impl FnMut(EventMeta, Event),
    ) -> u64 {
        let timeline = self.registry.timeline();
        let (mut seqs, mut unreadable) = (Vec::new(), 0);
        timeline.scan(|head| seqs.extend(kinds.contains(&head.kind).then_some(head.seq)));
        for seqs in seqs.chunks(EVENTS_A_STEP) {
            for seq in seqs {
                let read = timeline.get_parts(*seq).and_then(|parts| {
                    parts.map(|parts| Ok((parts.head, parts.decode()?))).transpose()
                });
                match read {
                    Ok(Some((head, event))) => visit(head, event),
                    Ok(None) => {}
                    Err(error) => {
                        unreadable += 1;
                        self.metrics.retention_unreadable.inc();
                        tracing::error!(%seq, %error, "retention skipped an unreadable event");
                    }
                }
            }
            if step().is_break() {
                break;
            }
        }
        unreadable
    }
}

fn going(stop: &CancellationToken) -> ControlFlow<()> {
    if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

/// Start of a hash, small enough for sets of millions: a collision only keeps a still longer.
fn start(hash: &BlobHash) -> [u8; 8] {
    *hash.as_bytes().first_chunk().expect("a hash is longer")
}

fn ago(now: WallTime, age: Duration) -> WallTime {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    WallTime { epoch_ms: now.epoch_ms.saturating_sub(age_ms) }
}

/// Rounds `at` down to a multiple of an eighth of `age`, so that a log file is rewritten no more often.
fn stepped(at: WallTime, age: Duration) -> WallTime {
    let step = i64::try_from(age.as_millis() / 8).unwrap_or(i64::MAX).max(1);
    WallTime { epoch_ms: at.epoch_ms.div_euclid(step) * step }
}

#[cfg(test)]
mod tests;
