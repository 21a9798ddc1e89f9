//! Webhooks: send the events of one run, or of all runs of an owner, to the owner's URL, signed.
//!
//! Each webhook is a reader of the outbox: it gets its events in order and at least once, with a constant
//! `webhook-id`, from a durable cursor. An event that fails all attempts becomes a dead letter, which the
//! owner can have sent again, out of order. A run's webhook is removed with the run. A finished webhook
//! counts for no limit; the oldest ones are removed.

mod delivery;
mod message;
mod post;
mod secret;
mod store;
mod table;

use std::{sync::Arc, time::Duration};

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
use table::WebhookTable;

pub use secret::SigningSecret;
pub use store::DeadLetter;
pub use table::{Status, WebhookState};

pub const PER_RUN_MAX: usize = 8;
pub const PER_PRINCIPAL_MAX: usize = 32;
/// Maximum finished webhooks of one principal, kept for their dead letters; the oldest is removed.
pub const DONE_MAX: usize = 256;
/// Maximum dead letters of one webhook; the oldest is removed.
pub const DEAD_LETTERS_MAX: usize = 100;

/// Maximum concurrent deliveries, and how many of them may be to targets that failed last time.
const TURNS: usize = 256;
const RETRIES: usize = 128;

/// Attempts and timeout of deliveries.
#[derive(Clone, Copy, Debug)]
pub struct WebhookSettings {
    /// Maximum attempts before an event becomes a dead letter.
    pub attempts: u32,
    /// Delay from the first attempt to the second; each further delay is four times longer.
    pub retry: Duration,
    pub timeout: Duration,
}

#[derive(Clone, Debug)]
pub struct Webhook {
    pub id: WebhookId,
    /// Run whose events are sent; `None` sends those of all runs of the owner, later ones too.
    pub run: Option<RunId>,
    pub owner: Principal,
    pub url: RequestUrl,
    /// Event kinds to send; `None` sends all.
    pub kinds: Option<Vec<EventKind>>,
    /// Note of the owner.
    pub description: Option<String>,
    pub secret: SigningSecret,
    pub created_at: WallTime,
}

