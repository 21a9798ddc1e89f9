//! The webhooks in memory: found by id and by run, and how each is doing.

use std::{collections::HashMap, sync::Arc};

use media::{RunId, Seq, WebhookId};
use parking_lot::Mutex;
use timeline::{EventKind, EventMeta};

use super::Webhook;
use crate::base::keys::Principal;

media::named! {
    /// Status of the deliveries of a webhook.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Status {
        /// Its last attempt was a success, or there was none.
        Active = "active",
        /// Its last attempt failed, and another will follow.
        Failing = "failing",
        /// Its target answered that it wants no more.
        Disabled = "disabled",
        /// Its run has ended, and every event of it was dealt with.
        Finished = "finished",
    }
}

/// A webhook and how far it has come.
#[derive(Clone, Debug)]
pub struct WebhookState {
    pub webhook: Arc<Webhook>,
    /// The first event of the run that was not looked at.
    pub next: Seq,
    pub is_disabled: bool,
    /// Dead letters that made room for newer ones.
    pub dropped: u64,
    /// Attempts at the event at `next` that failed.
    pub attempts: u32,
    /// Event of the last attempt, and the error, where that failed.
    pub last_error: Option<(Seq, String)>,
    /// Dead letters may be there that are to be sent again.
    pub has_queued: bool,
    /// Nothing can come any more that it has not dealt with.
    pub is_finished: bool,
    /// Held from a change here until it is on the disk, or the other way round: else one change
    /// could come first here and another there.
    pub order: Arc<tokio::sync::Mutex<()>>,
}

impl WebhookState {
    /// A webhook of which nothing was delivered.
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

    /// Nothing can come for it any more.
    fn is_done(&self, has_ended: impl Fn(Option<RunId>) -> bool) -> bool {
        self.is_finished || self.is_disabled && has_ended(self.webhook.run)
    }

    /// The event at `seq` is with the target.
    pub fn delivered(&mut self, seq: Seq) {
        self.pass(seq);
        self.last_error = None;
    }

    /// Goes on after the event at `seq`; one that was sent again moves nothing.
    pub fn pass(&mut self, seq: Seq) {
        if seq >= self.next {
            self.next = Seq(seq.0 + 1);
            self.attempts = 0;
        }
    }

    /// The attempt at `seq` failed.
    pub fn failed(&mut self, seq: Seq, reason: String) {
        self.last_error = Some((seq, reason));
    }
}

/// Webhook as lists show it.
#[derive(Clone, Debug)]
pub struct WebhookSummary {
    /// The webhook.
    pub webhook: Arc<Webhook>,
    /// Status of its deliveries.
    pub status: Status,
    /// Dead letters that made room for newer ones.
    pub dropped: u64,
    /// The event that failed last, and why, until one succeeds.
    pub last_error: Option<(Seq, String)>,
}

impl From<&WebhookState> for WebhookSummary {
    fn from(live: &WebhookState) -> WebhookSummary {
        let status = match live {
            WebhookState { is_disabled: true, .. } => Status::Disabled,
            WebhookState { is_finished: true, .. } => Status::Finished,
            WebhookState { last_error: Some(_), .. } => Status::Failing,
            WebhookState { .. } => Status::Active,
        };
        WebhookSummary {
            webhook: Arc::clone(&live.webhook),
            status,
            dropped: live.dropped,
            last_error: live.last_error.clone(),
        }
    }
}

/// Every webhook.
#[derive(Default)]
pub struct WebhookTable(Mutex<Tables>);

#[derive(Default)]
struct Tables {
    by_id: HashMap<WebhookId, WebhookState>,
    by_run: HashMap<RunId, Vec<WebhookId>>,
    /// Webhooks of every run of an owner.
    by_owner: HashMap<Principal, Vec<WebhookId>>,
}

impl Tables {
    /// The webhooks that stand where `webhook` does.
    fn beside(&mut self, webhook: &Webhook) -> &mut Vec<WebhookId> {
        match webhook.run {
            Some(run) => self.by_run.entry(run).or_default(),
            None => self.by_owner.entry(webhook.owner.clone()).or_default(),
        }
    }

    /// The webhooks of `run`, or those of `owner` for all its runs.
    fn of(&self, owner: &Principal, run: Option<RunId>) -> &[WebhookId] {
        let ids = match run {
            Some(run) => self.by_run.get(&run),
            None => self.by_owner.get(owner),
        };
        ids.map_or(&[], Vec::as_slice)
    }
}

impl WebhookTable {
    /// Adds a webhook.
    pub fn insert(&self, live: WebhookState) {
        let mut tables = self.0.lock();
        let id = live.webhook.id;
        tables.beside(&live.webhook).push(id);
        tables.by_id.insert(id, live);
    }

    /// Removes a webhook.
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

    /// Changes what is known of a webhook; `None` when it was removed meanwhile.
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

    /// The webhook `id`.
    pub fn get(&self, id: WebhookId) -> Option<WebhookState> {
        self.0.lock().by_id.get(&id).cloned()
    }

    /// Every webhook, in no order.
    pub fn all(&self) -> Vec<WebhookState> {
        self.0.lock().by_id.values().cloned().collect()
    }

    /// The webhooks of `run`, in no order.
    pub fn ids(&self, run: RunId) -> Vec<WebhookId> {
        self.0.lock().by_run.get(&run).cloned().unwrap_or_default()
    }

    /// The webhooks of `run`, or those of `owner` for all its runs, the oldest first.
    pub fn of(&self, owner: &Principal, run: Option<RunId>) -> Vec<WebhookSummary> {
        let tables = self.0.lock();
        let ids = tables.of(owner, run).iter();
        let mut shown: Vec<WebhookSummary> =
            ids.filter_map(|id| tables.by_id.get(id)).map(WebhookSummary::from).collect();
        shown.sort_by_key(|shown| (shown.webhook.created_at.epoch_ms, shown.webhook.id));
        shown
    }

    /// Webhooks of `run`, and those of `owner` together that something may still come for.
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

    /// Webhooks of `owner` that nothing can come for any more, but for the `kept` newest of them.
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

    /// Webhooks that events with these heads concern, those of the `owner` of their runs too, and those
    /// whose run they end.
    ///
    /// Called on the log's writer thread: short, whatever was published.
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
