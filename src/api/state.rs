//! State that handlers use: every part of the server, and the ways to work with them.

use std::{fs::File, sync::Arc, time::Duration};

use timeline::{BlobStore, OpenColumns};
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
        labels::{CurrentLabels, LabelMaps},
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

/// Analyses that may wait for a processor.
pub const ANALYSES_WAITING: usize = 64;
/// Long answers that may wait for a processor.
pub const READERS_WAITING: usize = 4096;
/// Readers of the object store at a time.
pub const FETCHERS: usize = 8;
/// Time for requests and jobs to finish after a stop.
pub const DRAIN: Duration = Duration::from_secs(10);

/// Everything a handler reaches.
pub struct App {
    /// Settings that handlers look at.
    pub settings: Settings,
    /// Every run.
    pub registry: Arc<RunRegistry>,
    /// Runner of jobs.
    pub runner: Arc<JobRunner>,
    /// Stored stills.
    pub blobs: BlobStore,
    /// Small durable records.
    pub ledger: MetaStore,
    /// Database in PostgreSQL, where one is configured.
    pub database: Option<Database>,
    /// The way to other hosts.
    pub egress: EgressClient,
    /// Delivery of events to their owners.
    pub webhooks: Arc<WebhookService>,
    /// Copying of descriptions to the database.
    pub mirror: Option<Arc<EventMirror>>,
    /// Writing of the log as Parquet files.
    pub export: Option<Arc<Export>>,
    /// Sending of stills and columns to the object store.
    pub sender: Arc<Sender>,
    /// Directories beneath which sources may lie.
    pub roots: Arc<IngestRoots>,
    /// Requests that must not be carried out twice.
    pub idempotency: Arc<IdempotencyStore>,
    /// Uploaded files.
    pub uploads: Arc<UploadStore>,
    /// Starts media workers.
    pub supervisor: Supervisor,
    /// Room that new work leaves on disk.
    pub reserve: Arc<DiskReserve>,
    /// Bytes that each principal stores.
    pub quota: Arc<Quota>,
    /// Growth of the bytes stored, by the quarter of an hour.
    pub growth: Growth,
    /// Open connections.
    pub limiter: Arc<ConnectionLimiter>,
    /// Removes what is old or unused.
    pub retention: Arc<Retention>,
    /// Counters and timings.
    pub metrics: Arc<Metrics>,
    /// Rate limits.
    pub rates: RateLimits,
    /// Stills scaled down.
    pub small_stills: SmallStills,
    /// Runs in short.
    pub summaries: Summaries,
    /// The last hour.
    pub stats: Stats,
    /// Tickets for the media of runs.
    pub tickets: Tickets,
    /// Bytes of answers that were made and are not yet sent.
    pub unsent: Arc<Quota>,
    /// Permits to read and write out long answers.
    pub readers: JobQueue,
    /// Readers of what only the object store has.
    pub fetchers: JobQueue,
    /// Cancelled when the server begins to shut down.
    pub draining: CancellationToken,
    /// Capabilities and isolation of media workers.
    pub workers: WorkerCapabilities,
    /// File jobs at once.
    pub jobs: usize,
    /// The jobs under way, and who waits for them.
    pub desk: Desk,
    /// Permits of analyses; each may take the memory of half a million frames.
    pub analyses: JobQueue,
    /// The way to the models.
    pub inference: Arc<Inference>,
    /// Live sessions.
    pub live: Arc<LiveService>,
    /// Open event streams.
    pub streams: Arc<EventStreams>,
    /// Search over descriptions.
    pub search: SearchService,
    /// Names that tenants give event types and objects.
    pub labels: Arc<CurrentLabels>,
}

impl App {
    /// Opens the file that `uri` names: an upload of the caller's, or one beneath a root.
    pub fn open_source(&self, caller: &Principal, uri: &str) -> Result<File, ApiError> {
        match self.uploads.named(caller, &path_of(uri)?) {
            Some(name) => {
                let upload = self.uploads.find(caller, &name?)?;
                Ok(self.uploads.open_file(&upload.ok_or(SourceError::NotFound)?)?)
            }
            None => Ok(self.roots.open_source(uri)?),
        }
    }

    /// Columns of recordings in progress.
    pub fn columns(&self) -> &OpenColumns {
        self.runner.columns()
    }

    /// The label maps in force.
    pub fn labels(&self) -> Arc<LabelMaps> {
        self.labels.get()
    }

    /// Refuses new work while the server shuts down or the disk is almost full.
    pub(super) fn check_open(&self) -> Result<(), ApiError> {
        if self.draining.is_cancelled() {
            return Err(ApiError::Draining);
        }
        self.check_disk()
    }

    /// Refuses to write more while the disk is almost full.
    pub(super) fn check_disk(&self) -> Result<(), ApiError> {
        match self.reserve.check() {
            Ok(Some(low)) => Err(ApiError::DiskLow(low)),
            // A disk that cannot be examined is for the log to refuse.
            Ok(None) | Err(_) => Ok(()),
        }
    }

    /// Runs what reads the disk away from the threads that serve sockets.
    pub(super) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        blocking(work).await.map_err(|TaskPanicked| ApiError::Bug("blocking work panicked"))
    }

    /// Makes a long answer for `owner`, as many at a time as there are processors: however many
    /// are asked for, the threads that serve sockets have their share.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        self.in_turn(&self.readers, owner, work).await
    }

    /// As [`App::reading`], in a turn of `places`: those of `fetchers` may wait for the object store.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        places: &JobQueue,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, ApiError> {
        let turn = places.enter(owner).await.map_err(|_| ApiError::ReadersFull)?;
        let turn = Arc::new(turn);
        // Requests before it in the queue may have filled the account.
        send_budget::check(self, owner)?;
        // Kept until the work is over, and until the waiting caller has its result.
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
