//! Live sessions: a publisher's offer becomes a run whose timeline grows while pictures arrive.
//!
//! Promises that memory is reserved before a run is created, that the end of a session releases all its
//! resources, and that only sessions of the same media worker fail together. Knows no HTTP. Long because it
//! puts the parts of a session together.

mod description_history;
mod description_worker;
mod drop_oldest_queue;
mod ended_sessions;
mod endpoint_supervisor;
mod frame_router;
mod health;
mod novelty;
mod prompt_updates;
mod publisher_state;
mod recording;
mod session;
mod session_events;
mod settings;
mod token_rate;
mod transport_metrics;
mod worker_pool;

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use ::infer::scheduler::Priority;
use embed::ReuseRule;
use gate::GateConfig;
use media::{Codec, ErrorKind, Label, RequestId, SessionId, Zones};
use parking_lot::Mutex;
use timeline::INTERRUPTED;
use tokio::task::JoinSet;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tracing::Instrument;
use transport::webrtc::{EndpointConfig, EndpointError, OfferError, SdpAnswer};
use worker::{ClipSpec, Crop, NoveltySpec, SessionSpec, Supervisor};

use crate::{
    base::{every, keys::Principal, labels::TenantLabels, metrics::Metrics, model_catalog::Mode},
    record::{
        MemoryBudget, MemoryExhausted,
        image_embedder::ImageEmbedder,
        inference::{Inference, Requester},
        recording::{JobStorage, RunLog, failed},
    },
    runs::registry::{JobGuard, JobToken, Part, Run, RunError, RunOrigin, RunRegistry},
};
use description_worker::{DescriptionTarget, DescriptionWorker, ModelChoice};
use ended_sessions::EndedSessions;
use endpoint_supervisor::EndpointSupervisor;
use frame_router::{FrameRouter, RouterSink};
use novelty::SessionNovelty;
use prompt_updates::PromptUpdater;
use recording::LiveRecording;
use session::{DescriptionWorkers, SessionTask};
use session_events::inbox;
use token_rate::TokenRateLimit;
use worker_pool::LiveWorkerPool;

pub use description_worker::Instruction;
pub use health::Word;
pub use prompt_updates::PromptError;
pub use session::{EndReason, LiveSession};
pub use settings::{IceServer, LiveConfig};

/// Maximum sessions on the port, including offers that have not connected.
pub const SESSIONS_MAX: usize = 16_384;
/// Longest time from the answer to the publisher's connection.
pub const CONNECT_WITHIN: Duration = Duration::from_secs(30);
/// Time without packets after which a publisher counts as lost.
pub const LOST_AFTER: Duration = Duration::from_secs(10);
/// Longest edge, in pixels, of the pictures that models are shown.
const VIEW_EDGE: u32 = 1280;

#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    #[error(transparent)]
    NoRoom(#[from] MemoryExhausted),
    #[error(transparent)]
    Offer(#[from] OfferError),
    #[error(transparent)]
    Run(#[from] RunError),
}

impl LiveError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            LiveError::NoRoom(_) => ErrorKind::Exhausted,
            LiveError::Offer(error) => error.kind(),
            LiveError::Run(error) => error.kind(),
        }
    }
}

/// Options that a publisher sends with its offer.
#[derive(Clone, Debug, Default)]
pub struct SessionOptions {
    pub instruction: Instruction,
    /// Limit of output tokens per second; `None` is unlimited.
    pub tokens_per_second: Option<u32>,
    /// Clips to describe; `None` describes only frames.
    pub clips: Option<ClipSpec>,
    /// Part of the picture that models are shown.
    pub crop: Option<Crop>,
    /// Model to ask; `None` selects the configured one.
    pub model: Option<String>,
    /// Index name in the session's events, which can be filtered by it.
    pub index_name: Option<Label>,
    pub mode: Mode,
    pub gate: GateConfig,
    pub zones: Zones,
    /// Name that the owner gave the run.
    pub label: Option<Label>,
}

