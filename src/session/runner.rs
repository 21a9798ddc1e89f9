//! Runs ingests: a place, a worker, then stills, signals and the events that say so.
//!
//! A job lives on a thread of its own and does not end with the request that asked for it; stop,
//! delete and shutdown end it. Stills are durable before the events that name them.

mod job;
mod stores;

use std::{fs::File, io, pin::pin, sync::Arc};

use decode::StreamInfo;
use gate::GateConfig;
use media::{ErrorKind, Rate, RequestId, StreamId};
use timeline::{BlobStore, Event, JsonText, RunFailed, SamplingPolicy, TimelineError};
use tokio::sync::oneshot;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::{Instrument, Span};
use worker::{CancelToken, Supervisor, WorkerError};

use super::{
    admission::{Admission, Place, QueueFull},
    registry::{JobGuard, JobProgress, Registry, Run, RunError},
    remote::{RemoteError, RemoteSources},
};
use crate::{
    blocking::{Died, blocking},
    config::Principal,
    disk::{Low, Reserve},
    metrics::Metrics,
    quota::QuotaError,
    source::Source,
    telemetry::SPANS,
};
use job::Job;

/// The reason of a `run_failed` that a shutdown caused.
const SHUTDOWN: &str = "shutdown";

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

/// Where jobs run.
pub struct Runner {
    parts: RunnerParts,
    admission: Admission,
    jobs: TaskTracker,
    closing: CancellationToken,
}

/// File jobs that may wait for a place.
pub const QUEUE_MAX: usize = 64;

impl Runner {
    /// A runner of as many jobs at once as `parts` says.
    pub fn new(parts: RunnerParts) -> Arc<Runner> {
        let admission = Admission::new(parts.threads, QUEUE_MAX);
        let (jobs, closing) = (TaskTracker::new(), CancellationToken::new());
        Arc::new(Runner { parts, admission, jobs, closing })
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
        let guard = run.begin_job()?;
        run.check_active()?;
        let (tell, told) = oneshot::channel();
        let runner = Arc::clone(self);
        let (request_id, id) = (ingest.request_id, run.id());
        let span = tracing::info_span!(target: SPANS, "ingest", %request_id, run = %id);
        let driven = async move {
            let outcome = runner.drive(guard, ingest).await;
            // Whoever asked may be gone; the events are there all the same.
            drop(tell.send(outcome));
        };
        self.jobs.spawn(driven.instrument(span));
        told.await.map_err(|_| IngestError::Lost)?
    }

    async fn drive(
        self: &Arc<Self>,
        guard: JobGuard,
        ingest: Ingest,
    ) -> Result<Ingested, IngestError> {
        let run = Arc::clone(guard.run());
        let request_id = ingest.request_id;
        let waiting = guard.token().waiting.clone();
        let place = if self.closing.is_cancelled() {
            None
        } else {
            let entering = self.admission.enter(&run.origin().principal);
            waiting.run_until_cancelled(entering).await.transpose()?
        };
        let outcome = match place {
            Some(place) => self.on_thread(guard, place, ingest).await,
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

    /// Says what is in a file of `owner`: a small job, which waits for its place as any other.
    ///
    /// Dropping the future ends the job.
    pub async fn probe(
        self: &Arc<Self>,
        owner: &Principal,
        file: File,
    ) -> Result<StreamInfo, IngestError> {
        let ended = self.closing.child_token();
        let _end = ended.clone().drop_guard();
        let (runner, owner) = (Arc::clone(self), owner.clone());
        let probed = async move {
            let entering = ended.run_until_cancelled(runner.admission.enter(&owner)).await;
            let place = entering.ok_or(IngestError::Shutdown)??;
            let (cancel, supervisor) = (CancelToken::new(), runner.parts.supervisor.clone());
            let token = cancel.clone();
            let probing = blocking(move || {
                let _place = place;
                supervisor.probe(file, &token)
            });
            let mut probing = pin!(probing);
            let probed = tokio::select! {
                probed = &mut probing => probed,
                () = ended.cancelled() => {
                    cancel.cancel();
                    probing.await
                }
            };
            match probed {
                Ok(Err(WorkerError::Cancelled)) => Err(IngestError::Shutdown),
                Ok(probed) => probed.map_err(IngestError::Worker),
                Err(Died) => Err(IngestError::Lost),
            }
        };
        let task = self.jobs.spawn(probed.in_current_span());
        task.await.map_err(|_| IngestError::Lost)?
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

    async fn on_thread(
        self: &Arc<Self>,
        guard: JobGuard,
        place: Place,
        ingest: Ingest,
    ) -> Result<Ingested, IngestError> {
        let (tell, told) = oneshot::channel();
        let job = Job::new(Arc::clone(self), guard, ingest, tokio::runtime::Handle::current());
        let span = Span::current();
        std::thread::Builder::new()
            .name("ingest".to_owned())
            .spawn(move || {
                let outcome = span.in_scope(|| job.run());
                drop(place);
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
    }
}
