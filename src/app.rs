//! Composition root: opens every part in start order. Long because it names each part and its failure.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use ::objects::{Objects, SetupError, Writer};
use ::search::{IndexLimits, SearchError};
use media::{ErrorKind, Seq};
use timeline::{Backing, BlobStore, OpenColumns, Timeline, TimelineError, TimelineOptions};
use tokio_util::sync::CancellationToken;
use transport::{
    egress::EgressClient,
    tls::{TrustAnchors, TrustError, client_config, roots},
    webrtc::EndpointError,
};
use worker::{Supervisor, WorkerProgram};

use crate::{
    api::{ANALYSES_WAITING, App, FETCHERS, READERS_WAITING, RateLimits, Tables, byte_accounts},
    base::{
        clock::{RetentionClock, wall_now},
        database::Database,
        disk_reserve::DiskReserve,
        fd_limit,
        keys::ApiKeys,
        labels::{CurrentLabels, LabelError},
        meta_store::{MetaStore, MetaStoreError},
        metrics::{Metrics, StoredFile},
        quota::Quota,
        secret::{self, Secret},
    },
    config::Config,
    deliver::{
        Deliveries,
        export::{Export, Place, Target},
        mirror::EventMirror,
        node,
        objects::{self, Access, Sender},
        outbox::Cursors,
        search::{CHUNK_BYTES, SearchService},
        sse::EventStreams,
        webhook::WebhookService,
    },
    record::{
        MemoryBudget,
        image_embedder::{EmbedderError, ImageEmbedder},
        inference::{Inference, InferenceStartError},
        live::{LiveConfig, LiveDependencies, LiveService},
        recording::JobStorage,
        remote::RemoteSources,
        runner::{Answers, JobRunner, RunnerDependencies},
        small_stills::SmallStills,
        worker_backends::{WorkerCapabilities, WorkersError},
    },
    runs::{
        idempotency::IdempotencyStore,
        job_queue::JobQueue,
        registry::{RunLimits, RunRegistry},
        retention::Retention,
        source::IngestRoots,
        upload::{UploadError, UploadStore},
    },
    server::{ListenError, Server},
};