#[derive(Clone, Debug)]
pub struct PublisherIdentity {
    pub request_id: RequestId,
    pub principal: Principal,
    /// Tenant of the publisher, metadata only, and its labels.
    pub words: TenantLabels,
}

pub struct LiveDependencies {
    pub registry: Arc<RunRegistry>,
    pub stores: JobStorage,
    pub supervisor: Supervisor,
    pub inference: Arc<Inference>,
    pub metrics: Arc<Metrics>,
    pub config: LiveConfig,
    pub budget: MemoryBudget,
    /// Image embedder; with `None` every selected frame is described.
    pub eyes: Option<ImageEmbedder>,
    pub reuse: ReuseRule,
    /// Cancelled when the server begins to shut down.
    pub draining: CancellationToken,
}

pub struct LiveService {
    parts: LiveDependencies,
    /// Endpoint of all sessions.
    pub port: Arc<EndpointSupervisor>,
    workers: Arc<LiveWorkerPool>,
    tables: Mutex<Tables>,
    tasks: TaskTracker,
}

#[derive(Default)]
struct Tables {
    live: HashMap<SessionId, Arc<LiveSession>>,
    ended: EndedSessions,
}

/// Result of a look-up of a session by its owner.
pub enum SessionLookup {
    Live(Arc<LiveSession>),
    /// The session ended less than ten minutes ago.
    Ended,
}

impl LiveService {
    /// Opens the endpoint and starts its supervision, without a session.
    pub fn open(parts: LiveDependencies) -> Result<Arc<LiveService>, EndpointError> {
        let LiveConfig { udp, public_ips, shares_workers, .. } = &parts.config;
        let settings = EndpointConfig {
            bind: *udp,
            public_ips: public_ips.clone(),
            sessions_max: SESSIONS_MAX,
            connect_within: CONNECT_WITHIN,
            lost_after: LOST_AFTER,
        };
        let port = Arc::new(EndpointSupervisor::open(settings, Arc::clone(&parts.metrics))?);
        let counted = Arc::clone(&parts.metrics);
        let workers = LiveWorkerPool::new(parts.supervisor.clone(), *shares_workers, counted);
        let (tables, tasks) = (Mutex::default(), TaskTracker::new());
        let (kept, draining) = (Arc::clone(&port), parts.draining.clone());
        tasks.spawn(async move { kept.keep(draining).await });
        let draining = parts.draining.clone();
        let live = Arc::new(LiveService { parts, port, workers, tables, tasks });
        let sampled = Arc::downgrade(&live);
        live.tasks.spawn(async move {
            let mut tick = every(health::EVERY);
            while draining.run_until_cancelled(tick.tick()).await.is_some() {
                let Some(live) = sampled.upgrade() else { return };
                let sessions: Vec<_> = live.tables.lock().live.values().cloned().collect();
                sessions.iter().for_each(|session| session.sample());
            }
        });
        Ok(live)
    }

    pub fn eyes(&self) -> Option<&ImageEmbedder> {
        self.parts.eyes.as_ref()
    }

    /// Begins a session; waits until its run is durable.
    ///
    /// If the caller goes away, the session still begins, and ends by itself as its publisher never connects.
    pub async fn publish(
        self: &Arc<Self>,
        who: PublisherIdentity,
        offer: String,
        wishes: SessionOptions,
    ) -> Result<(Arc<LiveSession>, SdpAnswer), LiveError> {
        let live = Arc::clone(self);
        let beginning = async move { live.begin(who, &offer, wishes).await };
        let task = self.tasks.spawn(beginning.in_current_span());
        task.await.unwrap_or(Err(LiveError::Run(RunError::Unfinished)))
    }

