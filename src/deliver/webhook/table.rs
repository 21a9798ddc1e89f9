//! Webhooks in memory, by id, run and owner, with their delivery state.

use std::{collections::HashMap, sync::Arc};

use media::{RunId, Seq, WebhookId};
use parking_lot::Mutex;
use timeline::{EventKind, EventMeta};

use super::Webhook;
use crate::base::keys::Principal;

media::named! {
    /// Delivery status of a webhook.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Status {
        /// The last attempt succeeded, or there was none.
        Active = "active",
        /// The last attempt failed; another follows.
        Failing = "failing",
        /// The target answered 410 Gone.
        Disabled = "disabled",
        /// The run has ended, and every event was handled.
        Finished = "finished",
    }
}

#[derive(Clone, Debug)]
pub struct WebhookState {
    pub webhook: Arc<Webhook>,
    /// First event that was not handled.
    pub next: Seq,
    pub is_disabled: bool,
    /// Number of dead letters removed over the limit.
    pub dropped: u64,
    /// Failed attempts for the event at `next`.
    pub attempts: u32,
    /// Last failed event and its error, until a delivery succeeds.
    pub last_error: Option<(Seq, String)>,
    /// True if dead letters may be queued.
    pub has_queued: bool,
    /// True if every event was handled and none can follow.
    pub is_finished: bool,
    /// Held while a change is made both here and on disk, so that two changes cannot be made in
    /// different orders.
    pub order: Arc<tokio::sync::Mutex<()>>,
}

impl WebhookState {
    /// Creates the state of a webhook without deliveries.
    pub fn new(webhook: Webhook, next: Seq) -> WebhookState {
        WebhookState {
            webhook: Arc::new(webhook),
            next,
            is_disabled: false,
            dropped: 0,
            attempts: 0,
            last_error: None,
            has_queued: false,
            is_finished: false,
            order: Arc::default(),
        }
    }

    /// Returns the delivery status, as lists show it.
    pub fn status(&self) -> Status {
        match self {
            WebhookState { is_disabled: true, .. } => Status::Disabled,
            WebhookState { is_finished: true, .. } => Status::Finished,
            WebhookState { last_error: Some(_), .. } => Status::Failing,
            WebhookState { .. } => Status::Active,
        }
    }

    /// Returns true if no further message can follow.
    fn is_done(&self, has_ended: impl Fn(Option<RunId>) -> bool) -> bool {
        self.is_finished || self.is_disabled && has_ended(self.webhook.run)
    }

    /// Notes that the event at `seq` was delivered.
    pub fn delivered(&mut self, seq: Seq) {
        self.pass(seq);
        self.last_error = None;
    }

    /// Moves the cursor past `seq`; a dead letter sent again moves nothing.
    pub fn pass(&mut self, seq: Seq) {
        if seq >= self.next {
            self.next = Seq(seq.0 + 1);
            self.attempts = 0;
        }
    }

    pub fn failed(&mut self, seq: Seq, reason: String) {
        self.last_error = Some((seq, reason));
    }
}

#[derive(Default)]
pub struct WebhookTable(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    by_id: HashMap<WebhookId, WebhookState>,
    by_run: HashMap<RunId, Vec<WebhookId>>,
    /// Webhooks of all runs of an owner.
    by_owner: HashMap<Principal, Vec<WebhookId>>,
}

impl Tables {
    /// Returns the list that `webhook` belongs to.
    fn beside(&mut self, webhook: &Webhook) -> &mut Vec<WebhookId> {
        match webhook.run {
            Some(run) => self.by_run.entry(run).or_default(),
            None => self.by_owner.entry(webhook.owner.clone()).or_default(),
        }
    }

    /// Returns the webhooks of `run`, or those of all runs of `owner`.
    fn of(&self, owner: &Principal, run: Option<RunId>) -> &[WebhookId] {
        let ids = match run {
            Some(run) => self.by_run.get(&run),
            None => self.by_owner.get(owner),
        };
        ids.map_or(&[], Vec::as_slice)
    }
}

impl WebhookTable {
    pub fn insert(&self, live: WebhookState) {
        let mut tables = self.0.lock();
        let id = live.webhook.id;
        tables.beside(&live.webhook).push(id);
        tables.by_id.insert(id, live);
    }

