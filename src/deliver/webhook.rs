//! Webhooks: the events of a run, or of every run of its owner, sent to a URL of the owner's, signed.
//!
//! Readers of the outbox: each webhook gets its events in order and at least once, with the same
//! `webhook-id` each time, from a durable cursor. What a target never takes becomes a dead letter and
//! the next event follows; its owner can have it sent again, out of order. A run's webhook goes with
//! its run; one that is done counts for no limit, and goes when newer ones of its principal are done.

mod delivery;
mod message;
mod post;
mod secret;
mod store;
mod table;

use std::{fmt, sync::Arc, time::Duration};

use media::{ErrorKind, RunId, Seq, WallTime, WebhookId};
use timeline::{EventKind, Timeline, TimelineError};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use transport::egress::{EgressClient, EgressError, RequestUrl};

use super::{
    node,
    outbox::{DeliveryQueue, ScheduleLimits},
};
use crate::{
    base::{
        backoff::Backoff,
        blocking::{TaskPanicked, blocking},
        keys::Principal,
        meta_store::{MetaStore, MetaStoreError},
        metrics::Metrics,
    },
    runs::registry::RunRegistry,
};

use message::WebhookMessage;
use store::WebhookStore;
use table::{WebhookState, WebhookTable};

pub use secret::{SecretError, SigningSecret};
pub use store::DeadLetter;
pub use table::{Status, WebhookSummary};

/// Webhooks of one run.
pub const PER_RUN_MAX: usize = 8;
/// Webhooks of one principal.
pub const PER_PRINCIPAL_MAX: usize = 32;
/// Webhooks of one principal that are done and kept for their dead letters; the oldest goes.
pub const DONE_MAX: usize = 256;
/// Dead letters kept of one webhook; the oldest makes room.
pub const DEAD_LETTERS_MAX: usize = 100;

/// Deliveries under way, and how many of them may be to targets that failed last time.
const TURNS: usize = 256;
const RETRIES: usize = 128;

/// Attempts and timeout of deliveries.
#[derive(Clone, Copy, Debug)]
pub struct WebhookSettings {
    /// Attempts before an event becomes a dead letter.
    pub attempts: u32,
    /// Time between the first attempt and the second; each further one is four times longer.
    pub retry: Duration,
    /// Most time for one attempt.
    pub timeout: Duration,
}

impl WebhookSettings {
    fn places(self) -> ScheduleLimits {
        let longest = Duration::from_secs(86_400);
        let backoff = Backoff { first: self.retry, factor: 4, longest };
        ScheduleLimits { turns: TURNS, retries: RETRIES, backoff }
    }
}

/// A webhook as it was made.
#[derive(Clone, Debug)]
pub struct Webhook {
    /// Its id.
    pub id: WebhookId,
    /// The run whose events it gets; those of every run of its owner, also later ones, when `None`.
    pub run: Option<RunId>,
    /// Principal that made it.
    pub owner: Principal,
    /// Target of its events.
    pub url: RequestUrl,
    /// The kinds it gets; every one when `None`.
    pub kinds: Option<Vec<EventKind>>,
    /// Note of the owner.
    pub description: Option<String>,
    /// Secret that signs its messages.
    pub secret: SigningSecret,
    /// Time at which it was made.
    pub created_at: WallTime,
}

/// Scope of a limit on the number of webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WebhookLimitScope {
    /// Webhooks of one run.
    Run,
    /// Webhooks of a principal, all runs together.
    Principal,
}

impl fmt::Display for WebhookLimitScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            WebhookLimitScope::Run => "run",
            WebhookLimitScope::Principal => "principal",
        })
    }
}

/// Reason for which a webhook is not made, found or changed.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL can never be delivered to.
    #[error("{0}")]
    Url(&'static str),
    /// The URL's host may not be reached, or cannot be found.
    #[error(transparent)]
    Target(#[from] EgressError),
    /// Limit of the number of webhooks.
    #[error("{count} of at most {limit} webhooks of this {of} exist: delete one")]
    TooMany {
        /// Scope of the limit.
        of: WebhookLimitScope,
        /// The limit.
        limit: usize,
        /// Webhooks that there are.
        count: usize,
    },
    /// The ledger failed.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    /// The log failed.
    #[error(transparent)]
    Log(#[from] TimelineError),
    /// Our own bug.
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

impl WebhookError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WebhookError::Url(_) | WebhookError::Target(_) => ErrorKind::InvalidInput,
            WebhookError::TooMany { .. } => ErrorKind::Conflict,
            WebhookError::Ledger(error) => error.kind(),
            WebhookError::Log(error) => error.kind(),
            WebhookError::Died(_) => ErrorKind::Internal,
        }
    }
}

