//! Export: writes the log as Parquet files to a directory or an object store, part by part.
//!
//! A part covers events of one day; its end is durable before its files are written, so that a repeat writes
//! the same bytes to the same names. At least once: the cursor moves after all files are at the destination.
//! An unavailable destination delays the export, and keeps retention from removing unexported events.

mod part;
mod place;

use std::{collections::HashSet, io, path::PathBuf, sync::Arc, time::Duration};

use gate::GateConfig;
use media::{RunId, Seq};
use tables::{EVENTS, FRAMES, MARKERS, TableError};
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

/// Interval of checks for new events.
const EVERY: Duration = Duration::from_secs(1);
/// Delays after failed turns.
const RETRY: Backoff =
    Backoff { first: Duration::from_secs(1), factor: 2, longest: Duration::from_secs(60) };
/// Event numbers covered by one step.
const STEP: usize = 4096;
/// Number of events that makes a part due and completes it.
const PART_EVENTS: u64 = 1 << 16;

#[derive(Clone, Debug)]
pub enum Target {
    Directory(PathBuf),
    Store(Access),
}

#[derive(Clone, Debug)]
pub struct Settings {
    pub place: Target,
    /// Longest time that an event waits for its part.
    pub age: Duration,
    /// Tag of this server in file names; `None` selects its random name.
    pub tag: Option<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    #[error(transparent)]
    Log(#[from] TimelineError),
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error(transparent)]
    File(#[from] TableError),
    #[error("SERVICE_EXPORT_URL: {name} is not written: {source}")]
    Place { name: String, source: io::Error },
    #[error("SERVICE_EXPORT_URL: {name} is not listed: {source}")]
    Unlisted { name: String, source: io::Error },
    #[error(
        "SERVICE_EXPORT_URL has files of another server under the tag {tag}: give this one another \
         SERVICE_NODE_TAG, or remove nodes/{tag} there if that one is gone for good"
    )]
    Taken { tag: String },
    /// The destination has events under numbers that are not exported: the log was restored to an earlier
    /// state and reuses them, or the cursor belongs to another name of the destination.
    #[error(
        "the log was put back to an earlier state, or the place had another address: SERVICE_EXPORT_URL has \
         {files} files of node={tag} with events from number {from} on that are not known as exported, such as \
         {name}; the export goes on once they are gone, see docs/operate/runbooks.md"
    )]
    Diverged { tag: String, files: usize, from: Seq, name: String },
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

pub struct Export {
    timeline: Timeline,
    cursors: Cursors,
    metrics: Arc<Metrics>,
    place: Place,
    age: Duration,
    /// Thresholds of the gate for recordings that name none.
    gate: GateConfig,
    /// Directory for files in progress.
    scratch: PathBuf,
    /// Unique name of this server.
    name: String,
    /// Name of this server in file paths.
    tag: String,
    /// Names of two cursors: the first event not exported, and the end of the part in progress.
    next: String,
    end: String,
}

impl Export {
    /// Opens the export; removes files of an earlier process from `scratch`.
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
        // The cursor names include the destination: another one starts from the first event.
        let (next, end) = (format!("export/{place}"), format!("export-end/{place}"));
        let cursors = Cursors(ledger);
        // The directory may not exist, and leftover files do no harm.
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

    /// Returns the runs with events that are not exported yet.
    pub fn behind(&self) -> Result<HashSet<RunId>, MetaStoreError> {
        let from = self.next()?;
        Ok(self.timeline.runs_of(|head| head.seq >= from))
    }

    fn next(&self) -> Result<Seq, MetaStoreError> {
        Ok(self.cursors.of(&self.next)?.unwrap_or(Seq(1)))
    }

    /// Writes parts as they become due, until `stop`.
    pub async fn run(self: Arc<Self>, stop: CancellationToken) {
        let (mut failures, mut is_claimed, mut told) = (0, false, String::new());
        loop {
            let turn = async {
                let export = Arc::clone(&self);
                let Some(first) = blocking(move || export.first()).await?? else {
                    return Ok(false);
                };
                if !is_claimed {
                    self.claim().await?;
                    self.require_no_later_files().await?;
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
                    // Logged once per outage and reason; the counter has the rest.
                    let reason = error.to_string();
                    if failures == 0 || told != reason {
                        tracing::warn!(%error, "export failed; retrying");
                    }
                    told = reason;
                    failures += 1;
                    RETRY.delay(failures, jitter())
                }
            };
            if stop.run_until_cancelled(tokio::time::sleep(delay)).await.is_none() {
                return;
            }
        }
    }

