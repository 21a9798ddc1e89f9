//! Export: the log as Parquet files in a directory or an object store, part by part.
//!
//! A part is a span of one day's events that takes no more: its end is durable before its files are written, so that a
//! repeat writes the same bytes under the same names. At least once: the cursor moves after the files are in their
//! place. A place that is away delays, and keeps retention from removing what it lacks.

mod part;
mod place;

use std::{collections::HashSet, io, path::PathBuf, sync::Arc, time::Duration};

use gate::GateConfig;
use media::{RunId, Seq, WallTime};
use tables::TableError;
use timeline::{EventMeta, Timeline, TimelineError};
use tokio_util::sync::CancellationToken;

use crate::{
    base::{
        backoff::{Backoff, jitter},
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
        meta_store::{MetaStore, MetaStoreError},
        metrics::Metrics,
    },
    deliver::{node, objects::Access, outbox::Cursors},
};
use part::Part;

pub use place::Place;

/// Time from one look at the log to the next.
const EVERY: Duration = Duration::from_secs(1);
/// Delays after failures.
const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(60) };
/// Numbers looked at in one step.
const STEP: usize = 4096;
/// Events that make a part, whatever their age.
const PART_EVENTS: u64 = 1 << 16;

/// Place that is configured for the files.
#[derive(Clone, Debug)]
pub enum Target {
    /// A directory.
    Directory(PathBuf),
    /// A place in an object store.
    Store(Access),
}

/// Place of the files, and the age at which they are written.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Place that they go to.
    pub place: Target,
    /// Most time that an event waits for its part.
    pub age: Duration,
    /// Tag of this server in the files' names; its own random name where there is none.
    pub tag: Option<String>,
}

/// Reason for which a part is not exported yet.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The log cannot be read.
    #[error(transparent)]
    Log(#[from] TimelineError),
    /// A cursor cannot be read or moved.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    /// A file cannot be made beside the log.
    #[error(transparent)]
    File(#[from] TableError),
    /// The place does not take a file.
    #[error("SERVICE_EXPORT_URL: {name} is not written: {source}")]
    Place {
        /// Name of the file.
        name: String,
        /// The answer of the place.
        source: io::Error,
    },
    /// Another server exports under the same tag.
    #[error(
        "SERVICE_EXPORT_URL has files of another server under the tag {tag}: give this one another \
         SERVICE_NODE_TAG, or remove nodes/{tag} there if that one is gone for good"
    )]
    Taken {
        /// The tag.
        tag: String,
    },
    /// Our own bug.
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

/// Writes the log to its place.
pub struct Export {
    timeline: Timeline,
    cursors: Cursors,
    metrics: Arc<Metrics>,
    place: Place,
    age: Duration,
    /// Thresholds of recordings that name none.
    gate: GateConfig,
    /// Folder for files under way.
    scratch: PathBuf,
    /// Name that no other server has.
    name: String,
    /// Name in the paths of files.
    tag: String,
    /// Names of the cursors: of the first event that is not exported, and of the end of the part under way.
    next: String,
    end: String,
}

impl Export {
    /// An export that has written nothing yet; files under way are in `scratch`, and those of before are removed.
    pub fn open(
        settings: Settings,
        place: Place,
        timeline: Timeline,
        ledger: MetaStore,
        metrics: Arc<Metrics>,
        gate: GateConfig,
        scratch: PathBuf,
    ) -> Result<Arc<Export>, MetaStoreError> {
        let Settings { age, tag, .. } = settings;
        let name = node::name(&ledger)?;
        let tag = tag.unwrap_or_else(|| name.clone());
        // Another place is filled from the start.
        let (next, end) = (format!("export/{place}"), format!("export-end/{place}"));
        let cursors = Cursors::new(ledger);
        // There may be none, and what stays is in nobody's way.
        std::fs::remove_dir_all(&scratch).ok();
        Ok(Arc::new(Export {
            timeline,
            cursors,
            metrics,
            place,
            age,
            gate,
            scratch,
            name,
            tag,
            next,
            end,
        }))
    }

    /// The runs with events that the place does not have yet.
    pub fn behind(&self) -> Result<HashSet<RunId>, MetaStoreError> {
        let from = self.next()?;
        let mut runs = HashSet::new();
        self.timeline.scan(|head| {
            if head.seq >= from {
                runs.insert(head.run);
            }
        });
        Ok(runs)
    }

    fn next(&self) -> Result<Seq, MetaStoreError> {
        Ok(self.cursors.of(&self.next)?.unwrap_or(Seq(1)))
    }