/// Every webhook of the server.
pub struct WebhookService {
    registry: Arc<RunRegistry>,
    egress: EgressClient,
    store: WebhookStore,
    metrics: Arc<Metrics>,
    settings: WebhookSettings,
    /// The `source` of every message: this server.
    source: String,
    table: WebhookTable,
    outbox: Arc<DeliveryQueue<WebhookId>>,
    /// One creation at a time, so that limits hold.
    creating: tokio::sync::Mutex<()>,
}

impl WebhookService {
    /// The webhooks kept in `ledger`; nothing is delivered yet.
    pub fn open(
        registry: Arc<RunRegistry>,
        egress: EgressClient,
        ledger: MetaStore,
        metrics: Arc<Metrics>,
        settings: WebhookSettings,
    ) -> Result<Arc<WebhookService>, MetaStoreError> {
        let source = format!("urn:sightline:{}", node::name(&ledger)?);
        let store = WebhookStore::new(ledger);
        let (table, outbox) = (WebhookTable::default(), DeliveryQueue::new(settings.places()));
        for live in store.load()? {
            outbox.add(live.webhook.id, live.attempts);
            table.insert(live);
        }
        let creating = tokio::sync::Mutex::default();
        let webhooks = WebhookService {
            registry,
            egress,
            store,
            metrics,
            settings,
            source,
            table,
            outbox,
            creating,
        };
        let webhooks = Arc::new(webhooks);
        let follower = Arc::downgrade(&webhooks);
        webhooks.timeline().on_publish(Box::new(move |heads| {
            if let Some(webhooks) = follower.upgrade() {
                let owner = |run| Some(webhooks.registry.run(run)?.origin().principal.clone());
                let (woken, ended) = webhooks.table.concerned(heads, owner);
                webhooks.outbox.wake(woken);
                // A deleted run's webhooks go at once, even those that wait to try again.
                webhooks.outbox.urge(ended);
            }
        }));
        let follower = Arc::downgrade(&webhooks);
        webhooks.registry.on_job_end(move |run| {
            if let Some(webhooks) = follower.upgrade() {
                // Those that waited for what a stopped job came to may be finished now.
                webhooks.outbox.wake(webhooks.table.ids(run));
            }
        });
        Ok(webhooks)
    }

    /// Delivers from now on until `stop`.
    pub fn start(self: &Arc<Self>, stop: CancellationToken) -> JoinHandle<()> {
        tokio::spawn(Arc::clone(&self.outbox).run(Arc::clone(self), stop))
    }

    fn timeline(&self) -> &Timeline {
        self.registry.timeline()
    }

    /// Nothing follows of the run of a webhook; of all runs something may always.
    fn has_ended(&self, run: Option<RunId>) -> bool {
        run.is_some_and(|run| self.registry.run(run).is_none_or(|run| run.has_ended()))
    }

    /// Target of `url`, which can be delivered to as far as that is known before the first
    /// delivery.
    pub async fn check(&self, url: &str) -> Result<RequestUrl, WebhookError> {
        let target = RequestUrl::parse(url)?;
        if target.url().scheme() != "https" {
            return Err(WebhookError::Url(
                "must be an https URL: messages are not sent in the clear",
            ));
        }
        if target.credentials().is_some() {
            return Err(WebhookError::Url(
                "must hold no user or password: check the signature instead",
            ));
        }
        self.egress.check(&target).await?;
        Ok(target)
    }

