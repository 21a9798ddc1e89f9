//! One run: its folded state, its order of changes and its job.

use std::{collections::HashMap, pin::pin, sync::Arc, time::Instant};

use media::{BlobHash, JobId, Label, RunId, Seq, WallTime};
use parking_lot::Mutex;
use timeline::{Event, EventKind, EventMeta, JsonText, SemanticOutcome, Timeline, TimelineError};
use tokio::sync::{Notify, futures::Notified};

use super::{
    AllJobs, RunError, RunOrigin, RunSnapshot,
    account::Charged,
    growing::Growing,
    job::{JobProgress, JobToken, JobView, Jobs},
    readable,
    told::{Analyses, ChunkOrder, Walls},
};
use crate::{base::json, runs::lifecycle::RunState};

/// Events read at a time while indexing the stills of a run.
const STILLS_PAGE: usize = 1000;

pub struct Run {
    id: RunId,
    origin: RunOrigin,
    state: Mutex<State>,
    order: tokio::sync::Mutex<()>,
    published: Notify,
    rested: Notify,
    jobs: Mutex<Jobs>,
    pub(super) all_jobs: Arc<AllJobs>,
    stills: Mutex<Stills>,
    pub(super) walls: Mutex<Walls>,
    pub(super) chunks: Mutex<ChunkOrder>,
    pub(super) analyses: Mutex<Analyses>,
    pub(super) growing: Mutex<Option<Arc<Growing>>>,
    /// Jobs whose recordings are left to be closed.
    pub(super) left: Mutex<Vec<JobId>>,
    pub(super) charged: Mutex<Charged>,
}

#[derive(Default)]
struct State {
    /// Record by the run's events alone.
    record: RunSnapshot,
    /// Requested end, before its event.
    ending: Option<RunState>,
    /// True from the first event on that is work in the run.
    worked: bool,
    analysed: bool,
    created_seq: Seq,
    idle_until: Option<Instant>,
    /// Number of events that were to tell of the record and cannot be read.
    damaged: u64,
}

/// Sizes of the stills in the events before `next`.
#[derive(Default)]
struct Stills {
    next: Seq,
    bytes: HashMap<BlobHash, u64>,
}

/// Job slot of a run, until dropped.
pub struct JobGuard {
    pub run: Arc<Run>,
    pub token: JobToken,
}

impl Drop for JobGuard {
    fn drop(&mut self) {
        let Run { id, origin, rested, jobs, all_jobs, .. } = &*self.run;
        let mut jobs = jobs.lock();
        *jobs.place(&self.token) = None;
        if jobs.all().next().is_none() {
            all_jobs.rests(&origin.principal, *id);
            rested.notify_waiters();
        }
        drop(jobs);
        all_jobs.tell(*id);
    }
}

impl Run {
    pub(super) fn new(id: RunId, origin: RunOrigin, all_jobs: Arc<AllJobs>) -> Run {
        Run {
            id,
            origin,
            state: Mutex::default(),
            order: tokio::sync::Mutex::default(),
            published: Notify::new(),
            rested: Notify::new(),
            jobs: Mutex::default(),
            all_jobs,
            stills: Mutex::default(),
            walls: Mutex::default(),
            chunks: Mutex::default(),
            analyses: Mutex::default(),
            growing: Mutex::default(),
            left: Mutex::default(),
            charged: Mutex::default(),
        }
    }

    pub fn id(&self) -> RunId {
        self.id
    }

    pub fn origin(&self) -> &RunOrigin {
        &self.origin
    }

    pub fn lifecycle(&self) -> RunState {
        self.state.lock().shown()
    }

    /// Returns true if only labels and a deletion may follow. The last events of a job may follow
    /// the end of its run, if that did not wait for them.
    pub fn has_ended(&self) -> bool {
        // Order matters: a job that begins once the run is terminal appends nothing.
        self.folded().is_terminal() && self.jobs.lock().work.is_none() && self.left().is_none()
    }

    /// State by the run's events.
    fn folded(&self) -> RunState {
        self.state.lock().record.lifecycle
    }

    /// Shows `end` as the state at once, and cancels the jobs; its event follows when they have ended.
    pub(super) async fn begin_end(&self, end: RunState) -> Result<(), RunError> {
        let _order = self.order().await;
        self.check_active()?;
        self.state.lock().ending = Some(end);
        self.cancel_job();
        Ok(())
    }

    /// Withdraws the end of [`Run::begin_end`], whose event was not recorded.
    pub(super) fn forget_end(&self) {
        self.state.lock().ending = None;
    }

    pub(super) async fn rests(&self) {
        loop {
            let mut rested = pin!(self.rested.notified());
            rested.as_mut().enable();
            if self.is_at_rest() {
                return;
            }
            rested.await;
        }
    }

    /// Fails with the reason if the run is not active.
    pub fn check_active(&self) -> Result<(), RunError> {
        match self.lifecycle() {
            state if state.is_active() => Ok(()),
            state if state.is_terminal() => Err(RunError::Terminal(state)),
            _ => Err(RunError::NotFound),
        }
    }

    pub fn snapshot(&self) -> RunSnapshot {
        let state = self.state.lock();
        let record = state.record.clone();
        let model = self.origin.model.clone().or(record.model);
        RunSnapshot { lifecycle: state.shown(), model, ..record }
    }

