//! Runs jobs, ingests and reasonings: a place, a worker, then the events that say what came of it.
//!
//! A job lives on a thread of its own and does not end with the request that asked for it; stop,
//! delete and shutdown end it. Stills are durable before the events that name them.

mod job;
mod probe;
mod reason;
mod record;
mod stores;
mod under_way;

use std::{io, sync::Arc};

use gate::GateConfig;
use media::{ErrorKind, Label, Rate, RequestId, Rotation, StreamId};
use timeline::{BlobStore, Event, JsonText, RunFailed, SamplingPolicy, TimelineError};
use tokio::{runtime::Handle, sync::oneshot};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, Span};
use worker::{Supervisor, WorkerError};

use super::{
    admission::{Admission, Place, QueueFull},
    reason::{Reason, Reasoned},
    registry::{JobGuard, JobProgress, Registry, Run, RunError},
    remote::{RemoteError, RemoteSources},
};
use crate::{
    blocking::{Died, blocking},
    disk::{Low, Reserve},
    ledger::{Ledger, LedgerError},
    metrics::Metrics,
    quota::QuotaError,
    source::Source,
    telemetry::SPANS,
};
use job::Job;
use under_way::{JobKind, Note, UnderWay};

pub use record::Stored;
pub use under_way::INTERRUPTED;

/// The reason of a `run_failed` that a shutdown caused.
pub const SHUTDOWN: &str = "shutdown";

/// A checked request to ingest a source.
#[derive(Debug)]
pub struct Ingest {
    /// The request.
    pub request_id: RequestId,
    /// What is read.
    pub source: Source,
    /// What the caller called it, credentials masked.
    pub source_uri: String,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// How frames are chosen.
    pub policy: SamplingPolicy,
    /// The rate frames are chosen at; `None` takes every frame.
    pub rate: Option<Rate>,
    /// Most frames analysed.
    pub max_frames: u64,
    /// The model asked for, where one is.
    pub model: Option<Label>,
    /// The request body.
    pub echo: JsonText,
}

/// What an ingest came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Ingested {
    /// Frames analysed.
    pub decoded_frames: u64,
    /// Frames a second of the source.
    pub source_fps: Option<Rate>,
    /// Analysed frames a second.
    pub sample_fps: Option<Rate>,
    /// Columns of the first picture.
    pub width: u32,
    /// Rows of the first picture.
    pub height: u32,
    /// What makes its pictures upright.
    pub rotation: Rotation,
    /// The decoder really used.
    pub decoder: String,
    /// The source ended early or is damaged.
    pub truncated: bool,
}

/// Why an ingest came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The run does not take it.
    #[error(transparent)]
    Run(#[from] RunError),
    /// Too many jobs wait.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The source is no media that is served, or the worker could not cope with it.
    #[error(transparent)]
    Worker(WorkerError),
    /// The source did not come from its host.
    #[error(transparent)]
    Remote(RemoteError),
    /// Stills or signals could not be stored.
    #[error(transparent)]
    Store(#[from] TimelineError),
    /// The job would store more than a quota allows.
    #[error(transparent)]
    Quota(#[from] QuotaError),
    /// The job would take the disk's reserve.
    #[error("{0}")]
    DiskLow(Low),
    /// No thread could be started.
    #[error("cannot start a thread for the job: {0}")]
    Thread(#[source] io::Error),
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
    /// What is under way cannot be noted.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The job's thread died: our bug.
    #[error("the job ended without a result")]
    Lost,
}

impl IngestError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            IngestError::Run(error) => error.kind(),
            IngestError::QueueFull(_) => ErrorKind::Exhausted,
            IngestError::Worker(error) => error.kind(),
            IngestError::Remote(error) => error.kind(),
            IngestError::Store(error) => error.kind(),
            IngestError::Quota(error) => error.kind(),
            IngestError::DiskLow(_) => ErrorKind::Exhausted,
            IngestError::Ledger(error) => error.kind(),
            IngestError::Thread(_) | IngestError::Shutdown => ErrorKind::Unavailable,
            IngestError::Lost => ErrorKind::Internal,
        }
    }

    /// What the owner of the source is told: how a worker died is for the log.
    pub fn told(&self) -> String {
        use WorkerError::{Exited, Killed, Protocol};
        match self {
            IngestError::Worker(Killed { .. } | Exited { .. } | Protocol(_)) => {
                "the media worker crashed on this source".to_owned()
            }
            error => error.to_string(),
        }
    }

    /// The worker died, hung or used too much: what it said until then is worth nothing.
    pub fn ends_the_run(&self) -> bool {
        use WorkerError::{
            Exited, FirstFrameTimeout, Killed, MemoryLimit, OutputBudget, Protocol, Stalled,
            ThreadLimit, WallClock,
        };
        let IngestError::Worker(error) = self else { return false };
        matches!(
            error,
            Killed { .. }
                | Exited { .. }
                | Protocol(_)
                | MemoryLimit { .. }
                | ThreadLimit { .. }
                | FirstFrameTimeout { .. }
                | Stalled { .. }
                | WallClock { .. }
                | OutputBudget { .. }
        )
    }
}