    async fn begin(
        self: &Arc<Self>,
        who: PublisherIdentity,
        offer: &str,
        wishes: SessionOptions,
    ) -> Result<(Arc<LiveSession>, SdpAnswer), LiveError> {
        let LiveDependencies { registry, metrics, .. } = &self.parts;
        let memory = self.parts.budget.reserve(&who.principal)?;
        let (inbox, said) = inbox(Arc::clone(metrics), metrics.owners.of(&who.principal));
        let intake = FrameRouter::new(Arc::clone(inbox.shared()));
        let (link, answer) = self.port.answer(offer, Box::new(RouterSink(Arc::clone(&intake))))?;
        intake.expect(answer.codec);
        let id = SessionId::from_bytes(crate::base::id_bytes(registry.limits.tag));
        let (run, guard) = self.run_of(id, &who, &wishes).await?;
        inbox.shared().show_in(&guard.token);
        let (log, stores) = (RunLog::new(registry, &run), self.parts.stores.clone());
        let describers = self.describers(id, &who, &wishes, &log);
        let (recording, recorder) = LiveRecording::new(log, stores, id, &who, &wishes);
        inbox.shared().record_by(recorder);
        let workers = std::iter::once(&describers.keyframes).chain(&describers.clips);
        let prompts = PromptUpdater::new(workers.map(|worker| worker.prompt.clone()).collect());
        let (session, ends) = LiveSession::new(id, run, link, prompts, Arc::clone(inbox.shared()));
        let session = Arc::new(session);
        let task = SessionTask {
            session: Arc::clone(&session),
            recording,
            guard,
            metrics: Arc::clone(metrics),
            workers: Arc::clone(&self.workers),
            spec: self.spec(&wishes),
            inbox,
            intake,
            said,
            ends,
            describers,
            draining: self.parts.draining.clone(),
            memory,
        };
        self.tables.lock().live.insert(id, Arc::clone(&session));
        metrics.live_sessions.inc();
        let live = Arc::clone(self);
        self.tasks.spawn(async move {
            let _left = Left { live: &live, id, owner: &who.principal };
            task.run().await;
        });
        Ok((session, answer))
    }

    /// Creates a run for the session `id`, and takes the run's one job slot.
    async fn run_of(
        &self,
        id: SessionId,
        who: &PublisherIdentity,
        wishes: &SessionOptions,
    ) -> Result<(Arc<Run>, JobGuard), LiveError> {
        let registry = &self.parts.registry;
        let origin = RunOrigin {
            principal: who.principal.clone(),
            tenant: who.words.tenant.clone(),
            mode: wishes.mode.as_str().to_owned(),
            model: None,
            session: Some(id),
        };
        let run = registry.create(origin, wishes.label.clone(), who.request_id).await?;
        let begun = run.begin_job(JobToken::default()).and_then(|guard| {
            // Fails if the run was stopped or deleted before; a later stop finds the job.
            run.check_active()?;
            Ok(guard)
        });
        match begun {
            Ok(guard) => Ok((run, guard)),
            Err(error) => {
                let last = failed(None, "another job of the run began before its session");
                // A run that has already ended stays as it is.
                registry.wind_up(&run, Part::End, Vec::new(), Some(last)).await.ok();
                Err(error.into())
            }
        }
    }

    /// Finds the session `id` of `owner`, live or recently ended.
    pub fn find(&self, owner: &Principal, id: SessionId) -> Option<SessionLookup> {
        let tables = self.tables.lock();
        if let Some(session) = tables.live.get(&id) {
            return (session.owner() == owner).then(|| SessionLookup::Live(Arc::clone(session)));
        }
        tables.ended.has(id, owner, Instant::now()).then_some(SessionLookup::Ended)
    }

    pub fn of(&self, run: &Run) -> Option<Arc<LiveSession>> {
        self.tables.lock().live.get(&run.origin().session?).cloned()
    }

    /// Updates the metrics of live sessions that are computed on demand.
    pub fn observe(&self) {
        let metrics = &self.parts.metrics;
        self.port.tell();
        self.tables.lock().live.values().for_each(|session| session.tell(metrics));
        metrics.live_memory_reserved.set(self.parts.budget.used() as i64);
        metrics.live_workers.set(self.workers.count() as i64);
    }

