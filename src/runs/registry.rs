//! Runs by id: each is a fold over its published events, rebuilt from the log at startup.
//!
//! Promises that the changes of one run are ordered: each is checked against a state that contains all
//! earlier ones, so that two concurrent stops make one event. Readers see only durable changes. Checks no
//! permission beyond the owner.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use media::{Label, NodeTag, RequestId, RunId, Seq, WallTime};
use parking_lot::Mutex;
use timeline::{
    Event, EventKind, EventMeta, NewEvent, RequestMarkerPayload, RunDeleted, RunLabelled, Timeline,
    TimelineError,
};
use tokio::sync::{Notify, oneshot};
use tracing::Instrument;

use crate::{
    base::{keys::Principal, quota::Quota, telemetry::SPANS},
    runs::lifecycle::RunState,
};

mod account;
mod change;
mod ends;
mod growing;
mod job;
mod lookup;
mod origin;
mod run;
mod told;

use change::RunTransition;
pub use change::{Part, RunError};
pub use growing::{Growing, RecordingGuard};
use job::AllJobs;
pub use job::{ChunkProgress, JobKind, JobOrder, JobStatus, JobToken, JobView};
pub use lookup::{each_of_kind, next_piece, readable};
pub use origin::{RunOrigin, RunSnapshot};
pub use run::{JobGuard, Run};
pub use told::{Made, NoSuchChunk};

#[derive(Clone, Copy, Debug)]
pub struct RunLimits {
    /// Maximum active runs of a principal that are untouched or have a job.
    pub active: usize,
    /// Idle time after which an active run ends.
    pub ttl: Duration,
    /// Tag of the node, with which run ids begin.
    pub tag: Option<NodeTag>,
}

pub struct RunRegistry {
    timeline: Timeline,
    pub limits: RunLimits,
    /// Quotas that stored data is charged to.
    pub quota: Arc<Quota>,
    tables: Mutex<Tables>,
    jobs: Arc<AllJobs>,
    deletions: Notify,
}

#[derive(Default)]
struct Tables {
    runs: HashMap<RunId, Arc<Run>>,
    by_state: [usize; RunState::SHOWN.len()],
    owners: HashMap<Principal, Owner>,
    /// Runs whose first event, which names their owner, was unreadable at start, without deleted ones.
    unowned: HashSet<RunId>,
}

#[derive(Default)]
struct Owner {
    /// Visible runs by the sequence number of their creation.
    runs: BTreeMap<Seq, Arc<Run>>,
    active: HashSet<RunId>,
    /// Active runs in which nothing was done, including those being created, whose slot is taken
    /// before their event is durable.
    untouched: HashSet<RunId>,
}

impl RunRegistry {
    /// Rebuilds the runs from `timeline` and follows it; `former` maps old names of principals to new ones.
    pub fn open(
        timeline: Timeline,
        limits: RunLimits,
        quota: Arc<Quota>,
        wall_now: WallTime,
        former: &HashMap<Principal, Principal>,
    ) -> Result<Arc<RunRegistry>, TimelineError> {
        let (tables, jobs, deletions) = (Mutex::default(), Arc::default(), Notify::new());
        let registry = Arc::new(RunRegistry { timeline, limits, quota, tables, jobs, deletions });
        registry.rebuild(wall_now, former)?;
        let follower = Arc::downgrade(&registry);
        registry.timeline.on_publish(Box::new(move |heads| {
            if let Some(registry) = follower.upgrade() {
                registry.fold(heads, Instant::now());
            }
        }));
        let follower = Arc::downgrade(&registry);
        registry.on_job_end(move |run| {
            let Some(registry) = follower.upgrade() else { return };
            if registry.run(run).is_some_and(|run| run.lifecycle() == RunState::Deleted) {
                registry.deletions.notify_one();
            }
        });
        Ok(registry)
    }