/// What jobs need.
pub struct RunnerParts {
    /// Every run.
    pub registry: Arc<Registry>,
    /// Where stills go.
    pub blobs: BlobStore,
    /// Where jobs are noted while they are under way.
    pub ledger: Ledger,
    /// Room that jobs leave on disk.
    pub reserve: Arc<Reserve>,
    /// Starts media workers.
    pub supervisor: Supervisor,
    /// Opens remote sources.
    pub remote: RemoteSources,
    /// Thresholds of the gate.
    pub gate: GateConfig,
    /// Jobs store stills.
    pub stills: bool,
    /// Jobs at once, and decoding threads of each.
    pub threads: usize,
    /// What is counted.
    pub metrics: Arc<Metrics>,
}

/// What a job has when it begins.
struct Begun {
    runner: Arc<Runner>,
    guard: JobGuard,
    /// Held for as long as it decodes.
    place: Place,
    runtime: Handle,
}

/// Where jobs run.
pub struct Runner {
    parts: RunnerParts,
    under_way: UnderWay,
    admission: Admission,
    /// Places of looks into files, which wait for no job.
    looks: Admission,
    jobs: TaskTracker,
    closing: CancellationToken,
}

/// File jobs that may wait for a place.
pub const QUEUE_MAX: usize = 64;

impl Runner {
    /// A runner of as many jobs at once as `parts` says.
    pub fn new(parts: RunnerParts) -> Arc<Runner> {
        let [admission, looks] = [(); 2].map(|()| Admission::new(parts.threads, QUEUE_MAX));
        let (jobs, closing) = (TaskTracker::new(), CancellationToken::new());
        let under_way = UnderWay::new(parts.ledger.clone());
        Arc::new(Runner { parts, under_way, admission, looks, jobs, closing })
    }

    /// Jobs that wait for a place.
    pub fn waiting(&self) -> usize {
        self.admission.waiting()
    }

    /// Runs `ingest` on `run` and returns once its events are durable.
    pub async fn ingest(
        self: &Arc<Self>,
        run: &Arc<Run>,
        ingest: Ingest,
    ) -> Result<Ingested, IngestError> {
        let (request_id, id) = (ingest.request_id, run.id());
        let span = tracing::info_span!(target: SPANS, "ingest", %request_id, run = %id);
        let job = |begun: Begun| {
            let Begun { runner, guard, place, runtime } = begun;
            let ingested = Job::new(runner, guard, ingest, runtime).ingest();
            drop(place);
            ingested
        };
        self.run_job(run, Note { run: id, request: request_id, kind: JobKind::Ingest }, job)
            .instrument(span)
            .await
    }

    /// Reasons over a source on `run` and returns once its events are durable.
    pub async fn reason(
        self: &Arc<Self>,
        run: &Arc<Run>,
        reason: Reason,
    ) -> Result<Reasoned, IngestError> {
        let (request_id, id) = (reason.ingest.request_id, run.id());
        let span = tracing::info_span!(target: SPANS, "reason", %request_id, run = %id);
        let job = |begun| reason::run(begun, reason);
        self.run_job(run, Note { run: id, request: request_id, kind: JobKind::Reasoning }, job)
            .instrument(span)
            .await
    }