    pub fn remove(&self, id: WebhookId) {
        let mut tables = self.0.lock();
        let Some(live) = tables.by_id.remove(&id) else { return };
        let ids = tables.beside(&live.webhook);
        ids.retain(|known| *known != id);
        if ids.is_empty() {
            match live.webhook.run {
                Some(run) => tables.by_run.remove(&run),
                None => tables.by_owner.remove(&live.webhook.owner),
            };
        }
    }

    /// Applies `change` to a webhook; `None` if it was removed meanwhile.
    pub fn change(
        &self,
        id: WebhookId,
        change: impl FnOnce(&mut WebhookState),
    ) -> Option<WebhookState> {
        let mut tables = self.0.lock();
        let live = tables.by_id.get_mut(&id)?;
        change(live);
        Some(live.clone())
    }

    pub fn get(&self, id: WebhookId) -> Option<WebhookState> {
        self.0.lock().by_id.get(&id).cloned()
    }

    /// Returns every webhook, unordered.
    pub fn all(&self) -> Vec<WebhookState> {
        self.0.lock().by_id.values().cloned().collect()
    }

    /// Returns the webhooks of `run`, unordered.
    pub fn ids(&self, run: RunId) -> Vec<WebhookId> {
        self.0.lock().by_run.get(&run).cloned().unwrap_or_default()
    }

    /// Returns the webhooks of `run`, or those of all runs of `owner`, oldest first.
    pub fn of(&self, owner: &Principal, run: Option<RunId>) -> Vec<WebhookState> {
        let tables = self.0.lock();
        let ids = tables.of(owner, run).iter();
        let mut shown: Vec<WebhookState> =
            ids.filter_map(|id| tables.by_id.get(id)).cloned().collect();
        shown.sort_by_key(|shown| (shown.webhook.created_at.epoch_ms, shown.webhook.id));
        shown
    }

    /// Counts the webhooks of `run`, and those of `owner` that may still send messages.
    pub fn count(
        &self,
        run: Option<RunId>,
        owner: &Principal,
        has_ended: impl Fn(Option<RunId>) -> bool,
    ) -> (usize, usize) {
        let tables = self.0.lock();
        let of_run = tables.of(owner, run).len();
        let is_counted =
            |live: &&WebhookState| live.webhook.owner == *owner && !live.is_done(&has_ended);
        (of_run, tables.by_id.values().filter(is_counted).count())
    }

    /// Returns the webhooks of `owner` that can send no more messages, except the `kept` newest.
    pub fn done(
        &self,
        owner: &Principal,
        has_ended: impl Fn(Option<RunId>) -> bool,
        kept: usize,
    ) -> Vec<WebhookId> {
        let tables = self.0.lock();
        let of_owner = tables.by_id.values().filter(|live| live.webhook.owner == *owner);
        let done = of_owner.filter(|live| live.is_done(&has_ended)).map(|live| &live.webhook);
        let mut done: Vec<_> = done.map(|hook| (hook.created_at.epoch_ms, hook.id)).collect();
        done.sort_unstable();
        done.truncate(done.len().saturating_sub(kept));
        done.into_iter().map(|(_, id)| id).collect()
    }

    /// Returns the webhooks to wake for events with these heads, including those of the runs' `owner`, and
    /// the webhooks of deleted runs.
    ///
    /// Called on the log's writer thread: must be short.
    pub fn concerned(
        &self,
        heads: &[EventMeta],
        owner: impl Fn(RunId) -> Option<Principal>,
    ) -> (Vec<WebhookId>, Vec<WebhookId>) {
        let tables = self.0.lock();
        let (mut woken, mut ended) = (Vec::new(), Vec::new());
        if !tables.by_owner.is_empty() {
            let mut runs: Vec<RunId> = heads.iter().map(|head| head.run).collect();
            runs.dedup();
            let owners = runs.into_iter().filter_map(owner);
            woken.extend(owners.flat_map(|owner| tables.of(&owner, None)));
        }
        if tables.by_run.is_empty() {
            return (woken, ended);
        }
        for head in heads {
            let Some(ids) = tables.by_run.get(&head.run) else { continue };
            let list = if head.kind == EventKind::RunDeleted { &mut ended } else { &mut woken };
            list.extend(ids);
        }
        (woken, ended)
    }
}