    /// Makes a webhook for the events that its run gets from now on.
    pub async fn create(
        self: &Arc<Self>,
        webhook: Webhook,
    ) -> Result<WebhookSummary, WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let _order = webhooks.creating.lock().await;
            webhooks.check_room(&webhook)?;
            let live = WebhookState::new(webhook, Seq(webhooks.timeline().head().0 + 1));
            let (keeper, kept) = (Arc::clone(&webhooks), live.clone());
            blocking(move || keeper.store.create(&kept)).await??;
            let (shown, id) = (WebhookSummary::from(&live), live.webhook.id);
            let owner = live.webhook.owner.clone();
            webhooks.table.insert(live);
            webhooks.outbox.add(id, 0);
            for done in webhooks.table.done(&owner, |run| webhooks.has_ended(run), DONE_MAX) {
                // The new one is made, whatever becomes of the old.
                if let Err(error) = webhooks.remove(done).await {
                    tracing::warn!(webhook = %done, %error, "could not remove a finished webhook");
                }
            }
            Ok(shown)
        })
        .await
    }

    fn check_room(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        let too_many = |of, limit, count| Err(WebhookError::TooMany { of, limit, count });
        match self.table.count(webhook.run, &webhook.owner, |run| self.has_ended(run)) {
            (count, _) if webhook.run.is_some() && count >= PER_RUN_MAX => {
                too_many(WebhookLimitScope::Run, PER_RUN_MAX, count)
            }
            (_, count) if count >= PER_PRINCIPAL_MAX => {
                too_many(WebhookLimitScope::Principal, PER_PRINCIPAL_MAX, count)
            }
            _ => Ok(()),
        }
    }

    /// The webhooks of `run`, or those of `owner` for all its runs, the oldest first, and how many dead
    /// letters each has.
    pub async fn of(
        self: &Arc<Self>,
        owner: &Principal,
        run: Option<RunId>,
    ) -> Result<Vec<(WebhookSummary, usize)>, WebhookError> {
        let shown = self.table.of(owner, run);
        let ids: Vec<WebhookId> = shown.iter().map(|shown| shown.webhook.id).collect();
        let webhooks = Arc::clone(self);
        let counts = blocking(move || webhooks.store.count_letters(&ids)).await??;
        let counted = |shown: WebhookSummary| {
            let count = counts.get(&shown.webhook.id).copied().unwrap_or_default();
            (shown, count)
        };
        Ok(shown.into_iter().map(counted).collect())
    }

    /// The webhook `id` of `run` of `owner`, or of all its runs.
    pub fn find(
        &self,
        owner: &Principal,
        run: Option<RunId>,
        id: WebhookId,
    ) -> Option<Arc<Webhook>> {
        let webhook = self.table.get(id)?.webhook;
        (webhook.run == run && webhook.owner == *owner).then_some(webhook)
    }

    /// Forgets a webhook and its dead letters; a delivery under way comes to its end.
    pub async fn remove(self: &Arc<Self>, id: WebhookId) -> Result<(), WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let keeper = Arc::clone(&webhooks);
            blocking(move || keeper.store.remove(id)).await??;
            // After the disk: one that could not be removed would be back after a restart.
            webhooks.outbox.remove(id);
            webhooks.table.remove(id);
            Ok(())
        })
        .await
    }

    /// Has the dead letters of a webhook sent again; returns how many there are.
    ///
    /// They go before what is new, the oldest first, each once; the first that fails ends it. A
    /// disabled webhook is active again.
    pub async fn redeliver(self: &Arc<Self>, id: WebhookId) -> Result<usize, WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let Some(WebhookState { order, .. }) = webhooks.table.get(id) else { return Ok(0) };
            let _order = order.lock().await;
            let keeper = Arc::clone(&webhooks);
            let count = blocking(move || keeper.store.queue(id)).await??;
            // After the disk: a turn that looked before found nothing.
            let queued =
                |live: &mut WebhookState| (live.has_queued, live.is_disabled) = (true, false);
            if webhooks.table.change(id, queued).is_some() {
                webhooks.outbox.urge([id]);
            }
            Ok(count)
        })
        .await
    }

    /// Dead letters of a webhook, the oldest first.
    pub async fn dead_letters(
        self: &Arc<Self>,
        id: WebhookId,
    ) -> Result<Vec<DeadLetter>, WebhookError> {
        let webhooks = Arc::clone(self);
        Ok(blocking(move || webhooks.store.dead_letters(id)).await??)
    }
}

/// Does `work` to its end, also when its caller gives up: what is on the disk and what
/// is in memory stay the same.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, WebhookError>> + Send + 'static,
) -> Result<T, WebhookError> {
    tokio::spawn(work.in_current_span()).await.map_err(|_| TaskPanicked)?
}

#[cfg(test)]
mod tests;
