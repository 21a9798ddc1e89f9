//! What the service removes by itself: old runs, records of deleted runs, stills past their age,
//! and files that no event names.
//!
//! One sweep at start and then every hour, slow on purpose. Stills that nobody can fetch go with
//! the next sweep, records and columns of a deleted run after its age. A sweep that fails is
//! logged and counted; the next one does what it left.

use std::{
    collections::HashSet,
    ops::ControlFlow,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use media::{BlobHash, RunId, WallTime};
use timeline::{BlobStore, Compaction, Event, EventHead, EventKind, Swept, TimelineError};
use tokio_util::sync::CancellationToken;

use crate::{
    metrics::{Metrics, StoredFile},
    session::registry::{Registry, Run},
};

/// Time from one sweep to the next.
const EVERY: Duration = Duration::from_secs(3600);
/// Bytes that a sweep writes in a second.
const BYTES_PER_SECOND: u32 = 32 << 20;
/// Events that a sweep reads before it rests.
const EVENTS_A_STEP: usize = 256;
/// How long it rests after a step.
const REST: Duration = Duration::from_millis(1);

/// Ages after which things go; `None` is never.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ages {
    /// Of a still, counted from its event.
    pub stills: Option<Duration>,
    /// Of the records of a deleted run, counted from its deletion.
    pub deleted_runs: Option<Duration>,
    /// Of a run that has ended, counted from its last event.
    pub runs: Option<Duration>,
}

/// Removes what is old or unused.
pub struct Retention {
    ages: Ages,
    registry: Arc<Registry>,
    blobs: BlobStore,
    metrics: Arc<Metrics>,
}

/// What one sweep did.
#[derive(Clone, Copy, Debug, Default)]
struct Sweep {
    runs_deleted: u64,
    log: Compaction,
    stills: Swept,
    columns: Swept,
}

impl Retention {
    /// What goes by `ages`.
    pub fn new(
        ages: Ages,
        registry: Arc<Registry>,
        blobs: BlobStore,
        metrics: Arc<Metrics>,
    ) -> Arc<Retention> {
        Arc::new(Retention { ages, registry, blobs, metrics })
    }

    /// Charges the owners of runs for the stills and columns that were stored before this start.
    pub fn count_stored(&self) -> Result<(), TimelineError> {
        let kept_from = self.blobs.removed_before()?;
        let kinds = [EventKind::KeyframeStored, EventKind::FramesDecoded];
        self.read(
            &kinds,
            || ControlFlow::Continue(()),
            |head, event| {
                let bytes = match event {
                    Event::KeyframeStored(still)
                        if kept_from.is_none_or(|from| head.at >= from) =>
                    {
                        still.image_bytes
                    }
                    Event::FramesDecoded(decoded) => decoded.signals.column_bytes(),
                    _ => 0,
                };
                if let Some(run) = self.shown(head.run) {
                    run.record_stored(bytes, self.registry.quota());
                }
            },
        )
    }

    /// Sweeps now and then every hour, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let mut tick = tokio::time::interval(EVERY);
        while stop.run_until_cancelled(tick.tick()).await.is_some() {
            let started = Instant::now();
            let swept = self.sweep(&stop).await;
            self.metrics.retention_seconds.observe(started.elapsed().as_secs_f64());
            match swept {
                Ok(swept) => self.tell(&swept, started.elapsed()),
                Err(error) => {
                    self.metrics.retention_failures.inc();
                    tracing::error!(%error, "a retention sweep failed, the next one goes on");
                }
            }
        }
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

    async fn sweep(self: &Arc<Self>, stop: &CancellationToken) -> Result<Sweep, TimelineError> {
        let now = crate::clock::wall_now();
        let mut swept = Sweep::default();
        if let Some(age) = self.ages.runs {
            swept.runs_deleted = self.registry.delete_ended_before(ago(now, age), stop).await;
        }
        let (retention, stop) = (Arc::clone(self), stop.clone());
        let work = tokio::task::spawn_blocking(move || {
            swept.log = retention.purge(now, &stop)?;
            swept.stills = retention.sweep_stills(now, &stop)?;
            swept.columns = retention.registry.timeline().sweep_columns()?;
            Ok(swept)
        });
        work.await.unwrap_or(Err(TimelineError::Closed))
    }

