//! Runs jobs, ingests and reasonings: a permit, a worker, then the events of the outcome.
//!
//! A job runs on its own thread and does not end with its request; stop, delete and shutdown end it. Stills
//! are durable before the events that name them.

mod answers;
mod decode_events;
mod error;
mod excerpt;
mod job;
mod job_registry;
mod probe;
mod reason;
mod records;
mod recovered;

use std::{collections::HashMap, sync::Arc};

use gate::GateConfig;
use media::{FrameRate, JobId, Label, RequestId, Rotation, RunId, StreamId, Zones};
use parking_lot::Mutex;
use timeline::{JsonText, OpenColumns, SamplingPolicy};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, Span};
use worker::{Supervisor, WorkerError};

use super::{
    reason::{ReasonJob, Reasoned},
    remote::RemoteSources,
};
use crate::{
    base::{
        clock::RetentionClock,
        keys::Principal,
        labels::{CurrentLabels, TenantLabels},
        meta_store::MetaStore,
        metrics::Metrics,
        telemetry::SPANS,
    },
    record::{
        MemoryBudget,
        recording::{JobStorage, RunLog, failed},
    },
    runs::{
        job_queue::{JobLength, JobPermit, JobQueue, QueueFull, Reservation},
        registry::{JobGuard, JobKind, JobToken, JobView, Run, RunRegistry},
        source::IngestSource,
    },
};
use job::{Decoding, JobThread};
use job_registry::{Jobs, in_background};

pub use answers::{Answers, Writing};
pub use error::IngestError;
pub use excerpt::{EXCERPT_IDLE, EXCERPT_MS_MAX, EXCERPT_TIME, Excerpt, Rest as ExcerptRest};
pub use job::RECONNECT_WITHIN;

/// Reason of a `run_failed` event caused by a shutdown.
pub const SHUTDOWN: &str = "shutdown";

/// A checked request to ingest a source.
#[derive(Debug)]
pub struct IngestJob {
    pub request_id: RequestId,
    pub source: IngestSource,
    /// Name of the source in the request, credentials masked.
    pub source_uri: String,
    pub stream_id: StreamId,
    pub policy: SamplingPolicy,
    /// Sampling rate; `None` analyses every frame.
    pub rate: Option<FrameRate>,
    pub max_frames: u64,
    pub gate: GateConfig,
    pub zones: Zones,
    pub model: Option<Label>,
    pub words: TenantLabels,
    /// Body of the request.
    pub echo: JsonText,
}

#[derive(Clone, Debug, PartialEq)]
pub struct IngestResult {
    pub decoded_frames: u64,
    pub source_fps: Option<FrameRate>,
    pub sample_fps: Option<FrameRate>,
    pub width: u32,
    pub height: u32,
    /// Rotation that makes the pictures upright.
    pub rotation: Rotation,
    pub decoder: String,
    /// True if the source ended early or is damaged.
    pub truncated: bool,
    /// True if the source is longer than `max_frames`.
    pub more_frames: bool,
}

pub struct RunnerDependencies {
    pub registry: Arc<RunRegistry>,
    pub stores: JobStorage,
    pub answers: Answers,
    pub ledger: MetaStore,
    pub labels: Arc<CurrentLabels>,
    pub clock: RetentionClock,
    pub supervisor: Supervisor,
    pub remote: RemoteSources,
    /// Thresholds of the gate for recordings of older versions that name none.
    pub gate: GateConfig,
    pub stills: bool,
    /// Memory of live sessions and live sources.
    pub budget: MemoryBudget,
    /// Maximum concurrent jobs, and decoding threads of each.
    pub threads: usize,
    pub metrics: Arc<Metrics>,
}

/// Context of a job when it begins.
struct Begun {
    runner: Arc<JobRunner>,
    guard: Arc<JobGuard>,
    /// Permits held while the job decodes.
    places: Decoding,
    log: RunLog,
}

pub struct JobRunner {
    parts: RunnerDependencies,
    records: Jobs,
    /// Jobs that a crash interrupted, until their end is recorded.
    interrupted: Mutex<HashMap<(RunId, JobId), JobView>>,
    admission: JobQueue,
    /// Permits of reasonings, held until their models have answered.
    reasonings: JobQueue,
    /// Permits of jobs with a remote source: each has a worker, even while it waits. A live source that
    /// brings frames has memory of a live session instead.
    remotes: JobQueue,
    /// Permits of probes, which wait for no job.
    looks: JobQueue,
    /// Permits of excerpts, which wait for no job either.
    excerpts: JobQueue,
    jobs: TaskTracker,
    /// Cancelled when a drain begins: jobs on live sources end.
    draining: CancellationToken,
    /// Cancelled at the deadline of a drain: all jobs end.
    closing: CancellationToken,
}