/// Error that prevents the server's start.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum StartError {
    #[error("cannot use the data directory {path}: {source}")]
    DataDir { path: PathBuf, source: io::Error },
    #[error("cannot use the directory of answers: {0}")]
    Answers(#[source] io::Error),
    #[error("SERVICE_INGEST_FILE_ROOTS cannot be opened: {0}")]
    Roots(#[source] io::Error),
    #[error("SERVICE_TENANT_LABEL_MAPS_PATH: {0}")]
    Labels(#[from] LabelError),
    #[error("SERVICE_EGRESS_CA_PATH: {0}")]
    Trust(#[from] TrustError),
    #[error(transparent)]
    Workers(#[from] WorkersError),
    #[error(transparent)]
    Timeline(#[from] TimelineError),
    #[error(transparent)]
    Search(#[from] SearchError),
    #[error("{source}: {}", path.display())]
    LedgerFile { path: PathBuf, source: MetaStoreError },
    /// The log is missing although stored files refer to one.
    #[error(
        "{} has no log, and {} has what one names: put the log back, or move both away to begin anew",
        log.display(), named.display()
    )]
    LogLost {
        /// Folder in which the log is missing.
        log: PathBuf,
        /// Folder with stored files, which a start without the log would remove.
        named: PathBuf,
    },
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error("the object store: {0}")]
    Objects(#[from] SetupError),
    #[error(transparent)]
    Inference(#[from] InferenceStartError),
    #[error(transparent)]
    Uploads(#[from] UploadError),
    #[error(transparent)]
    Descriptors(#[from] fd_limit::TooFewDescriptors),
    #[error(transparent)]
    Eyes(#[from] EmbedderError),
    #[error("SERVICE_WEBRTC_UDP_PORT: {0}")]
    Port(#[from] EndpointError),
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Returns true if the folder has files that are not hidden.
fn has_files(dir: &Path) -> bool {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| !entry.file_name().as_encoded_bytes().starts_with(b"."))
}

/// Refuses a new log beside existing stills or recordings, since a start without their log removes them.
fn check_log(data_dir: &Path, log: &Path) -> Result<(), StartError> {
    if has_files(log) {
        return Ok(());
    }
    let named = ["blobs", "open-columns"].map(|name| data_dir.join(name));
    match named.into_iter().find(|dir| has_files(dir)) {
        Some(named) => Err(StartError::LogLost { log: log.to_owned(), named }),
        None => Ok(()),
    }
}

/// Stores on disk, with the settings and metrics of the parts that are opened on them.
struct Stores<'a> {
    config: &'a Config,
    metrics: &'a Arc<Metrics>,
    registry: Arc<RunRegistry>,
    recordings: JobStorage,
    ledger: MetaStore,
    /// Quota that counts the bytes of the stores.
    quota: Arc<Quota>,
    clock: RetentionClock,
}

impl<'a> Stores<'a> {
    fn open(
        config: &'a Config,
        secret: &Secret,
        metrics: &'a Arc<Metrics>,
    ) -> Result<Stores<'a>, StartError> {
        let reserve = Arc::new(DiskReserve::new(config.data_dir.clone(), config.api.disk_reserve));
        let former = config.api.keys.as_ref().map(ApiKeys::former).unwrap_or_default();
        let log_dir = config.data_dir.join("log");
        check_log(&config.data_dir, &log_dir)?;
        let path = config.data_dir.join("ledger");
        if log_dir.exists() && fs::metadata(&path).is_ok_and(|ledger| ledger.len() == 0) {
            let source = redb::Error::Corrupted("it is empty".to_owned()).into();
            return Err(StartError::LedgerFile { path, source });
        }
        if log_dir.exists() && !path.exists() {
            tracing::error!(
                path = %path.display(),
                "the ledger is missing and is made anew: records of jobs, webhooks and answered requests are gone \
                 until it is put back"
            );
        }
        let ledger = match MetaStore::open(&path) {
            Err(source) if source.kind() != ErrorKind::Conflict => {
                return Err(StartError::LedgerFile { path, source });
            }
            opened => opened?,
        };
        if !has_files(&log_dir) && secret.is_marked(&ledger)? {
            return Err(StartError::LogLost { log: log_dir, named: path });
        }
        let data_dir = |source| StartError::DataDir { path: config.data_dir.clone(), source };
        if !secret.is_known(&ledger)? {
            return Err(data_dir(secret::unknown()));
        }
        let (stills, columns) = backings(config, &ledger, metrics)?.unzip();
        // Opened before the log: a start refused here, e.g. over a newer recording, changes nothing.
        let open_columns = OpenColumns::open(&config.data_dir.join("open-columns"))?;
        let blobs = BlobStore::open(&config.data_dir.join("blobs"), stills)?;
        let options = TimelineOptions { columns, ..log_options(metrics) };
        let (timeline, recovery) = Timeline::open(&log_dir, options)?;
        secret.keep(&ledger).map_err(data_dir)?;
        tracing::info!(?recovery, "log opened");
        let counted = Arc::clone(metrics);
        timeline.on_publish(Box::new(move |heads| {
            heads.iter().for_each(|head| counted.events.of(head.kind).inc());
        }));
        let limits =
            RunLimits { active: config.active_limit, ttl: config.run_ttl, tag: config.node_tag };
        let is_shared = config.api.keys.as_ref().is_some_and(|keys| keys.len() > 1);
        let quota = Quota::new(config.api.quotas, is_shared.then(|| Arc::clone(&reserve)));
        let registry =
            RunRegistry::open(timeline, limits, Arc::clone(&quota), wall_now(), &former)?;
        let unfinished = recovery.leftovers + blobs.unfinished();
        metrics.retention_files.of(StoredFile::Unfinished).inc_by(unfinished);
        let clock = RetentionClock::starting(wall_now(), registry.timeline().last_at());
        pull_back(registry.timeline(), &ledger)?;
        let still_seconds = metrics.still_seconds.clone();
        let recordings = JobStorage { blobs, columns: open_columns, reserve, still_seconds };
        Ok(Stores { config, metrics, registry, recordings, ledger, quota, clock })
    }

    fn deliveries(&self, egress: &EgressClient) -> Result<Deliveries, StartError> {
        let &Stores { config, metrics, ref registry, ref ledger, .. } = self;
        let webhooks = WebhookService::open(
            Arc::clone(registry),
            egress.clone(),
            ledger.clone(),
            Arc::clone(metrics),
            config.api.webhooks,
        )?;
        let database = config.database.as_ref().map(Database::new);
        let mirror = database.clone().map(|database| {
            let (timeline, ledger) = (registry.timeline().clone(), ledger.clone());
            EventMirror::new(config.mirror, database, timeline, ledger, Arc::clone(metrics))
        });
        let (mirror, export) = (mirror.transpose()?, self.export()?);
        let (blobs, timeline) = (self.recordings.blobs.clone(), registry.timeline().clone());
        let sender = Arc::new(Sender { blobs, timeline, metrics: Arc::clone(metrics) });
        Ok(Deliveries { database, webhooks, mirror, export, sender })
    }

    fn export(&self) -> Result<Option<Arc<Export>>, StartError> {
        let &Stores { config, metrics, ref registry, ref ledger, .. } = self;
        let Some(settings) = config.export.clone() else { return Ok(None) };
        let place = match &settings.place {
            Target::Directory(path) => Place::Directory(path.clone()),
            Target::Store(access) => Place::Store(store(access, config, ledger, metrics)?),
        };
        let (timeline, scratch) = (registry.timeline().clone(), config.data_dir.join("export"));
        let (ledger, metrics, gate) = (ledger.clone(), Arc::clone(metrics), config.api.gate);
        Ok(Some(Export::open(settings, place, timeline, ledger, metrics, gate, scratch)?))
    }

    fn inference(&self) -> Result<Arc<Inference>, StartError> {
        let (settings, ca) = (&self.config.api.inference, self.config.egress.ca_path.as_deref());
        let (runs, counted) = (Arc::clone(&self.registry), Arc::clone(self.metrics));
        Ok(Arc::new(Inference::open(settings, ca, runs, self.ledger.clone(), counted)?))
    }

    fn runner(
        &self,
        supervisor: Supervisor,
        egress: EgressClient,
        labels: &Arc<CurrentLabels>,
        budget: MemoryBudget,
        threads: usize,
    ) -> Result<Arc<JobRunner>, StartError> {
        let &Stores { config, metrics, clock, .. } = self;
        Ok(JobRunner::new(RunnerDependencies {
            registry: Arc::clone(&self.registry),
            stores: self.recordings.clone(),
            answers: Answers::open(&config.data_dir.join("answers"))
                .map_err(StartError::Answers)?,
            ledger: self.ledger.clone(),
            labels: Arc::clone(labels),
            clock,
            supervisor,
            remote: RemoteSources { egress, config: config.api.remote.clone() },
            gate: config.api.gate,
            stills: config.ingest_stills,
            budget,
            threads,
            metrics: Arc::clone(metrics),
        }))
    }
}

/// Returns the backings of the directories of stills and of columns, if an object store is configured.
fn backings(
    config: &Config,
    ledger: &MetaStore,
    metrics: &Arc<Metrics>,
) -> Result<Option<(Backing, Backing)>, StartError> {
    let Some(settings) = &config.objects else { return Ok(None) };
    let opened = store(&settings.access, config, ledger, metrics)?;
    tracing::info!(place = %opened, "stills and columns go to an object store");
    let backing = |folder, cache_bytes| Backing {
        remote: opened.folder(folder),
        place: opened.to_string(),
        cache_bytes,
    };
    // Columns stay here too: readers of the log need them at once.
    Ok(Some((backing("stills", settings.cache_bytes), backing("columns", u64::MAX))))
}

/// Opens an object store for this server.
fn store(
    access: &Access,
    config: &Config,
    ledger: &MetaStore,
    metrics: &Arc<Metrics>,
) -> Result<Objects, StartError> {
    let owner = node::name(ledger)?;
    let node = config.node_tag.map_or_else(|| owner.clone(), |tag| tag.to_string());
    let tls = client_config(TrustAnchors::Roots(roots(config.egress.ca_path.as_deref())?))?;
    let writer = Writer { node, owner };
    Ok(objects::open(access, writer, Arc::unwrap_or_clone(tls), metrics)?)
}

/// Adds the sandbox and a fork server to the worker program; counts each start of a worker.
fn prepared(worker: WorkerProgram, config: &Config, metrics: &Arc<Metrics>) -> WorkerProgram {
    let metrics = Arc::clone(metrics);
    worker.with_sandbox(config.sandbox).with_fork_server(move |start, failure| {
        metrics.worker_starts.of(start).inc();
        if let Some(error) = failure {
            tracing::warn!(%error, "a media worker is executed: it could not be forked");
        }
    })
}

/// Opens the log and every part that depends on it, and starts to serve.
pub async fn start(
    config: Config,
    worker: WorkerProgram,
    metrics: Arc<Metrics>,
) -> Result<Server, StartError> {
    let serving = config.serving.clone();
    Ok(Server::start(open(config, worker, metrics)?, &serving).await?)
}

/// Opens the log and every part that depends on it, without serving.
pub fn open(
    mut config: Config,
    worker: WorkerProgram,
    metrics: Arc<Metrics>,
) -> Result<Arc<App>, StartError> {
    let data_dir = |source| StartError::DataDir { path: config.data_dir.clone(), source };
    fs::create_dir_all(&config.data_dir).map_err(data_dir)?;
    let secret = secret::open(&config.data_dir).map_err(data_dir)?;
    let rings = &mut config.api;
    rings.keys.iter_mut().chain(&mut rings.metrics_keys).for_each(|ring| ring.seal(secret.bytes()));
    tracing::info!(path = %config.data_dir.display(), "data directory");
    let labels = Arc::new(CurrentLabels::open(config.label_maps_path.clone())?);
    let roots = Arc::new(IngestRoots::open(&config.ingest_roots).map_err(StartError::Roots)?);
    let egress = EgressClient::new(&config.egress)?;
    let worker = prepared(worker, &config, &metrics);
    let (supervisor, workers) = WorkerCapabilities::choose(worker, &config.decode)?;
    let stores = Stores::open(&config, &secret, &metrics)?;
    let deliveries = stores.deliveries(&egress)?;
    let (runs, blobs) = (Arc::clone(&stores.registry), stores.recordings.blobs.clone());
    let (counted, readers) = (Arc::clone(&metrics), deliveries.readers());
    let retention = Retention::new(config.retention, runs, blobs, counted, readers, stores.clock);
    retention.count_stored()?;
    let inference = stores.inference()?;
    let streams = EventStreams::new(Arc::clone(&stores.registry), config.streams);
    let cache = config.data_dir.join("search-cache");
    let limits = IndexLimits { memory_bytes: config.search_memory, chunk_bytes: CHUNK_BYTES };
    let search = SearchService::start(Arc::clone(&stores.registry), limits, cache)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from);
    let &LiveConfig { memory_budget, memory_share, .. } = &config.api.live;
    let budget = MemoryBudget::new(memory_budget, memory_share);
    let runner = stores.runner(supervisor.clone(), egress, &labels, budget.clone(), jobs)?;
    let limiter = fd_limit::limiter(config.connections_max, config.api.connections_per_address)?;
    let Stores { registry, recordings, ledger, quota, clock, .. } = stores;
    let idempotency = IdempotencyStore::open(ledger.clone(), clock, Arc::clone(&quota))?;
    let uploads = config.data_dir.join("uploads");
    let uploads = UploadStore::open(&uploads, config.node_tag, ledger.clone(), Arc::clone(&quota))?;
    recordings.reserve.hold(registry.timeline().clone()).map_err(data_dir)?;
    let draining = CancellationToken::new();
    let live = LiveService::open(LiveDependencies {
        registry: Arc::clone(&registry),
        stores: recordings.clone(),
        supervisor: supervisor.clone(),
        inference: Arc::clone(&inference),
        metrics: Arc::clone(&metrics),
        config: config.api.live.clone(),
        budget,
        draining: draining.clone(),
        eyes: ImageEmbedder::open(&config.api.novelty, &metrics)?,
        reuse: config.api.novelty.rule,
    })?;
    Ok(Arc::new(App {
        rates: RateLimits::new(config.api.rate_global, config.api.rate_principal),
        settings: config.api,
        registry,
        runner,
        blobs: recordings.blobs,
        ledger,
        deliveries,
        roots,
        idempotency,
        uploads: Arc::new(uploads),
        reserve: recordings.reserve,
        quota,
        tables: Tables::default(),
        limiter,
        retention,
        small_stills: SmallStills::new(supervisor, Arc::clone(&metrics)),
        metrics,
        unsent: byte_accounts(),
        arriving: byte_accounts(),
        readers: JobQueue::new(jobs, READERS_WAITING),
        fetchers: JobQueue::new(FETCHERS, READERS_WAITING),
        draining,
        workers,
        jobs,
        analyses: JobQueue::new(jobs, ANALYSES_WAITING),
        inference,
        live,
        streams,
        search,
        labels,
    }))
}

/// Checks the files that a start reads after the configuration: certificates, trust anchors, label maps.
pub fn check(config: &Config) -> Result<(), StartError> {
    drop(config.serving.certificates()?);
    EgressClient::new(&config.egress)?;
    Ok(CurrentLabels::open(config.label_maps_path.clone()).map(drop)?)
}

/// Moves the cursors of readers that are past the end of the log back to its end.
fn pull_back(log: &Timeline, ledger: &MetaStore) -> Result<(), MetaStoreError> {
    let from = Seq(log.head().0 + 1);
    let readers = Cursors(ledger.clone()).pull_back(from)?;
    if !readers.is_empty() {
        tracing::error!(
            ?readers, %from,
            "the log ends before what these readers were given, as after a repair: they go on at its end, and have \
             other events from there on"
        );
    }
    Ok(())
}

fn log_options(metrics: &Arc<Metrics>) -> TimelineOptions {
    let timed = Arc::clone(metrics);
    let on_sync = move |took: Duration| timed.fsync_seconds.observe(took.as_secs_f64());
    TimelineOptions {
        clock: Arc::new(wall_now),
        on_sync: Arc::new(on_sync),
        ..TimelineOptions::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_log_is_begun_beside_what_a_log_names() {
        // Files in the data directory, and the folder that the refused start names.
        for (files, named) in [
            (&[][..], None),
            (&["secret", "blobs/.x"], None),
            (&["blobs/x", "log/lock"], None),
            (&["blobs/x"], Some("blobs")),
            (&["open-columns/x", "uploads/x"], Some("open-columns")),
        ] {
            let dir = tempfile::tempdir().expect("a directory");
            for file in files {
                let path = dir.path().join(file);
                fs::create_dir_all(path.parent().expect("a folder")).expect("made");
                fs::write(path, "").expect("written");
            }
            let found = match check_log(dir.path(), &dir.path().join("log")) {
                Err(StartError::LogLost { named, .. }) => Some(named),
                checked => checked.map(|()| None).expect("no other error"),
            };
            assert_eq!(found, named.map(|named| dir.path().join(named)), "{files:?}");
        }
    }
}