    /// Waits until every session has ended, or `deadline` resolves; the shutdown of the server ends them.
    pub async fn drain(&self, deadline: impl Future<Output = ()>) {
        self.tasks.close();
        tokio::select! {
            () = self.tasks.wait() => {}
            () = deadline => tracing::warn!("live sessions interrupted: the drain timed out"),
        }
    }

    /// Fails the runs of sessions that a crash interrupted, except those with a recording that is
    /// left: its recovery ends them.
    pub async fn tell_interrupted(&self) {
        let registry = &self.parts.registry;
        for run in registry.active_sessions().into_iter().filter(|run| run.left().is_none()) {
            match registry.commit(&run, vec![failed(None, INTERRUPTED)]).await {
                Ok(_) => {
                    tracing::warn!(run = %run.id(), "live session interrupted by a server restart")
                }
                Err(error) => {
                    tracing::error!(run = %run.id(), %error, "cannot tell that it was cut off")
                }
            }
        }
    }

    /// Returns the worker's settings of a session; the codec is replaced once the publisher's is known.
    fn spec(&self, wishes: &SessionOptions) -> SessionSpec {
        SessionSpec {
            zones: wishes.zones.clone(),
            stills: true,
            crop: wishes.crop,
            view_edge: Some(VIEW_EDGE),
            clip: wishes.clips,
            novelty: self.parts.eyes.as_ref().map(|eyes| NoveltySpec { side: eyes.side() }),
            ..SessionSpec::new(Codec::H264, wishes.gate)
        }
    }

    fn describers(
        &self,
        session: SessionId,
        who: &PublisherIdentity,
        wishes: &SessionOptions,
        log: &RunLog,
    ) -> DescriptionWorkers {
        let (end, cut) = (CancellationToken::new(), CancellationToken::new());
        let mut tasks = JoinSet::new();
        let LiveConfig { model, second_model, threshold, .. } = &self.parts.config;
        let allowance = TokenRateLimit::new(wishes.tokens_per_second, Instant::now());
        let allowance = Arc::new(Mutex::new(allowance));
        let mut start = |subject| {
            let describer = DescriptionWorker {
                inference: Arc::clone(&self.parts.inference),
                asker: Requester {
                    request_id: who.request_id,
                    principal: who.principal.clone(),
                    run: Some(Arc::clone(&log.run)),
                    class: Priority::Live,
                    patience: None,
                    waits_out: true,
                },
                models: ModelChoice {
                    first: wishes.model.clone().or_else(|| model.clone()),
                    second: second_model.clone(),
                    threshold: *threshold,
                },
                log: log.clone(),
                index_name: wishes.index_name.clone(),
                metrics: Arc::clone(&self.parts.metrics),
                subject,
                instruction: wishes.instruction.clone(),
                allowance: Arc::clone(&allowance),
                novelty: self.novelty(subject, session),
            };
            let (handle, work) = describer.start(end.clone(), cut.clone());
            tasks.spawn(work);
            handle
        };
        let keyframes = start(DescriptionTarget::Keyframes);
        let clips = wishes.clips.map(|_| start(DescriptionTarget::Clips));
        DescriptionWorkers { keyframes, clips, tasks, end, cut }
    }

    /// Novelty check of selected frames; `None` for clips, which are always described.
    fn novelty(&self, subject: DescriptionTarget, session: SessionId) -> Option<SessionNovelty> {
        let eyes = self.parts.eyes.clone().filter(|_| subject == DescriptionTarget::Keyframes)?;
        let rule = self.parts.reuse;
        Some(SessionNovelty::new(eyes, rule, session.seed(), Arc::clone(&self.parts.metrics)))
    }
}

/// Guard that moves a session to the ended ones when its task ends, even by a panic.
struct Left<'a> {
    live: &'a LiveService,
    id: SessionId,
    owner: &'a Principal,
}

impl Drop for Left<'_> {
    fn drop(&mut self) {
        let mut tables = self.live.tables.lock();
        tables.live.remove(&self.id);
        tables.ended.add(self.id, self.owner.clone(), Instant::now());
        self.live.parts.metrics.live_sessions.dec();
    }
}