/// Maximum file jobs that wait for a permit.
pub const QUEUE_MAX: usize = 64;
/// Maximum concurrent reasonings. Most of them wait for models, and each keeps in memory the
/// pictures it asks about.
pub const REASONINGS_MAX: usize = 64;

/// Maximum concurrent jobs with remote sources, and likewise excerpts, in total and per principal, if
/// `jobs` may decode.
pub fn shared_max(jobs: usize) -> (usize, usize) {
    let own = jobs.max(2);
    (2 * own, own)
}

impl JobRunner {
    pub fn new(parts: RunnerDependencies) -> Arc<JobRunner> {
        let [admission, looks] = [(); 2].map(|()| JobQueue::new(parts.threads, QUEUE_MAX));
        let reasonings = JobQueue::new(REASONINGS_MAX, QUEUE_MAX);
        let (all, own) = shared_max(parts.threads);
        let [remotes, excerpts] = [(); 2].map(|()| JobQueue::shared(all, own, QUEUE_MAX));
        let jobs = TaskTracker::new();
        let [draining, closing] = [(); 2].map(|()| CancellationToken::new());
        let records = Jobs::new(parts.ledger.clone());
        Arc::new(JobRunner {
            parts,
            records,
            interrupted: Mutex::default(),
            admission,
            reasonings,
            remotes,
            looks,
            excerpts,
            jobs,
            draining,
            closing,
        })
    }

    pub fn columns(&self) -> &OpenColumns {
        &self.parts.stores.columns
    }

    pub fn waiting(&self) -> usize {
        [&self.admission, &self.reasonings, &self.remotes].map(JobQueue::waiting).iter().sum()
    }

    /// Runs `ingest` on `run` as the job of `token`; returns once its events are durable.
    pub async fn ingest(
        self: &Arc<Self>,
        run: &Arc<Run>,
        ingest: IngestJob,
        token: JobToken,
    ) -> Result<IngestResult, IngestError> {
        let (request_id, id) = (ingest.request_id, run.id());
        let span = tracing::info_span!(target: SPANS, "ingest", %request_id, run = %id);
        let is_remote = ingest.source.is_remote();
        let job = |begun| JobThread::new(begun, ingest, None).ingest();
        self.run_job(run, token, is_remote, job).instrument(span).await
    }

    /// Runs `reason` on `run` as the job of `token`; returns once its events are durable.
    pub async fn reason(
        self: &Arc<Self>,
        run: &Arc<Run>,
        reason: ReasonJob,
        token: JobToken,
    ) -> Result<Reasoned, IngestError> {
        let (request_id, id) = (reason.ingest.request_id, run.id());
        let span = tracing::info_span!(target: SPANS, "reason", %request_id, run = %id);
        let is_remote = reason.ingest.source.is_remote();
        let job = |begun| reason::run(begun, reason);
        self.run_job(run, token, is_remote, job).instrument(span).await
    }