    /// Resolves when the next event of the run is readable; enable it before reading.
    pub fn published(&self) -> Notified<'_> {
        self.published.notified()
    }

    pub fn set_source(&self, uri: Option<&str>) {
        self.state.lock().record.source_uri = uri.map(Arc::from);
    }

    /// Sets the model of the run's frames; `None` keeps the earlier one.
    pub fn set_model(&self, model: Option<&Label>) {
        if let Some(model) = model {
            self.state.lock().record.model = Some(model.as_str().to_owned());
        }
    }

    pub(super) fn label(&self) -> Option<Label> {
        self.state.lock().record.label.clone()
    }

    pub(super) fn set_label(&self, label: Option<Label>) {
        self.state.lock().record.label = label;
    }

    pub fn set_semantic(&self, semantic: SemanticOutcome) {
        self.state.lock().record.semantic = Some(Arc::new(semantic));
    }

    /// Counts an event that cannot be read.
    pub(super) fn note_damaged(&self) {
        self.state.lock().damaged += 1;
    }

    /// Number of events that a record lacks as they cannot be read, by the events read so far.
    pub fn damaged_events(&self) -> u64 {
        let untold = self.walls.lock().damaged;
        untold + self.state.lock().damaged
    }

    /// Restores source and model from the request body in an earlier start's event.
    pub(super) fn take_up(&self, body: &JsonText) {
        let body = json::parse(body.as_str().as_bytes()).ok();
        let field = |name| body.as_ref().and_then(|body| body.get(name));
        self.set_source(field("source_uri").and_then(|uri| uri.as_str()));
        // Only the body of a reasoning names a model; a body of an older format may lack it.
        let model = field("model").and_then(|model| json::parsed(model).ok());
        self.set_model(model.as_ref());
    }

    /// Takes the run's one slot for a job of this kind.
    pub fn begin_job(self: &Arc<Self>, token: JobToken) -> Result<JobGuard, RunError> {
        let mut jobs = self.jobs.lock();
        let place = jobs.place(&token);
        if let Some(other) = place {
            return Err(RunError::Busy { job: other.order().map(|order| order.id) });
        }
        let left = self.left().filter(|_| !token.is_analysis());
        if left.is_some() {
            return Err(RunError::Busy { job: left });
        }
        *place = Some(token.clone());
        self.all_jobs.began(&self.origin.principal, self.id);
        Ok(JobGuard { run: Arc::clone(self), token })
    }

    pub fn progress(&self) -> Option<JobProgress> {
        self.jobs.lock().work.as_ref().map(JobToken::progress)
    }

    /// Returns a job in progress that a request started; one that decodes comes before an analysis.
    pub fn active_job(&self) -> Option<JobView> {
        self.jobs.lock().all().find_map(JobToken::view)
    }

    pub(super) fn cancel_job(&self) {
        self.jobs.lock().all().for_each(JobToken::cancel);
    }

    /// Returns the size of the run's still `hash`, in bytes, from its event; reads new events only.
    pub fn still_bytes(
        &self,
        timeline: &Timeline,
        hash: &BlobHash,
    ) -> Result<Option<u64>, TimelineError> {
        let mut stills = self.stills.lock();
        loop {
            if let Some(bytes) = stills.bytes.get(hash) {
                return Ok(Some(*bytes));
            }
            let kind = Some(EventKind::KeyframeStored);
            let page = timeline.read_parts(self.id, stills.next, STILLS_PAGE, kind)?;
            let Some(last) = page.last() else { return Ok(None) };
            let next = Seq(last.head.seq.0 + 1);
            for stored in page {
                if let Some(Event::KeyframeStored(still)) = readable(&stored) {
                    stills.bytes.insert(still.image_sha256, still.image_bytes);
                }
            }
            stills.next = next;
        }
    }

    pub(super) async fn order(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.order.lock().await
    }

    pub fn is_at_rest(&self) -> bool {
        self.jobs.lock().all().next().is_none()
    }

    pub(super) fn created_seq(&self) -> Seq {
        self.state.lock().created_seq
    }

    pub(super) fn is_untouched(&self) -> bool {
        !self.state.lock().worked
    }

    pub(super) fn is_analysed(&self) -> bool {
        self.state.lock().analysed
    }

    pub(super) fn ended_before(&self, before: WallTime) -> bool {
        // Order matters: the time of the last event is final once the run has ended.
        self.has_ended() && self.state.lock().record.updated_at < before
    }

    pub(super) fn is_idle(&self, now: Instant) -> bool {
        let state = self.state.lock();
        let over = state.idle_until.is_some_and(|until| until <= now);
        over && state.shown().is_active() && self.is_at_rest() && self.left().is_none()
    }

    /// Applies an event; returns the states before and after it.
    pub(super) fn fold(&self, head: &EventMeta, idle_until: Instant) -> (RunState, RunState) {
        let mut state = self.state.lock();
        let before = state.record.lifecycle;
        if before == RunState::Unborn {
            state.created_seq = head.seq;
            state.record.created_at = head.at;
        }
        let after = before.after(head.kind);
        state.record.lifecycle = after;
        state.record.updated_at = head.at;
        state.worked |= is_work(head.kind);
        state.analysed |= head.kind == EventKind::AnalysisGenerated;
        state.idle_until = Some(idle_until);
        self.published.notify_waiters();
        (before, after)
    }
}

impl State {
    fn shown(&self) -> RunState {
        let folded = self.record.lifecycle;
        self.ending.filter(|_| folded.is_active()).unwrap_or(folded)
    }
}

fn is_work(kind: EventKind) -> bool {
    use EventKind::{KeepaliveRefreshed, RunCreated, RunLabelled, TokenBudgetLow};
    !matches!(kind, RunCreated | RunLabelled | KeepaliveRefreshed | TokenBudgetLow)
}
