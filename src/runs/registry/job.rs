//! Jobs: the handle of one (its origin, its progress, its cancellation), those of a run, and the runs that have one;
//! listeners are told of its end, which no event announces.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use media::{JobId, RequestId, RunId, WallTime};
use parking_lot::{Mutex, RwLock};
use tokio_util::sync::CancellationToken;

use super::RunRegistry;
use crate::base::{clock::wall_now, keys::Principal};

media::named! {
    /// Kind of a job. Records keep the position of a variant: more may only be added at the end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum JobKind {
        /// Decodes a source.
        Ingest = "ingest",
        /// Analyses signals.
        Analysis = "analyze",
        /// Decodes a source, has models describe it, and analyses it.
        Reasoning = "reason",
    }
}

media::named! {
    /// State of a job. Records keep the position of a variant: more may only be added at the end.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum JobStatus {
        /// Waits for a permit.
        Queued = "queued",
        Running = "running",
        Succeeded = "succeeded",
        Failed = "failed",
        Cancelled = "cancelled",
        /// Cut off by a crash of the server; shown as failed.
        Interrupted = "failed",
    }
}

impl JobStatus {
    /// Names in the API.
    pub const SHOWN: [&str; 5] = ["queued", "running", "succeeded", "failed", "cancelled"];

    /// Returns true if no other state follows.
    pub fn is_over(self) -> bool {
        !matches!(self, JobStatus::Queued | JobStatus::Running)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobOrder {
    pub id: JobId,
    pub kind: JobKind,
    pub run: RunId,
    pub request: RequestId,
    /// Time of the request.
    pub started_at: WallTime,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct JobView {
    pub order: JobOrder,
    pub status: JobStatus,
    pub frames_done: u64,
    /// Expected number of frames, if the source's length is known.
    pub frames_total: Option<u64>,
    /// Time since the job began to run, or its total, in ms.
    pub worked_ms: u64,
    pub ended_at: Option<WallTime>,
}

impl JobView {
    /// Share of frames done; `None` if the total is unknown.
    pub fn fraction(&self) -> Option<f64> {
        let total = self.frames_total.filter(|total| *total > 0)?;
        Some((self.frames_done as f64 / total as f64).min(1.0))
    }

    pub fn frames_per_second(&self) -> f64 {
        if self.worked_ms == 0 {
            0.0
        } else {
            self.frames_done as f64 * 1e3 / self.worked_ms as f64
        }
    }

    /// Time left at this rate, in ms; `None` if unknown.
    pub fn eta_ms(&self) -> Option<u64> {
        let left = self.frames_total?.saturating_sub(self.frames_done);
        let rate = self.frames_per_second();
        (!self.status.is_over() && rate > 0.0).then(|| (left as f64 * 1e3 / rate) as u64)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ChunkProgress {
    /// Number of chunks asked about or waiting for an earlier answer.
    pub asked: u64,
    /// Number of those chunks with an answer.
    pub answered: u64,
    /// Number of those chunks closed without an answer.
    pub unanswered: u64,
}

/// Progress of a job; in memory only, dropped with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    pub frames: u64,
    /// Presentation time of the last frame, in ms.
    pub pts_ms: i64,
    pub chunks: Option<ChunkProgress>,
    /// Expected number of frames, if known.
    total: Option<u64>,
    /// Time at which the job began to run.
    running_since: Option<Instant>,
}

/// Cancels a job, whether it waits in a queue or runs in a worker, and shows its progress.
#[derive(Clone, Debug, Default)]
pub struct JobToken {
    /// Cancels asynchronous waits of the job.
    pub waiting: CancellationToken,
    /// Cancels the worker of the job.
    pub running: worker::CancelToken,
    /// Request that started the job; `None` for a live session.
    order: Option<JobOrder>,
    /// Cancelled, as a signal, once the job is accepted.
    accepted: CancellationToken,
    /// Cancelled if the owner cancelled the job; its run goes on.
    called_off: CancellationToken,
    progress: Arc<Mutex<JobProgress>>,
}

impl JobToken {
    /// Creates the handle of a job requested at this time.
    pub fn asked(kind: JobKind, run: RunId, request: RequestId) -> (JobToken, JobOrder) {
        let mut id: [u8; 16] = crate::base::random_bytes();
        // The id begins with the same two bytes as the run's: the node's tag, if any.
        id[..2].copy_from_slice(&run.as_bytes()[..2]);
        let id = JobId::from_bytes(id);
        let order = JobOrder { id, kind, run, request, started_at: wall_now() };
        (JobToken { order: Some(order), ..JobToken::default() }, order)
    }

    pub(super) fn is_analysis(&self) -> bool {
        self.order().is_some_and(|order| order.kind == JobKind::Analysis)
    }

    pub fn order(&self) -> Option<&JobOrder> {
        self.order.as_ref()
    }

    /// Accepts the job: after this no queue refuses it.
    pub fn accept(&self) {
        self.accepted.cancel();
    }

    pub fn is_accepted(&self) -> bool {
        self.accepted.is_cancelled()
    }

    pub async fn accepted(&self) {
        self.accepted.cancelled().await;
    }

    pub fn begin_work(&self) {
        self.progress.lock().running_since.get_or_insert_with(Instant::now);
    }

    /// Raises the progress in frames; a lower count has no effect.
    pub fn advance(&self, frames: u64, pts_ms: i64) {
        let mut progress = self.progress.lock();
        if progress.frames < frames {
            (progress.frames, progress.pts_ms) = (frames, pts_ms);
        }
    }

    pub fn expect_frames(&self, total: u64) {
        self.progress.lock().total = Some(total);
    }

    pub fn tell_chunks(&self, chunks: ChunkProgress) {
        self.progress.lock().chunks = Some(chunks);
    }

    pub fn progress(&self) -> JobProgress {
        *self.progress.lock()
    }

    /// Returns the state of the job; `None` for a live session.
    pub fn view(&self) -> Option<JobView> {
        let (order, progress) = (*self.order()?, self.progress());
        let worked = progress.running_since.map_or(Duration::ZERO, |since| since.elapsed());
        let is_running = progress.running_since.is_some();
        Some(JobView {
            order,
            status: if is_running { JobStatus::Running } else { JobStatus::Queued },
            frames_done: progress.frames,
            frames_total: progress.total,
            worked_ms: u64::try_from(worked.as_millis()).unwrap_or(u64::MAX),
            ended_at: None,
        })
    }

    /// Cancels the job, but not its run.
    pub fn call_off(&self) {
        self.called_off.cancel();
        self.cancel();
    }

    pub fn is_called_off(&self) -> bool {
        self.called_off.is_cancelled()
    }

    /// Returns true if the job is cancelled for any reason.
    pub fn is_cancelled(&self) -> bool {
        self.waiting.is_cancelled()
    }

    /// Cancels the job for the end of its run or of the server.
    pub fn cancel(&self) {
        self.waiting.cancel();
        self.running.cancel();
    }
}

#[derive(Default)]
pub(super) struct Jobs {
    /// Job that appends frames.
    pub(super) work: Option<JobToken>,
    /// Analysis, which may run beside that job.
    analysis: Option<JobToken>,
}

impl Jobs {
    pub(super) fn place(&mut self, token: &JobToken) -> &mut Option<JobToken> {
        if token.is_analysis() { &mut self.analysis } else { &mut self.work }
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &JobToken> {
        self.work.iter().chain(&self.analysis)
    }
}

pub(super) fn busy(job: Option<JobId>) -> String {
    match job {
        Some(job) => format!("{job} of this run is under way: wait for it or cancel it"),
        None => "live video of this run is under way".to_owned(),
    }
}

type Listener = Box<dyn Fn(RunId) + Send + Sync>;

#[derive(Default)]
pub(super) struct AllJobs {
    busy: Mutex<HashMap<Principal, HashSet<RunId>>>,
    listeners: RwLock<Vec<Listener>>,
}

impl AllJobs {
    pub(super) fn began(&self, owner: &Principal, run: RunId) {
        self.busy.lock().entry(owner.clone()).or_default().insert(run);
    }

    /// Notes that the last job of `run` has ended.
    pub(super) fn rests(&self, owner: &Principal, run: RunId) {
        let mut busy = self.busy.lock();
        let Some(runs) = busy.get_mut(owner) else { return };
        runs.remove(&run);
        if runs.is_empty() {
            busy.remove(owner);
        }
    }

    pub(super) fn count(&self, owner: &Principal, counts: impl Fn(&RunId) -> bool) -> usize {
        let busy = self.busy.lock();
        busy.get(owner).map_or(0, |runs| runs.iter().filter(|run| counts(run)).count())
    }

    pub(super) fn tell(&self, run: RunId) {
        // Listeners are only added: the list stays whole after a panic.
        let listeners = self.listeners.read();
        listeners.iter().for_each(|listener| listener(run));
    }
}

impl RunRegistry {
    /// Number of runs with a job, including live sessions.
    pub fn busy_runs(&self) -> usize {
        self.jobs.busy.lock().values().map(HashSet::len).sum()
    }

    /// Adds a listener, called with the run of each job that ends, after the job's last event is
    /// readable. `listener` must be short.
    pub fn on_job_end(&self, listener: impl Fn(RunId) + Send + Sync + 'static) {
        let mut listeners = self.jobs.listeners.write();
        listeners.push(Box::new(listener));
    }
}