    /// Runs `job` on its own thread as the only job of `run`.
    async fn run_job<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Arc<Run>,
        token: JobToken,
        is_remote: bool,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let guard = run.begin_job(token)?;
        run.check_active()?;
        let runner = Arc::clone(self);
        // The caller may go away; the job runs to its end anyway, and its events are recorded.
        let driven = async move { runner.run_to_end(guard, is_remote, job).await };
        let task = self.jobs.spawn(driven.in_current_span());
        task.await.map_err(|_| IngestError::Lost)?
    }

    /// Records a job before it begins and runs it; deletes the record if the job is refused.
    async fn run_to_end<T: Send + 'static>(
        self: &Arc<Self>,
        guard: JobGuard,
        is_remote: bool,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        // The run stays busy until the last event of the job is on its timeline.
        let guard = Arc::new(guard);
        let (run, token) = (Arc::clone(&guard.run), guard.token.clone());
        let view = token.view().ok_or(IngestError::Lost)?;
        let (owner, request_id) = (&run.origin().principal, view.order.request);
        let room = self.reserve(owner, view.order.kind, is_remote)?;
        self.begin_job(view).await?;
        let places = if self.closing.is_cancelled() {
            None
        } else {
            let entering = self.places(owner, &token, is_remote, room);
            token.waiting.run_until_cancelled(entering).await
        };
        let outcome = match places {
            Some((_asks, places)) => self.on_thread(Arc::clone(&guard), places, job).await,
            None => Err(IngestError::Worker(WorkerError::Cancelled)),
        };
        let outcome = match outcome {
            Err(IngestError::Worker(WorkerError::Cancelled)) => {
                Err(self.cancelled(&run, &token, request_id).await)
            }
            Err(error) if error.ends_the_run() => {
                tracing::warn!(%request_id, run = %run.id(), %error, "a media worker failed");
                Err(error)
            }
            Err(IngestError::Remote(error)) => {
                self.parts.metrics.remote_failures.of((&error).into()).inc();
                Err(IngestError::Remote(error))
            }
            outcome => outcome,
        };
        drop(guard);
        if !token.is_accepted() {
            self.end_job(view.order, None).await;
        }
        outcome
    }

    /// Reserves room in the first queue of a job, the only one that can refuse it; fails before anything is written
    /// to disk.
    fn reserve(
        &self,
        owner: &Principal,
        kind: JobKind,
        is_remote: bool,
    ) -> Result<Reservation, QueueFull> {
        let first = match kind {
            JobKind::Reasoning => &self.reasonings,
            _ if is_remote => &self.remotes,
            _ => &self.admission,
        };
        first.reserve(owner)
    }

    /// Waits for the permits of a job with a reservation: one to reason, for a reasoning, and those to
    /// decode. No queue refuses the job here, as its request may have been accepted already.
    async fn places(
        &self,
        owner: &Principal,
        token: &JobToken,
        is_remote: bool,
        room: Reservation,
    ) -> (Option<JobPermit>, Decoding) {
        let is_reasoning = token.order().is_some_and(|order| order.kind == JobKind::Reasoning);
        token.accept();
        drop(room);
        let (mut asks, mut remote, mut stay) = (None, None, JobLength::Short);
        if is_reasoning {
            asks = Some(self.reasonings.pass(owner, JobLength::Short).await);
            stay = JobLength::Long;
        }
        if is_remote {
            remote = Some(self.remotes.pass(owner, JobLength::Short).await);
        }
        let slot = self.admission.pass(owner, stay).await;
        (asks, Decoding { slot, remote, _memory: None })
    }

    /// Returns the error of a cancelled job. Stop and delete record their own event, and a job
    /// cancelled by its owner leaves the run as it is; a shutdown is recorded here.
    async fn cancelled(
        self: &Arc<Self>,
        run: &Arc<Run>,
        token: &JobToken,
        request_id: RequestId,
    ) -> IngestError {
        if let Err(error) = run.check_active() {
            return error.into();
        }
        if token.is_called_off() {
            return IngestError::CalledOff;
        }
        match self.parts.registry.commit(run, vec![failed(Some(request_id), SHUTDOWN)]).await {
            Ok(_) => IngestError::Shutdown,
            Err(error) => error.into(),
        }
    }

    async fn on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        guard: Arc<JobGuard>,
        places: Decoding,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let (tell, told) = oneshot::channel();
        guard.token.begin_work();
        let log = RunLog::new(&self.parts.registry, &guard.run);
        let begun = Begun { runner: Arc::clone(self), guard, places, log };
        let span = Span::current();
        std::thread::Builder::new()
            .name("file-job".to_owned())
            .spawn(move || {
                let outcome = span.in_scope(|| job(begun));
                // The receiver waits in `run_to_end`, which only the end of the runtime drops.
                drop(tell.send(outcome));
            })
            .map_err(IngestError::Thread)?;
        told.await.map_err(|_| IngestError::Lost)?
    }

    /// Refuses new jobs, cancels those on live sources, waits for the others until `deadline` resolves, then
    /// cancels the rest.
    pub async fn drain(&self, deadline: impl Future<Output = ()>) {
        self.jobs.close();
        self.draining.cancel();
        tokio::select! {
            () = self.jobs.wait() => {}
            () = deadline => {}
        }
        self.closing.cancel();
        self.parts.registry.cancel_jobs();
        self.jobs.wait().await;
        self.settle().await;
    }
}