    fn rebuild(
        &self,
        wall_now: WallTime,
        former: &HashMap<Principal, Principal>,
    ) -> Result<(), TimelineError> {
        let mut created = Vec::new();
        let mut told: HashMap<(RunId, EventKind), Seq> = HashMap::new();
        self.timeline.scan(|head| match head.kind {
            EventKind::RunCreated => created.push(head),
            // The later of both counts.
            EventKind::IngestStarted | EventKind::IngestReceived => {
                told.insert((head.run, EventKind::IngestReceived), head.seq);
            }
            EventKind::RunCompleted | EventKind::RunLabelled => {
                told.insert((head.run, head.kind), head.seq);
            }
            _ => {}
        });
        let mut tables = self.tables.lock();
        for head in created {
            let Some(stored) = self.timeline.get_parts(head.seq)? else { continue };
            let Some(mut origin) = readable(&stored).as_ref().and_then(RunOrigin::of) else {
                tables.unowned.insert(head.run);
                continue;
            };
            origin.principal = former.get(&origin.principal).cloned().unwrap_or(origin.principal);
            let run = Run::new(head.run, origin, Arc::clone(&self.jobs));
            tables.runs.insert(head.run, Arc::new(run));
        }
        let now = Instant::now();
        let ttl = self.limits.ttl;
        self.timeline.scan(|head| {
            if head.kind == EventKind::RunDeleted {
                tables.unowned.remove(&head.run);
            }
            let idle_ms = wall_now.epoch_ms.saturating_sub(head.at.epoch_ms).max(0) as u64;
            let left = ttl.saturating_sub(Duration::from_millis(idle_ms));
            tables.fold(&head, now + left);
        });
        for ((id, _), seq) in told {
            let (Some(run), Some(stored)) = (tables.runs.get(&id), self.timeline.get_parts(seq)?)
            else {
                continue;
            };
            match readable(&stored) {
                Some(Event::IngestStarted(started)) => run.take_up(&started.ingest),
                Some(Event::IngestReceived(received)) => run.take_up(&received.ingest),
                Some(Event::RunLabelled(labelled)) => run.set_label(labelled.label),
                Some(Event::RunCompleted(completed)) => {
                    completed.semantic.into_iter().for_each(|semantic| run.set_semantic(semantic));
                }
                Some(_) => {}
                None => run.note_damaged(),
            }
        }
        tables.runs.values().for_each(|run| self.account(run));
        Ok(())
    }

    /// Called on the log's writer thread: must be short, and must not call the log.
    fn fold(&self, heads: &[EventMeta], now: Instant) {
        let mut tables = self.tables.lock();
        for head in heads {
            tables.fold(head, now + self.limits.ttl);
        }
        let mut changed: Vec<RunId> = heads.iter().map(|head| head.run).collect();
        changed.dedup();
        let runs: Vec<_> = changed.iter().filter_map(|id| tables.runs.get(id).cloned()).collect();
        drop(tables);
        runs.iter().for_each(|run| self.account(run));
        if heads.iter().any(|head| head.kind == EventKind::RunDeleted) {
            self.deletions.notify_one();
        }
    }

    /// Resolves when a run was deleted, or the last job of a deleted run has ended, since the last
    /// call.
    pub async fn deletions(&self) {
        self.deletions.notified().await;
    }

    /// Charges the owner for the events of `run` in the log.
    fn account(&self, run: &Run) {
        run.account(self.timeline.run_bytes(run.id()), &self.quota);
    }

    pub fn timeline(&self) -> &Timeline {
        &self.timeline
    }

    /// Runs that are not deleted and yet served to nobody, as the event that names their owner was unreadable at
    /// start.
    pub fn unowned(&self) -> HashSet<RunId> {
        self.tables.lock().unowned.clone()
    }

    /// Creates a run; returns once its `run_created` event is durable. Fails if the owner has no slot left.
    pub async fn create(
        self: &Arc<Self>,
        origin: RunOrigin,
        label: Option<Label>,
        request_id: RequestId,
    ) -> Result<Arc<Run>, RunError> {
        let id = RunId::from_bytes(crate::base::id_bytes(self.limits.tag));
        let run = Arc::new(Run::new(id, origin, Arc::clone(&self.jobs)));
        // Set before the run is visible.
        run.set_label(label.clone());
        let labelled = label.map(|label| RunLabelled { request_id, label: Some(label) });
        let created = std::iter::once(run.origin().created(request_id));
        let created = created.chain(labelled.map(Event::RunLabelled)).collect();
        self.acquire_active_slot(&run)?;
        self.change(&run, RunTransition::Create(created)).await.map(|_| run)
    }

    fn acquire_active_slot(&self, run: &Arc<Run>) -> Result<(), RunError> {
        let mut tables = self.tables.lock();
        let owner = tables.owners.entry(run.origin().principal.clone()).or_default();
        // An active run without a job holds no shared resource.
        let counts = |run: &RunId| owner.active.contains(run) && !owner.untouched.contains(run);
        let busy = self.jobs.count(&run.origin().principal, counts);
        let (active, limit) = (owner.untouched.len() + busy, self.limits.active);
        if active >= limit {
            return Err(RunError::ActiveLimit { limit, active });
        }
        owner.untouched.insert(run.id());
        tables.runs.insert(run.id(), Arc::clone(run));
        Ok(())
    }

    fn release_slot(&self, run: &Run) {
        let mut tables = self.tables.lock();
        tables.runs.remove(&run.id());
        if let Some(owner) = tables.owners.get_mut(&run.origin().principal) {
            owner.untouched.remove(&run.id());
        }
    }

    /// Appends `events` in one batch to an active run; returns once they are durable.
    pub async fn commit(
        self: &Arc<Self>,
        run: &Arc<Run>,
        events: Vec<Event>,
    ) -> Result<Vec<EventMeta>, RunError> {
        self.change(run, RunTransition::Active(events)).await
    }