#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    #[error("{0}")]
    Url(&'static str),
    #[error(transparent)]
    Target(#[from] EgressError),
    #[error("{count} of at most {limit} webhooks of this {of} exist: delete one")]
    TooMany { of: &'static str, limit: usize, count: usize },
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    #[error(transparent)]
    Log(#[from] TimelineError),
    #[error(transparent)]
    Died(#[from] TaskPanicked),
}

impl WebhookError {
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

pub struct WebhookService {
    registry: Arc<RunRegistry>,
    egress: EgressClient,
    store: WebhookStore,
    metrics: Arc<Metrics>,
    settings: WebhookSettings,
    /// CloudEvents `source` of every message: this server.
    source: String,
    table: WebhookTable,
    outbox: Arc<DeliveryQueue<WebhookId>>,
    /// Held during a creation, so that limits hold.
    creating: tokio::sync::Mutex<()>,
}

impl WebhookService {
    /// Opens the webhooks in `ledger`, without starting deliveries.
    pub fn open(
        registry: Arc<RunRegistry>,
        egress: EgressClient,
        ledger: MetaStore,
        metrics: Arc<Metrics>,
        settings: WebhookSettings,
    ) -> Result<Arc<WebhookService>, MetaStoreError> {
        let source = format!("urn:sightline:{}", node::name(&ledger)?);
        let store = WebhookStore(ledger);
        let longest = Duration::from_secs(86_400);
        let backoff = Backoff { first: settings.retry, factor: 4, longest };
        let outbox = DeliveryQueue::new(ScheduleLimits { turns: TURNS, retries: RETRIES, backoff });
        let table = WebhookTable::default();
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
                // Webhooks of a deleted run are removed at once, even while they wait for a retry.
                webhooks.outbox.urge(ended);
            }
        }));
        let follower = Arc::downgrade(&webhooks);
        webhooks.registry.on_job_end(move |run| {
            if let Some(webhooks) = follower.upgrade() {
                // Webhooks that waited for the last events of a stopped job may be finished.
                webhooks.outbox.wake(webhooks.table.ids(run));
            }
        });
        Ok(webhooks)
    }

    /// Starts the deliveries, until `stop`.
    pub fn start(self: &Arc<Self>, stop: CancellationToken) -> JoinHandle<()> {
        let (outbox, webhooks) = (Arc::clone(&self.outbox), Arc::clone(self));
        tokio::spawn(outbox.run(move |slot| Arc::clone(&webhooks).turn(slot.key), stop))
    }

    fn timeline(&self) -> &Timeline {
        self.registry.timeline()
    }

    /// Returns true if no event of the webhook's run can follow; for all runs, events may always follow.
    fn has_ended(&self, run: Option<RunId>) -> bool {
        run.is_some_and(|run| self.registry.run(run).is_none_or(|run| run.has_ended()))
    }

    /// Checks `url` as a target as far as possible before the first delivery, and returns it
    /// parsed.
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

    /// Creates a webhook for the events appended from this moment on.
    pub async fn create(self: &Arc<Self>, webhook: Webhook) -> Result<Arc<Webhook>, WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let _order = webhooks.creating.lock().await;
            webhooks.check_room(&webhook)?;
            let live = WebhookState::new(webhook, Seq(webhooks.timeline().head().0 + 1));
            let (keeper, kept) = (Arc::clone(&webhooks), live.clone());
            blocking(move || keeper.store.create(&kept)).await??;
            let webhook = Arc::clone(&live.webhook);
            let owner = webhook.owner.clone();
            webhooks.table.insert(live);
            webhooks.outbox.add(webhook.id, 0);
            for done in webhooks.table.done(&owner, |run| webhooks.has_ended(run), DONE_MAX) {
                // The new webhook exists even if the removal of an old one fails.
                if let Err(error) = webhooks.remove(done).await {
                    tracing::warn!(webhook = %done, %error, "could not remove a finished webhook");
                }
            }
            Ok(webhook)
        })
        .await
    }

    fn check_room(&self, webhook: &Webhook) -> Result<(), WebhookError> {
        let too_many = |of, limit, count| Err(WebhookError::TooMany { of, limit, count });
        match self.table.count(webhook.run, &webhook.owner, |run| self.has_ended(run)) {
            (count, _) if webhook.run.is_some() && count >= PER_RUN_MAX => {
                too_many("run", PER_RUN_MAX, count)
            }
            (_, count) if count >= PER_PRINCIPAL_MAX => {
                too_many("principal", PER_PRINCIPAL_MAX, count)
            }
            _ => Ok(()),
        }
    }

    /// Returns the webhooks of `run`, or those of all runs of `owner`, oldest first, with their
    /// numbers of dead letters.
    pub async fn of(
        self: &Arc<Self>,
        owner: &Principal,
        run: Option<RunId>,
    ) -> Result<Vec<(WebhookState, usize)>, WebhookError> {
        let (webhooks, shown) = (Arc::clone(self), self.table.of(owner, run));
        Ok(blocking(move || webhooks.store.with_letters(shown)).await??)
    }

    /// Returns the webhook `id` of `owner` for `run`, or for all its runs.
    pub fn find(
        &self,
        owner: &Principal,
        run: Option<RunId>,
        id: WebhookId,
    ) -> Option<Arc<Webhook>> {
        let webhook = self.table.get(id)?.webhook;
        (webhook.run == run && webhook.owner == *owner).then_some(webhook)
    }

    /// Removes a webhook and its dead letters; a delivery in progress finishes.
    pub async fn remove(self: &Arc<Self>, id: WebhookId) -> Result<(), WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let keeper = Arc::clone(&webhooks);
            blocking(move || keeper.store.remove(id)).await??;
            // After the disk write, so that a webhook whose removal failed stays in memory too.
            webhooks.outbox.remove(id);
            webhooks.table.remove(id);
            Ok(())
        })
        .await
    }

    /// Queues the dead letters of a webhook; returns their number.
    ///
    /// They are sent before new events, oldest first, once each, until the first failure. Enables a disabled
    /// webhook.
    pub async fn redeliver(self: &Arc<Self>, id: WebhookId) -> Result<usize, WebhookError> {
        let webhooks = Arc::clone(self);
        whole(async move {
            let Some(WebhookState { order, .. }) = webhooks.table.get(id) else { return Ok(0) };
            let _order = order.lock().await;
            let keeper = Arc::clone(&webhooks);
            let count = blocking(move || keeper.store.queue(id)).await??;
            // After the disk write: a turn that looked before has found no queued letter.
            let queued =
                |live: &mut WebhookState| (live.has_queued, live.is_disabled) = (true, false);
            if webhooks.table.change(id, queued).is_some() {
                webhooks.outbox.urge([id]);
            }
            Ok(count)
        })
        .await
    }

    /// Dead letters of a webhook, oldest first.
    pub async fn dead_letters(
        self: &Arc<Self>,
        id: WebhookId,
    ) -> Result<Vec<DeadLetter>, WebhookError> {
        let webhooks = Arc::clone(self);
        Ok(blocking(move || webhooks.store.dead_letters(id)).await??)
    }
}

/// Runs `work` to its end even if its caller is gone, so that memory and disk stay consistent.
async fn whole<T: Send + 'static>(
    work: impl Future<Output = Result<T, WebhookError>> + Send + 'static,
) -> Result<T, WebhookError> {
    tokio::spawn(work.in_current_span()).await.map_err(|_| TaskPanicked)?
}

#[cfg(test)]
mod tests;