    /// Name of the file by which this server claims its tag at the destination.
    fn claimed(&self) -> String {
        format!("nodes/{}", self.tag)
    }

    /// Claims the tag for this server at the destination.
    async fn claim(&self) -> Result<(), ExportError> {
        let name = self.claimed();
        let owner = self.place.claim(&name, &self.name).await;
        let owner = owner.map_err(|source| ExportError::Place { name, source })?;
        if owner == self.name { Ok(()) } else { Err(ExportError::Taken { tag: self.tag.clone() }) }
    }

    /// Fails if the destination has files of this server from the cursor on, except those of the part in
    /// progress. As they must be removed, the cursor is moved back to the first event in them.
    async fn require_no_later_files(self: &Arc<Self>) -> Result<(), ExportError> {
        let export = Arc::clone(self);
        let cursors = move || -> Result<_, MetaStoreError> {
            Ok((export.next()?, export.cursors.of(&export.end)?))
        };
        let (next, end) = blocking(cursors).await??;
        let mut later = Vec::new();
        for table in [EVENTS.name, MARKERS.name, FRAMES.name] {
            for date in self.names(table.to_owned()).await? {
                let folder = format!("{table}/{date}/node={}", self.tag);
                let names = self.names(folder.clone()).await?;
                later.extend(names.iter().filter_map(|name| {
                    let (first, last) = part::span(name)?;
                    let is_later = last >= next && end != Some(Seq(last.0 + 1));
                    is_later.then(|| (first, format!("{folder}/{name}")))
                }));
            }
        }
        let files = later.len();
        let Some((from, name)) = later.into_iter().min() else { return Ok(()) };
        if from < next {
            let export = Arc::clone(self);
            blocking(move || export.cursors.advance(&export.next, from)).await??;
        }
        Err(ExportError::Diverged { tag: self.tag.clone(), files, from, name })
    }

    /// Lists the names at the destination directly below the folder `name`.
    async fn names(&self, name: String) -> Result<Vec<String>, ExportError> {
        let names = self.place.names(&name).await;
        names.map_err(|source| ExportError::Unlisted { name, source })
    }

    /// Returns the first event not exported, and sets the gauge to its age.
    fn first(&self) -> Result<Option<EventMeta>, MetaStoreError> {
        let first = self.heads(self.next()?).next();
        let waited = first.map_or(Duration::ZERO, waited);
        self.metrics.export_lag.set(waited.as_secs_f64().ceil() as i64);
        Ok(first)
    }

    /// Writes the part that begins with `first`; returns false if it is not due.
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
            let put = self.place.put(&self.claimed(), &name, file.whole.aside()).await;
            put.map_err(|source| ExportError::Place { name, source })?;
            self.metrics.export_bytes.inc_by(file.whole.bytes);
        }
        let (export, end, events) = (Arc::clone(self), part.end, part.events);
        blocking(move || export.cursors.advance(&export.next, end)).await??;
        self.metrics.export_events.inc_by(events);
        self.metrics.export_skipped.inc_by(part.skipped);
        Ok(true)
    }

    /// Writes the local files of the part, if due, and notes its end; `None` if not due or stopped.
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
                None => made.is_full() || head.at.date() != first.at.date(),
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

    /// Iterates over the events from `from` to the current head of the log.
    fn heads(&self, from: Seq) -> impl Iterator<Item = EventMeta> + '_ {
        let spans = (from.0..=self.timeline.head().0).step_by(STEP);
        spans.flat_map(|first| self.timeline.heads(Seq(first), STEP))
    }
}

/// Time since an event was appended; zero if the clock was set back.
fn waited(event: EventMeta) -> Duration {
    let ms = wall_now().epoch_ms.saturating_sub(event.at.epoch_ms);
    Duration::from_millis(ms.max(0).unsigned_abs())
}
