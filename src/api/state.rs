//! State of the handlers: the settings, every part of the server, and helpers to run work on it.

use std::{fs::File, net::SocketAddr, num::NonZeroU32, path::PathBuf};

use gate::GateConfig;
use timeline::BlobStore;
use tokio_util::sync::CancellationToken;
use transport::ConnectionLimiter;

use super::{CorsOrigins, RateLimits, checks::Growth, jobs::Desk, prelude::*, send_budget};
use crate::{
    base::{
        blocking::{TaskPanicked, blocking},
        disk_reserve::DiskReserve,
        keys::ApiKeys,
        labels::CurrentLabels,
        meta_store::MetaStore,
        metrics::Metrics,
        quota::{Quota, QuotaLimits},
        stats::Stats,
    },
    deliver::{Deliveries, search::SearchService, sse::EventStreams, webhook::WebhookSettings},
    record::{
        image_embedder::NoveltyConfig,
        inference::{Inference, InferenceConfig},
        live::{LiveConfig, LiveService},
        runner::JobRunner,
        small_stills::SmallStills,
        worker_backends::WorkerCapabilities,
    },
    runs::{
        idempotency::IdempotencyStore,
        job_queue::JobQueue,
        registry::RunRegistry,
        retention::Retention,
        source::{IngestRoots, SourceError, path_of, remote::RemoteConfig},
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

/// Settings that handlers read.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of HTTP/1.1 and HTTP/2.
    pub bind_addr: SocketAddr,
    /// True if `bind_addr` is served with TLS.
    pub tls: bool,
    /// Address of HTTP/3; `None` if it is not served.
    pub h3: Option<SocketAddr>,
    /// Accepted keys; `None` turns keys off, so that all callers are one principal.
    pub keys: Option<ApiKeys>,
    /// Keys accepted for the metrics; `None` shows the metrics without a key.
    pub metrics_keys: Option<ApiKeys>,
    pub require_tenant_id: bool,
    pub gate: GateConfig,
    /// Free disk space, in bytes, below which no new work is accepted.
    pub disk_reserve: u64,
    pub quotas: QuotaLimits,
    pub webhooks: WebhookSettings,
    pub upload_bytes_max: u64,
    /// External programs that were looked for at the start.
    pub tools: [Tool; 2],
    pub cors_origins: CorsOrigins,
    /// True if the console is served at `/`.
    pub console: bool,
    /// Maximum number of open connections per address; `None` means no limit.
    pub connections_per_address: Option<NonZeroU32>,
    /// Requests per second of all callers together; `None` means no limit.
    pub rate_global: Option<NonZeroU32>,
    /// Requests per second of each principal; `None` means no limit.
    pub rate_principal: Option<NonZeroU32>,
    pub remote: RemoteConfig,
    pub inference: InferenceConfig,
    pub live: LiveConfig,
    pub novelty: NoveltyConfig,
}

/// External program that some work needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tool {
    pub name: &'static str,
    pub variable: &'static str,
    /// Directories, or the path, that were searched.
    pub searched: String,
    /// Path of the program; `None` if it was not found.
    pub path: Option<PathBuf>,
}

/// State shared by all handlers.
pub struct App {
    pub(crate) settings: Settings,
    pub(crate) registry: Arc<RunRegistry>,
    pub(crate) runner: Arc<JobRunner>,
    /// Store of stills.
    pub(crate) blobs: BlobStore,
    pub(crate) ledger: MetaStore,
    pub(crate) deliveries: Deliveries,
    /// Ingest roots: directories beneath which file sources may lie.
    pub(crate) roots: Arc<IngestRoots>,
    pub(crate) idempotency: Arc<IdempotencyStore>,
    pub(crate) uploads: Arc<UploadStore>,
    pub(crate) reserve: Arc<DiskReserve>,
    pub(crate) quota: Arc<Quota>,
    pub(crate) tables: Tables,
    /// Limiter of open connections.
    pub limiter: Arc<ConnectionLimiter>,
    pub(crate) retention: Arc<Retention>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) rates: RateLimits,
    pub(crate) small_stills: SmallStills,
    /// Accounts of unsent answer bytes.
    pub(crate) unsent: Arc<Quota>,
    /// Accounts of bytes of JSON bodies that arrive.
    pub(crate) arriving: Arc<Quota>,
    /// Permits to produce long answers.
    pub(crate) readers: JobQueue,
    /// Permits to read from the object store.
    pub(crate) fetchers: JobQueue,
    /// Cancelled when the server begins to shut down.
    pub draining: CancellationToken,
    pub(crate) workers: WorkerCapabilities,
    /// Maximum number of concurrent file jobs.
    pub(crate) jobs: usize,
    /// Permits of analyses; each may take the memory of half a million frames.
    pub(crate) analyses: JobQueue,
    pub(crate) inference: Arc<Inference>,
    /// Live sessions.
    pub live: Arc<LiveService>,
    pub(crate) streams: Arc<EventStreams>,
    pub(crate) search: SearchService,
    pub(crate) labels: Arc<CurrentLabels>,
}

/// Tables that are in memory only: a restart empties them.
#[derive(Default)]
pub(crate) struct Tables {
    pub growth: Growth,
    pub summaries: Summaries,
    pub stats: Stats,
    pub tickets: Tickets,
    /// Running jobs and their waiters.
    pub desk: Desk,
}

impl App {
    /// Opens the file named by `uri`: an upload of the caller, or a file beneath an ingest root.
    pub fn open_source(&self, caller: &Principal, uri: &str) -> ApiResult<File> {
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
    pub(super) fn check_open(&self) -> ApiResult<()> {
        if self.draining.is_cancelled() {
            return Err(ApiError::Draining);
        }
        self.check_disk()
    }

    /// Fails if free disk space is below the reserve, or the data directory was moved.
    pub(super) fn check_disk(&self) -> ApiResult<()> {
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
    ) -> ApiResult<T> {
        blocking(work).await.map_err(|TaskPanicked| ApiError::Bug("blocking work panicked"))
    }

    /// Produces a long answer for `owner`. At most as many run at a time as there are CPUs, so that the
    /// threads that serve sockets keep their share.
    pub(super) async fn reading<T: Send + 'static>(
        &self,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
        self.in_turn(&self.readers, owner, work).await
    }

    /// As [`App::reading`], with a permit of `places`; work under `fetchers` may wait for the object store.
    pub(super) async fn in_turn<T: Send + 'static>(
        &self,
        places: &JobQueue,
        owner: &Principal,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> ApiResult<T> {
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