    /// Removes the records of runs that were deleted long enough ago.
    fn purge(&self, now: WallTime, stop: &CancellationToken) -> Result<Compaction, TimelineError> {
        let timeline = self.registry.timeline();
        let purged = self
            .ages
            .deleted_runs
            .map(|age| timeline.deleted_before(stepped(ago(now, age), age)))
            .unwrap_or_default();
        let pace = |bytes: usize| {
            thread::sleep(Duration::from_secs(1) * bytes as u32 / BYTES_PER_SECOND);
            going(stop)
        };
        let done = timeline.compact(&purged, &mut { pace })?;
        if !done.stopped {
            self.registry.forget(&purged);
        }
        Ok(done)
    }

    /// Removes the stills that are past their age, and those that no run to be seen names.
    fn sweep_stills(
        &self,
        now: WallTime,
        stop: &CancellationToken,
    ) -> Result<Swept, TimelineError> {
        let Some(sweep) = self.blobs.sweep() else { return Ok(Swept::default()) };
        let before = self.blobs.removed_before()?;
        let kept_from = self.ages.stills.map(|age| ago(now, age)).max(before);
        if let Some(from) = kept_from.filter(|_| kept_from > before) {
            self.blobs.remember_removed_before(from)?;
        }
        // The start of a hash is enough: two that share it keep each other, nothing more.
        let mut named: HashSet<u64> = HashSet::new();
        let mut stopped = false;
        let step = || {
            thread::sleep(REST);
            stopped |= stop.is_cancelled();
            going(stop)
        };
        self.read(&[EventKind::KeyframeStored], step, |head, event| {
            let Event::KeyframeStored(still) = event else { return };
            let Some(run) = self.shown(head.run) else { return };
            if kept_from.is_none_or(|from| head.at >= from) {
                named.insert(start_of(&still.image_sha256));
            } else if before.is_none_or(|before| head.at >= before) {
                run.release_stored(still.image_bytes, self.registry.quota());
            }
        })?;
        if stopped {
            return Ok(Swept::default());
        }
        sweep.finish(|hash| named.contains(&start_of(hash)), || thread::sleep(REST))
    }

    /// The run `id`, unless it is deleted.
    fn shown(&self, id: RunId) -> Option<Arc<Run>> {
        self.registry.run(id).filter(|run| run.lifecycle().is_visible())
    }

    /// Calls `visit` with every event of `kinds`, and `step` now and then.
    fn read(
        &self,
        kinds: &[EventKind],
        mut step: impl FnMut() -> ControlFlow<()>,
        mut visit: impl FnMut(EventHead, Event),
    ) -> Result<(), TimelineError> {
        let timeline = self.registry.timeline();
        let mut seqs = Vec::new();
        timeline.scan(|head| seqs.extend(kinds.contains(&head.kind).then_some(head.seq)));
        for seqs in seqs.chunks(EVENTS_A_STEP) {
            for seq in seqs {
                if let Some(parts) = timeline.get_parts(*seq)? {
                    visit(parts.head, parts.decode()?);
                }
            }
            if step().is_break() {
                break;
            }
        }
        Ok(())
    }
}

fn going(stop: &CancellationToken) -> ControlFlow<()> {
    if stop.is_cancelled() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
}

fn start_of(hash: &BlobHash) -> u64 {
    let mut start = [0; 8];
    start.copy_from_slice(&hash.as_bytes()[..8]);
    u64::from_le_bytes(start)
}

fn ago(now: WallTime, age: Duration) -> WallTime {
    let age_ms = i64::try_from(age.as_millis()).unwrap_or(i64::MAX);
    WallTime { epoch_ms: now.epoch_ms.saturating_sub(age_ms) }
}

/// `at` moved back to a multiple of an eighth of `age`: a log file is rewritten no more often.
fn stepped(at: WallTime, age: Duration) -> WallTime {
    let step = i64::try_from(age.as_millis() / 8).unwrap_or(i64::MAX).max(1);
    WallTime { epoch_ms: at.epoch_ms.div_euclid(step) * step }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn purges_come_in_steps_of_an_eighth_of_the_age() {
        let age = Duration::from_millis(800);
        let at = |epoch_ms| stepped(ago(WallTime { epoch_ms }, age), age).epoch_ms;
        assert_eq!([at(1800), at(1899), at(1900)], [1000, 1000, 1100]);
        assert_eq!(stepped(WallTime { epoch_ms: 77 }, Duration::ZERO).epoch_ms, 77);
    }
}