    /// Appends as [`RunRegistry::commit`] does, with `last` after `events`. To a run that has
    /// ended it appends `events` alone, if `part` may follow that end.
    pub async fn wind_up(
        self: &Arc<Self>,
        run: &Arc<Run>,
        part: Part,
        events: Vec<Event>,
        last: Option<Event>,
    ) -> Result<Vec<EventMeta>, RunError> {
        self.change(run, RunTransition::WindUp(part, events, last)).await
    }

    /// Changes the label of a run, even of one that has ended.
    pub async fn label(
        self: &Arc<Self>,
        run: &Arc<Run>,
        label: Option<Label>,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        self.change(run, RunTransition::Label(RunLabelled { request_id, label })).await.map(drop)
    }

    /// Resets the idle TTL of an active run.
    pub async fn keep_alive(
        self: &Arc<Self>,
        run: &Arc<Run>,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        let refreshed = Event::KeepaliveRefreshed(RequestMarkerPayload { request_id });
        self.commit(run, vec![refreshed]).await.map(drop)
    }

    /// Soft-deletes a run and cancels its job; fails if the run is already deleted.
    pub async fn delete(
        self: &Arc<Self>,
        run: &Arc<Run>,
        request_id: RequestId,
    ) -> Result<(), RunError> {
        let deleted = RunDeleted { request_id: Some(request_id), reclaim: None };
        self.change(run, RunTransition::Delete(Event::RunDeleted(deleted))).await?;
        run.cancel_job();
        Ok(())
    }

    /// Cancels every job; their runs end as failed by the shutdown.
    pub fn cancel_jobs(&self) {
        for run in self.tables.lock().runs.values() {
            run.cancel_job();
        }
    }

    async fn change(
        self: &Arc<Self>,
        run: &Arc<Run>,
        change: RunTransition,
    ) -> Result<Vec<EventMeta>, RunError> {
        let (registry, run) = (Arc::clone(self), Arc::clone(run));
        // Runs in its own task, so that a caller that goes away cannot release the run's order
        // between the append and its answer, which would let the next change be checked against an
        // old state. Nor can it keep the slot of a run that was not created.
        let changed = async move {
            let creates = matches!(change, RunTransition::Create(_));
            let outcome = registry.apply(&run, change).await;
            if creates && outcome.is_err() {
                registry.release_slot(&run);
            }
            outcome
        };
        let task = tokio::spawn(changed.in_current_span());
        task.await.map_err(|_| RunError::Unfinished)?
    }

    async fn apply(&self, run: &Run, change: RunTransition) -> Result<Vec<EventMeta>, RunError> {
        let _order = run.order().await;
        let Some(events) = change.events(run)? else { return Ok(Vec::new()) };
        let (id, events_count) = (run.id(), events.len());
        let labelled = events.iter().find_map(|event| match event {
            Event::RunLabelled(labelled) => Some(labelled.label.clone()),
            _ => None,
        });
        let batch = events.into_iter().map(|event| NewEvent { run: id, event }).collect();
        let (tell, told) = oneshot::channel();
        self.timeline.append(batch, move |outcome| {
            // The receiver is dropped only when the runtime shuts down.
            drop(tell.send(outcome));
        });
        let appending =
            tracing::info_span!(target: SPANS, "append", events = events_count, run = %id);
        let outcome = told.instrument(appending).await;
        let appended = outcome.map_err(|_| RunError::Unfinished)?.map_err(RunError::Log)?;
        labelled.into_iter().for_each(|label| run.set_label(label));
        Ok(appended)
    }
}

impl Tables {
    fn fold(&mut self, head: &EventMeta, idle_until: Instant) {
        let Some(run) = self.runs.get(&head.run) else { return };
        let (before, state) = run.fold(head, idle_until);
        count_move(&mut self.by_state, before, state);
        let owner = self.owners.entry(run.origin().principal.clone()).or_default();
        let set = |runs: &mut HashSet<RunId>, is_in: bool| {
            if is_in { runs.insert(head.run) } else { runs.remove(&head.run) }
        };
        set(&mut owner.active, state.is_active());
        set(&mut owner.untouched, state.is_active() && run.is_untouched());
        if state.is_visible() {
            owner.runs.entry(run.created_seq()).or_insert_with(|| Arc::clone(run));
        } else {
            owner.runs.remove(&run.created_seq());
        }
    }
}

fn count_move(counts: &mut [usize; RunState::SHOWN.len()], from: RunState, to: RunState) {
    let place = |state| RunState::SHOWN.iter().position(|shown| *shown == state);
    if let Some(left) = place(from) {
        counts[left] -= 1;
    }
    if let Some(entered) = place(to) {
        counts[entered] += 1;
    }
}

#[cfg(test)]
pub(crate) mod tests;
