//! Mirror: copies events to the database after their commit, either all or the descriptions of live sessions.
//!
//! A reader of the outbox: at least once and in order; the key of server and event number prevents
//! duplicates. Descriptions are `vlm`, `vlm_tiered`, `clip_vlm` and `clip_vlm_tiered` events of live
//! sessions; descriptions of files, and other findings, then stay local. Events that the database never
//! accepts are listed there as skipped.

mod divergence;
mod log;
mod rows;

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use media::{ErrorKind, RunId, Seq};
use parking_lot::Mutex;
use timeline::{Event, EventKind, Timeline, TimelineError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::{
    base::{
        backoff::Backoff,
        blocking::{TaskPanicked, blocking},
        clock::wall_now,
        database::{Database, DatabaseError},
        meta_store::{MetaStore, MetaStoreError},
        metrics::Metrics,
    },
    deliver::{
        node,
        outbox::{Cursors, DeliveryQueue, DeliveryResult, ScheduleLimits},
    },
};
use log::Told;
use rows::{Row, RowBatch, SkippedEvent};

/// One batch at a time, retried within seconds after the database returns.
const PLACES: ScheduleLimits = ScheduleLimits {
    turns: 1,
    retries: 1,
    backoff: Backoff {
        first: Duration::from_millis(250),
        factor: 2,
        longest: Duration::from_secs(10),
    },
};
/// Event numbers covered by one turn.
const SPAN: usize = 4096;
/// Events passed over after which the cursor is written anyway; a restart reads the events after it again.
const PASSED_MAX: u64 = 1 << 16;

/// Scope of the events to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Descriptions of live sessions, into `sightline_events`.
    Descriptions,
    /// Every event, into `sightline_log`.
    All,
}

impl Scope {
    /// Returns true for event kinds that may be copied.
    fn has(self, kind: EventKind) -> bool {
        use EventKind::{ClipVlm, ClipVlmTiered, Vlm, VlmTiered};
        self == Scope::All || matches!(kind, Vlm | VlmTiered | ClipVlm | ClipVlmTiered)
    }

    /// Prefix of the cursor names; each database has its own cursor.
    fn cursor(self) -> &'static str {
        match self {
            Scope::Descriptions => "mirror/",
            Scope::All => "mirror-all/",
        }
    }

    /// Maximum events, and bytes of payload, per statement.
    fn batch(self) -> (usize, usize) {
        match self {
            Scope::Descriptions => (500, 1 << 20),
            Scope::All => (SPAN, 4 << 20),
        }
    }
}

/// Refusals of one event after which it is skipped.
const REFUSALS_MAX: u32 = 3;

#[derive(Debug, thiserror::Error)]
enum MirrorError {
    #[error(transparent)]
    Database(#[from] DatabaseError),
    #[error(transparent)]
    Log(#[from] TimelineError),
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error(transparent)]
    Died(#[from] TaskPanicked),
    /// The log was restored to an earlier state and reuses numbers of events in the database.
    #[error(
        "the log was put back to an earlier state, the database has other events of {node} from number {from} \
         on: copying goes on once they are gone, see docs/operate/runbooks.md"
    )]
    Diverged { node: String, from: Seq },
}

/// Mirror of events in the database.
pub struct EventMirror {
    scope: Scope,
    database: Database,
    timeline: Timeline,
    cursors: Cursors,
    metrics: Arc<Metrics>,
    node: String,
    place: Mutex<Option<Place>>,
    /// First event that may be in no database, as far as known.
    next: AtomicU64,
    /// Number of refusals of each event in the current batch.
    refused: Mutex<HashMap<Seq, u32>>,
    /// Last failure that was logged.
    told: Mutex<String>,
}

/// Progress of the mirror in one database.
#[derive(Clone, Debug)]
struct Place {
    database: String,
    cursor: String,
    /// Last event that the database reported.
    last: Seq,
    /// First event that was not read.
    next: Seq,
    /// Position of the cursor on disk.
    written: Seq,
}