    /// Has `job` run on a thread of its own as the one job of `run`.
    async fn run_job<T: Send + 'static>(
        self: &Arc<Self>,
        run: &Arc<Run>,
        note: Note,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let guard = run.begin_job()?;
        run.check_active()?;
        let (tell, told) = oneshot::channel();
        let runner = Arc::clone(self);
        let driven = async move {
            let outcome = runner.drive(guard, note, job).await;
            // Whoever asked may be gone; the events are there all the same.
            drop(tell.send(outcome));
        };
        self.jobs.spawn(driven.in_current_span());
        told.await.map_err(|_| IngestError::Lost)?
    }

    /// Drives a job that is noted as under way, for as long as it is.
    async fn drive<T: Send + 'static>(
        self: &Arc<Self>,
        guard: JobGuard,
        note: Note,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let under_way = self.under_way.clone();
        in_background(move || under_way.note(note)).await??;
        let outcome = self.drive_noted(guard, note, job).await;
        let under_way = self.under_way.clone();
        let struck = in_background(move || under_way.strike(note)).await;
        if let Err(error) = struck.and_then(|struck| Ok(struck?)) {
            let Note { run, request, .. } = note;
            tracing::warn!(request_id = %request, %run, %error, "a job that is over stays noted");
        }
        outcome
    }

    async fn drive_noted<T: Send + 'static>(
        self: &Arc<Self>,
        guard: JobGuard,
        note: Note,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let (run, request_id) = (Arc::clone(guard.run()), note.request);
        let waiting = guard.token().waiting.clone();
        let place = if self.closing.is_cancelled() {
            None
        } else {
            let entering = self.admission.enter_for(&run.origin().principal, note.kind.stay());
            waiting.run_until_cancelled(entering).await.transpose()?
        };
        let outcome = match place {
            Some(place) => self.on_thread(guard, place, job).await,
            None => Err(IngestError::Worker(WorkerError::Cancelled)),
        };
        match outcome {
            Err(IngestError::Worker(WorkerError::Cancelled)) => {
                Err(self.cancelled(&run, request_id).await)
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
        }
    }

    /// A stop and a delete have said why in an event of their own; a shutdown says it here.
    async fn cancelled(self: &Arc<Self>, run: &Arc<Run>, request_id: RequestId) -> IngestError {
        if let Err(error) = run.check_active() {
            return error.into();
        }
        let failed = RunFailed { request_id: Some(request_id), reason: SHUTDOWN.to_owned() };
        match self.parts.registry.commit(run, vec![Event::RunFailed(failed)]).await {
            Ok(_) => IngestError::Shutdown,
            Err(error) => error.into(),
        }
    }

    async fn on_thread<T: Send + 'static>(
        self: &Arc<Self>,
        guard: JobGuard,
        place: Place,
        job: impl FnOnce(Begun) -> Result<T, IngestError> + Send + 'static,
    ) -> Result<T, IngestError> {
        let (tell, told) = oneshot::channel();
        let (runner, runtime) = (Arc::clone(self), Handle::current());
        let begun = Begun { runner, guard, place, runtime };
        let span = Span::current();
        std::thread::Builder::new()
            .name("file-job".to_owned())
            .spawn(move || {
                let outcome = span.in_scope(|| job(begun));
                // The receiver waits in `drive`, which nothing gives up on but a runtime's end.
                drop(tell.send(outcome));
            })
            .map_err(IngestError::Thread)?;
        told.await.map_err(|_| IngestError::Lost)?
    }

    /// Takes no further job, gives those under way until `deadline` resolves, then cancels them.
    pub async fn drain(&self, deadline: impl Future<Output = ()>) {
        self.jobs.close();
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

/// Runs what waits for the disk where it holds nobody up.
async fn in_background<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<T, IngestError> {
    blocking(work).await.map_err(|Died| IngestError::Lost)
}