    /// Writes parts as they come due, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut failures, mut is_claimed) = (0, false);
        loop {
            let turn = async {
                let export = Arc::clone(&self);
                let Some(first) = blocking(move || export.first()).await?? else {
                    return Ok(false);
                };
                if !is_claimed {
                    self.claim().await?;
                    is_claimed = true;
                }
                self.turn(first, &stop).await
            };
            let Some(outcome) = stop.run_until_cancelled(turn).await else { return };
            let delay = match outcome {
                Ok(wrote) => {
                    if failures > 0 {
                        tracing::info!(failures, "the export goes on");
                    }
                    failures = 0;
                    if wrote { Duration::ZERO } else { EVERY }
                }
                Err(error) => {
                    self.metrics.export_failures.inc();
                    // Said once for each outage; the counter has the rest.
                    if failures == 0 {
                        tracing::warn!(%error, "export failed; retrying");
                    }
                    failures += 1;
                    RETRY.delay(failures, jitter())
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
        }
    }

    /// Takes the tag for this server, at the place itself.
    async fn claim(&self) -> Result<(), ExportError> {
        let name = format!("nodes/{}", self.tag);
        let owner = self.place.claim(&name, &self.name).await;
        let owner = owner.map_err(|source| ExportError::Place { name, source })?;
        if owner == self.name { Ok(()) } else { Err(ExportError::Taken { tag: self.tag.clone() }) }
    }

    /// The first event that is not exported; sets the gauge to its age.
    fn first(&self) -> Result<Option<EventMeta>, MetaStoreError> {
        let first = self.heads(self.next()?).next();
        let waited = first.map_or(Duration::ZERO, waited);
        self.metrics.export_lag.set(waited.as_secs_f64().ceil() as i64);
        Ok(first)
    }

    /// Writes the part that begins with `first`, if it is due; false when it is not.
    async fn turn(
        self: &Arc<Self>,
        first: EventMeta,
        stop: &CancellationToken,
    ) -> Result<bool, ExportError> {
        let (export, stop) = (Arc::clone(self), stop.clone());
        let made = blocking(move || export.make(first, &stop)).await??;
        let Some(part) = made else { return Ok(false) };
        for file in &part.files {
            let name = file.name(&self.tag);
            let put = self.place.put(&name, file.path()).await;
            put.map_err(|source| ExportError::Place { name, source })?;
            self.metrics.export_bytes.inc_by(file.bytes());
        }
        let (export, end, events) = (Arc::clone(self), part.end, part.events);
        blocking(move || export.cursors.advance(&export.next, end)).await??;
        self.metrics.export_events.inc_by(events);
        self.metrics.export_skipped.inc_by(part.skipped);
        Ok(true)
    }

    /// Makes the files of the part, if it is due, and notes where it ends; none once it is to stop.
    fn make(
        &self,
        first: EventMeta,
        stop: &CancellationToken,
    ) -> Result<Option<Part>, ExportError> {
        let from = first.seq;
        let noted = self.cursors.of(&self.end)?.filter(|end| *end > from);
        let is_due = waited(first) >= self.age || self.timeline.head().0 - from.0 >= PART_EVENTS;
        if noted.is_none() && !is_due {
            return Ok(None);
        }
        std::fs::create_dir_all(&self.scratch)
            .map_err(|source| TableError { path: self.scratch.clone(), source })?;
        let mut made = part::Making::new(&self.scratch, &self.tag, first)?;
        let mut end = from;
        for head in self.heads(from) {
            let is_over = match noted {
                Some(noted) => head.seq >= noted,
                None => made.is_full() || day(head.at) != day(first.at),
            };
            if is_over {
                break;
            }
            if stop.is_cancelled() {
                return Ok(None);
            }
            made.push(&self.timeline, head, self.gate)?;
            end = Seq(head.seq.0 + 1);
        }
        let end = noted.unwrap_or(end);
        if noted.is_none() {
            self.cursors.advance(&self.end, end)?;
        }
        Ok(Some(made.finish(end)?))
    }

    /// The events from `from` on, of which the log has no more than its head as it is now.
    fn heads(&self, from: Seq) -> impl Iterator<Item = EventMeta> + '_ {
        let spans = (from.0..=self.timeline.head().0).step_by(STEP);
        spans.flat_map(|first| self.timeline.heads(Seq(first), STEP))
    }
}

/// Time since an event was appended, by a clock that may have been set back.
fn waited(event: EventMeta) -> Duration {
    let ms = wall_now().epoch_ms.saturating_sub(event.at.epoch_ms);
    Duration::from_millis(ms.max(0).unsigned_abs())
}

/// The UTC date of a time, such as `2026-11-27`.
fn day(at: WallTime) -> String {
    at.rfc3339().split('T').next().unwrap_or_default().to_owned()
}