impl EventMirror {
    /// Creates a mirror without starting it; the server's name is in `ledger`, created if missing.
    pub fn new(
        scope: Scope,
        database: Database,
        timeline: Timeline,
        ledger: MetaStore,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<EventMirror>, MetaStoreError> {
        let node = node::name(&ledger)?;
        let (place, refused) = (Mutex::default(), Mutex::default());
        let cursors = Cursors(ledger);
        let next = cursors.lowest(scope.cursor())?.unwrap_or(Seq(1));
        let next = AtomicU64::new(next.0);
        Ok(Arc::new(EventMirror {
            scope,
            database,
            timeline,
            cursors,
            metrics,
            node,
            place,
            next,
            refused,
            told: Mutex::default(),
        }))
    }

    /// Follows the log until `stop`.
    pub fn start(self: &Arc<Self>, stop: CancellationToken) -> JoinHandle<()> {
        let outbox = DeliveryQueue::new(PLACES);
        outbox.add((), 0);
        let (follower, scope) = (Arc::downgrade(&outbox), self.scope);
        self.timeline.on_publish(Box::new(move |heads| {
            if heads.iter().any(|head| scope.has(head.kind))
                && let Some(outbox) = follower.upgrade()
            {
                outbox.wake([()]);
            }
        }));
        let mirror = Arc::clone(self);
        tokio::spawn(outbox.run(move |slot| Arc::clone(&mirror).turn(slot.failures), stop))
    }

    /// Returns the runs with events in scope that the database may lack.
    pub fn behind(&self) -> Result<HashSet<RunId>, MetaStoreError> {
        let known = self.place.lock().as_ref().map(|place| place.next);
        // While the database is unknown, all events that any database may lack are kept.
        let from = match known {
            Some(next) => next,
            None => self.cursors.lowest(self.scope.cursor())?.unwrap_or(Seq(1)),
        };
        Ok(self.timeline.runs_of(|head| head.seq >= from && self.scope.has(head.kind)))
    }

    async fn copy(self: &Arc<Self>, limit: usize) -> Result<DeliveryResult, MirrorError> {
        let known = self.place.lock().clone();
        let place = match known {
            Some(place) => place,
            None => self.find_place().await?,
        };
        let (mirror, from) = (Arc::clone(self), place.next);
        let batch = blocking(move || mirror.collect(from, limit)).await??;
        let mut place = Place { next: batch.next, ..place };
        if !batch.is_empty() {
            // A restore of the database may remove rows while this server runs.
            let (_, last) = self.database.known(self.scope, &self.node).await?;
            if last < place.last {
                return Err(DatabaseError::Replaced.into());
            }
            self.hand_over(&place.database, &batch).await?;
            (_, place.last) = self.database.known(self.scope, &self.node).await?;
        }
        self.refused.lock().clear();
        let passed = batch.next.0 - place.written.0;
        if !batch.is_empty() || passed > PASSED_MAX {
            let (mirror, cursor, next) = (Arc::clone(self), place.cursor.clone(), place.next);
            blocking(move || mirror.cursors.advance(&cursor, next)).await??;
            place.written = place.next;
        }
        self.next.store(place.next.0, Relaxed);
        *self.place.lock() = Some(place);
        Ok(if batch.is_last { DeliveryResult::Drained } else { DeliveryResult::More })
    }

    /// Inserts the rows of a batch, and lists those that the database refuses for good.
    async fn hand_over(&self, database: &str, batch: &RowBatch) -> Result<(), MirrorError> {
        for skipped in &batch.unreadable {
            self.skip(skipped).await?;
        }
        if batch.rows.is_empty() {
            return Ok(());
        }
        match self.insert(database, &batch.rows).await {
            // The error is about one of the rows: they are inserted one by one.
            Err(error) if error.is_about_rows() => {}
            outcome => return Ok(outcome?),
        }
        for row in &batch.rows {
            match self.insert(database, std::slice::from_ref(row)).await {
                Err(error) if error.is_about_rows() && self.is_hopeless(row.head.seq) => {
                    let (head, reason) = (row.head, error.to_string());
                    self.skip(&SkippedEvent { head, reason }).await?;
                }
                outcome => outcome?,
            }
        }
        Ok(())
    }

    async fn insert(&self, database: &str, rows: &[Row]) -> Result<(), DatabaseError> {
        let copied = match self.scope {
            Scope::Descriptions => self.database.insert_events(database, &self.node, rows).await,
            Scope::All => self.database.copy_events(database, &self.node, rows).await,
        };
        self.metrics.mirrored.inc_by(copied?);
        Ok(())
    }

    /// Counts a refusal of the event at `seq`; returns true at the maximum.
    fn is_hopeless(&self, seq: Seq) -> bool {
        let mut refused = self.refused.lock();
        let times = refused.entry(seq).or_default();
        *times += 1;
        *times >= REFUSALS_MAX
    }

    async fn skip(&self, skipped: &SkippedEvent) -> Result<(), MirrorError> {
        if self.database.insert_skipped(&self.node, skipped).await? {
            self.metrics.mirror_skipped.inc();
            let SkippedEvent { head, reason } = skipped;
            tracing::error!(seq = %head.seq, reason, "an event is not mirrored: see sightline_skipped");
        }
        Ok(())
    }

    async fn find_place(self: &Arc<Self>) -> Result<Place, MirrorError> {
        let (database, last) = self.database.known(self.scope, &self.node).await?;
        let cursor = format!("{}{database}", self.scope.cursor());
        let (cursors, name) = (self.cursors.clone(), cursor.clone());
        let written = blocking(move || cursors.of(&name)).await??.unwrap_or(Seq(1));
        // A restored database has lost events after `last`, which are copied again.
        let next = written.min(Seq(last.0 + 1));
        tracing::debug!(node = self.node, cursor, %next, "found where the mirror goes on");
        let (whose, log) = ((self.scope, self.node.as_str()), &self.timeline);
        if let Some(from) = self.database.diverges(whose, log, last).await? {
            return Err(MirrorError::Diverged { node: self.node.clone(), from });
        }
        Ok(Place { database, cursor, last, next, written: next })
    }

    /// Reads the events to copy, from `from` on.
    fn collect(&self, from: Seq, limit: usize) -> Result<RowBatch, TimelineError> {
        let head = self.timeline.head();
        let span = SPAN.min((head.0 + 1).saturating_sub(from.0) as usize);
        let mut batch = RowBatch { next: Seq(from.0 + span as u64), ..RowBatch::default() };
        let (mut bytes, (_, bytes_max)) = (0, self.scope.batch());
        for head in self.timeline.heads(from, span) {
            if !self.scope.has(head.kind) {
                continue;
            }
            let (payload, told) = match self.read(head.seq) {
                Ok(Some(read)) => read,
                Ok(None) => continue,
                // A retry would fail too.
                Err(error) if error.kind() == ErrorKind::DataLoss => {
                    batch.unreadable.push(SkippedEvent { head, reason: error.to_string() });
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_full = batch.rows.len() == limit || bytes + payload.len() > bytes_max;
            if is_full && !batch.rows.is_empty() {
                batch.next = head.seq;
                return Ok(batch);
            }
            bytes += payload.len();
            batch.rows.push(Row { head, payload, told });
        }
        batch.is_last = batch.next > head;
        Ok(batch)
    }

    /// Returns the payload of an event to copy, with its changes; `None` for other events.
    ///
    /// Also returns `None` if retention has removed the event.
    fn read(&self, seq: Seq) -> Result<Option<(String, Told)>, TimelineError> {
        let Some(event) = self.timeline.get_parts(seq)? else { return Ok(None) };
        if self.scope == Scope::All {
            return Told::of(event).map(Some);
        }
        match event.decode()? {
            Event::Found(_, finding) if finding.session_id.is_some() => {
                Ok(Some((event.into_outline(), Told::default())))
            }
            _ => Ok(None),
        }
    }

    /// Sets the gauges: number of events not read, and age of the oldest; zero after a turn that
    /// reached the head, as later events are out of scope or belong to the next turn.
    fn measure(&self, reached_head: bool) {
        let next = self.next.load(Relaxed);
        let head = if reached_head { next.saturating_sub(1) } else { self.timeline.head().0 };
        self.metrics.mirror_behind.set((head + 1).saturating_sub(next) as i64);
        // Retention leaves gaps in the numbers.
        let mut spans =
            (next..=head).step_by(SPAN).map(|from| self.timeline.heads(Seq(from), SPAN));
        let oldest = spans.find_map(|heads| heads.first().map(|head| head.at.epoch_ms));
        let lag_ms = oldest.map_or(0, |at| wall_now().epoch_ms.saturating_sub(at).max(0));
        self.metrics.mirror_lag.set(lag_ms / 1000);
    }

    /// Copies a batch, after so many `failures` in a row.
    async fn turn(self: Arc<Self>, failures: u32) -> DeliveryResult {
        // A database that is too slow for a whole batch may be fast enough for a smaller one.
        let limit = (self.scope.batch().0 >> failures.min(12)).max(1);
        let outcome = self.copy(limit).await;
        self.measure(matches!(outcome, Ok(DeliveryResult::Drained)));
        match outcome {
            Ok(outcome) => {
                if failures > 0 {
                    tracing::info!(failures, "the mirror goes on");
                }
                outcome
            }
            // The database is not asked during startup: this is no failure.
            Err(MirrorError::Database(DatabaseError::NotAsked)) => {
                DeliveryResult::Failed { at_least: Duration::ZERO, progressed: false }
            }
            Err(error) => {
                self.metrics.mirror_failures.inc();
                // Another database may answer next time.
                *self.place.lock() = None;
                // Logged once per outage and reason; the counter has the rest.
                let reason = error.to_string();
                let told = std::mem::replace(&mut *self.told.lock(), reason);
                if failures == 0 || told != *self.told.lock() {
                    tracing::warn!(%error, "database mirror failed; retrying");
                }
                DeliveryResult::Failed { at_least: Duration::ZERO, progressed: false }
            }
        }
    }
}
