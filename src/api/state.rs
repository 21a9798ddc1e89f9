//! Application state of the handlers: every part of the server, and helpers to run work on it.

use std::{fs::File, sync::Arc, time::Duration};

use timeline::BlobStore;
use tokio_util::sync::CancellationToken;
use transport::{ConnectionLimiter, egress::EgressClient};
use worker::Supervisor;

use super::{ApiError, Desk, Growth, RateLimits, Settings, send_budget};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        database::Database,
        disk_reserve::DiskReserve,
        keys::Principal,
        labels::CurrentLabels,
        meta_store::MetaStore,
        metrics::Metrics,
        quota::Quota,
        stats::Stats,
    },
    deliver::{
        export::Export, mirror::EventMirror, objects::Sender, search::SearchService,
        sse::EventStreams, webhook::WebhookService,
    },
    record::{
        inference::Inference, live::LiveService, runner::JobRunner, small_stills::SmallStills,
        worker_backends::WorkerCapabilities,
    },
    runs::{
        idempotency::IdempotencyStore,
        job_queue::JobQueue,
        registry::RunRegistry,
        retention::Retention,
        source::{IngestRoots, SourceError, path_of},
        summary::Summaries,
        tickets::Tickets,
        upload::UploadStore,
    },
};

/// Maximum number of analyses that wait for a CPU permit.
pub const ANALYSES_WAITING: usize = 64;
/// Maximum number of long answers that wait for a CPU permit.
pub const READERS_WAITING: usize = 4096;
/// Maximum number of concurrent reads from the object store.
pub const FETCHERS: usize = 8;
/// Time for requests and jobs to finish after a stop signal.
pub const DRAIN: Duration = Duration::from_secs(10);

/// State shared by all handlers.
pub struct App {
    /// Settings that handlers read.
    pub settings: Settings,
    /// Registry of all runs.
    pub registry: Arc<RunRegistry>,
    /// Runner of jobs.
    pub runner: Arc<JobRunner>,
    /// Store of stills.
    pub blobs: BlobStore,
    /// Ledger: small durable records.
    pub ledger: MetaStore,
    /// PostgreSQL database, if configured.
    pub database: Option<Database>,
    /// Client for connections to other hosts.
    pub egress: EgressClient,
    /// Delivery of events to webhooks.
    pub webhooks: Arc<WebhookService>,
    /// Mirror of events to the database, if configured.
    pub mirror: Option<Arc<EventMirror>>,
    /// Export of the log as Parquet files, if configured.
    pub export: Option<Arc<Export>>,
    /// Upload of stills and columns to the object store.
    pub sender: Arc<Sender>,
    /// Ingest roots: directories beneath which file sources may lie.
    pub roots: Arc<IngestRoots>,
    /// Records of requests with an idempotency key, and stored answers.
    pub idempotency: Arc<IdempotencyStore>,
    /// Store of uploaded files.
    pub uploads: Arc<UploadStore>,
    /// Supervisor that starts media workers.
    pub supervisor: Supervisor,
    /// Free disk space that new work must leave.
    pub reserve: Arc<DiskReserve>,
    /// Quotas and byte accounts of stored data.
    pub quota: Arc<Quota>,
    /// Growth of stored bytes, sampled every 15 minutes.
    pub growth: Growth,
    /// Limiter of open connections.
    pub limiter: Arc<ConnectionLimiter>,
    /// Removal of old and unreferenced data.
    pub retention: Arc<Retention>,
    /// Metric series.
    pub metrics: Arc<Metrics>,
    /// Rate limits.
    pub rates: RateLimits,
    /// Cache of scaled-down stills.
    pub small_stills: SmallStills,
    /// Cache of run summaries.
    pub summaries: Summaries,
    /// Statistics of the last hour.
    pub stats: Stats,
    /// Tickets for the media of runs.
    pub tickets: Tickets,
    /// Accounts of unsent answer bytes.
    pub unsent: Arc<Quota>,
    /// Permits to produce long answers.
    pub readers: JobQueue,
    /// Permits to read from the object store.
    pub fetchers: JobQueue,
    /// Cancelled when the server begins to shut down.
    pub draining: CancellationToken,
    /// Capabilities and isolation of media workers.
    pub workers: WorkerCapabilities,
    /// Maximum number of concurrent file jobs.
    pub jobs: usize,
    /// Table of running jobs and their waiters.
    pub desk: Desk,
    /// Permits of analyses; each may take the memory of half a million frames.
    pub analyses: JobQueue,
    /// Access to the model backends.
    pub inference: Arc<Inference>,
    /// Live sessions.
    pub live: Arc<LiveService>,
    /// Live event streams of clients.
    pub streams: Arc<EventStreams>,
    /// Search over descriptions.
    pub search: SearchService,
    /// Label maps in use.
    pub labels: Arc<CurrentLabels>,
}

impl App {
    /// Opens the file named by `uri`: an upload of the caller, or a file beneath an ingest root.
    pub fn open_source(&self, caller: &Principal, uri: &str) -> Result<File, ApiError> {
        let path = path_of(uri)?;
        let upload = match self.uploads.named(caller, &path) {
            Some(name) => self.uploads.find(caller, &name?)?.ok_or(SourceError::NotFound)?,
            None => match self.roots.open_source(uri) {
                Err(error) if error.is_missing() => {
                    self.uploads.moved(caller, &path)?.ok_or(error)?
                }
                opened => return Ok(opened?),
            },
        };
        Ok(self.uploads.open_file(&upload)?)
    }

    /// Fails if the server is shutting down or free disk space is below the reserve.
    pub(super) fn check_open(&self) -> Result<(), ApiError> {
        if self.draining.is_cancelled() {
            return Err(ApiError::Draining);
        }
        self.check_disk()
    }

    /// Fails if free disk space is below the reserve, or the data directory was moved.
    pub(super) fn check_disk(&self) -> Result<(), ApiError> {
        match self.reserve.check() {
            Ok(Some(refusal)) => Err(ApiError::Disk(refusal)),
            // If the disk cannot be measured, the write to the log decides.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Runs blocking work off the threads that serve sockets.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        blocking(work).await.map_err(|TaskPanicked| ApiError::Bug("blocking work panicked"))
    }

    /// Produces a long answer for `owner`. At most as many run at a time as there are CPUs, so that the
    /// threads that serve sockets keep their share.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.in_turn(&self.readers, owner, work).await
    }

    /// As [`App::reading`], with a permit of `places`; work under `fetchers` may wait for the object store.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        places: &JobQueue,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = places.enter(owner).await.map_err(|_| ApiError::ReadersFull)?;
        let turn = Arc::new(turn);
        // Requests ahead in the queue may have filled the send budget.
        send_budget::check(self, owner)?;
        // Held until the work ends and the caller has received its result.
        let held = Arc::clone(&turn);
        let in_turn = move || {
            let _held = held;
            work()
        };
        let made = self.blocking(in_turn).await;
        drop(turn);
        made
    }
}
