//! Delivery turn of one webhook: reads events after the cursor, sends them, and records the results.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use media::{RunId, Seq, WebhookId};
use timeline::{EventKind, EventMeta, Timeline};

use super::{
    DeadLetter, Webhook, WebhookError, WebhookService,
    message::WebhookMessage,
    post::{self, AttemptOutcome},
    table::WebhookState,
};
use crate::{
    base::{blocking::blocking, metrics::DeliveryOutcome},
    deliver::outbox::DeliveryResult,
};

/// Maximum events and duration of a turn: other webhooks wait for its slot.
const TURN_EVENTS: usize = 16;
const TURN_TIME: Duration = Duration::from_secs(2);
/// Event heads read in one step.
const HEADS: usize = 256;

enum Next {
    /// Message of the next event after the cursor, or of a dead letter that is sent again.
    Message(WebhookMessage, Option<DeadLetter>),
    /// No message before this event number.
    Nothing(Seq),
}

/// Reads the events after a webhook's cursor in steps.
struct Events {
    run: Option<RunId>,
    next: Seq,
}

impl Events {
    /// Starts at the cursor of `live`.
    fn after(live: &WebhookState) -> Events {
        Events { run: live.webhook.run, next: live.next }
    }

    /// Returns the next heads, including those of other owners' runs; `None` after the last.
    fn step(&mut self, timeline: &Timeline) -> Option<Vec<EventMeta>> {
        let Some(run) = self.run else {
            let (from, head) = (self.next, timeline.head());
            // Purged events have no heads: the position advances by numbers.
            self.next = Seq((from.0 + HEADS as u64).min(head.0 + 1).max(from.0));
            return (from <= head).then(|| timeline.heads(from, (self.next.0 - from.0) as usize));
        };
        let heads = timeline.heads_of(run, self.next, HEADS);
        self.next = Seq(heads.last()?.seq.0 + 1);
        Some(heads)
    }
}

impl WebhookService {
    /// Runs with events that an enabled webhook has not delivered.
    pub fn behind(&self) -> HashSet<RunId> {
        let mut behind = HashSet::new();
        for live in self.table.all().into_iter().filter(|live| !live.is_disabled) {
            match live.webhook.run {
                Some(run) if self.timeline().heads_of(run, live.next, 1).is_empty() => {}
                Some(run) => _ = behind.insert(run),
                None => {
                    let mut events = Events::after(&live);
                    while let Some(heads) = events.step(self.timeline()) {
                        let own =
                            heads.into_iter().filter(|head| self.may_tell(&live.webhook, head));
                        behind.extend(own.map(|head| head.run));
                    }
                }
            }
        }
        behind
    }

    /// Returns true if the event belongs to a visible run of the webhook's owner, or is the
    /// deletion of one of its runs.
    fn may_tell(&self, webhook: &Webhook, head: &EventMeta) -> bool {
        match self.registry.find_any(head.run, &webhook.owner) {
            Some(run) => run.lifecycle().is_visible() || head.kind == EventKind::RunDeleted,
            None => false,
        }
    }

    /// Returns the next message; queued dead letters come first.
    fn next(&self, live: &WebhookState) -> Result<Next, WebhookError> {
        if live.has_queued
            && let Some(again) = self.queued(&live.webhook)?
        {
            return Ok(again);
        }
        let (webhook, mut events) = (&live.webhook, Events::after(live));
        let is_wanted = |head: &EventMeta| {
            let is_of_kind = webhook.kinds.as_ref().is_none_or(|kinds| kinds.contains(&head.kind));
            is_of_kind && (webhook.run.is_some() || self.may_tell(webhook, head))
        };
        while let Some(heads) = events.step(self.timeline()) {
            for head in heads.iter().filter(|head| is_wanted(head)) {
                // Retention may have removed the event since: it is skipped.
                if let Some(event) = self.timeline().get_parts(head.seq)? {
                    let message = WebhookMessage::new(webhook, &self.source, event)?;
                    return Ok(Next::Message(message, None));
                }
            }
        }
        Ok(Next::Nothing(events.next))
    }

    fn queued(&self, webhook: &Webhook) -> Result<Option<Next>, WebhookError> {
        let note = |has_queued| self.table.change(webhook.id, |live| live.has_queued = has_queued);
        // Set before the look-up: letters queued later set it again.
        note(false);
        let next = self.first_queued(webhook);
        // After an error too, so that the next turn looks again.
        if !matches!(next, Ok(None)) {
            note(true);
        }
        next
    }

    fn first_queued(&self, webhook: &Webhook) -> Result<Option<Next>, WebhookError> {
        while let Some(letter) = self.store.first_queued(webhook.id)? {
            let event = self.timeline().get_parts(letter.seq)?;
            if let Some(event) = event.filter(|event| self.may_tell(webhook, &event.head)) {
                let message = WebhookMessage::new(webhook, &self.source, event)?;
                return Ok(Some(Next::Message(message, Some(letter))));
            }
            self.store.take_dead_letter(webhook.id, letter.seq)?;
        }
        Ok(None)
    }

    /// Delivers the events after the cursor of a webhook, then stores its progress.
    async fn deliver(self: &Arc<Self>, key: WebhookId) -> Result<DeliveryResult, WebhookError> {
        let started = Instant::now();
        let mut delivered = 0;
        let outcome = loop {
            let Some(live) = self.entitled(key).await? else { return Ok(DeliveryResult::Ended) };
            // Must come before reading: no event follows the end of a run, so that the read covers
            // all of them.
            let has_ended = self.has_ended(live.webhook.run);
            let (webhooks, looking) = (Arc::clone(self), live.clone());
            let next = blocking(move || webhooks.next(&looking)).await??;
            let (message, letter) = match next {
                Next::Message(message, letter) => (message, letter),
                Next::Nothing(next) => {
                    self.table.change(key, |live| {
                        live.next = next;
                        live.is_finished = has_ended;
                    });
                    break DeliveryResult::Drained;
                }
            };
            let timeout = self.settings.timeout;
            let verdict = post::post(&self.egress, &live.webhook, &message, timeout).await;
            let progressed = delivered > 0;
            if let Some(end) = self.settle(live, &message, letter, verdict, progressed).await? {
                break end;
            }
            delivered += 1;
            if delivered == TURN_EVENTS || started.elapsed() > TURN_TIME {
                break DeliveryResult::More;
            }
        };
        if delivered > 0 || matches!(outcome, DeliveryResult::Failed { .. }) {
            self.keep(key, |_| {}).await?;
        }
        Ok(outcome)
    }

    /// Returns the webhook `id` if it is enabled; removes it if its run is gone.
    async fn entitled(
        self: &Arc<Self>,
        id: WebhookId,
    ) -> Result<Option<WebhookState>, WebhookError> {
        let Some(live) = self.table.get(id) else { return Ok(None) };
        let is_gone = |run| self.registry.find(run, &live.webhook.owner).is_none();
        if let Some(run) = live.webhook.run.filter(|run| is_gone(*run)) {
            // A backup may bring back the event that names the owner of an unowned run.
            if !self.registry.unowned().contains(&run) {
                self.remove(id).await?;
            }
            return Ok(None);
        }
        Ok((!live.is_disabled).then_some(live))
    }

    /// Records the result of an attempt for an event, or for the dead letter `letter`. Returns the result of the
    /// turn, which has `progressed` before, if it is to end.
    async fn settle(
        self: &Arc<Self>,
        live: WebhookState,
        message: &WebhookMessage,
        letter: Option<DeadLetter>,
        verdict: AttemptOutcome,
        progressed: bool,
    ) -> Result<Option<DeliveryResult>, WebhookError> {
        let (id, seq, attempt) = (live.webhook.id, message.seq, live.attempts + 1);
        let count = |outcome| self.metrics.webhook_deliveries.of(outcome).inc();
        match (verdict, letter) {
            (AttemptOutcome::Delivered, letter) => {
                count(DeliveryOutcome::Delivered);
                if letter.is_some() {
                    let webhooks = Arc::clone(self);
                    blocking(move || webhooks.store.take_dead_letter(id, seq)).await??;
                }
                self.table.change(id, |live| live.delivered(seq));
                Ok(None)
            }
            (AttemptOutcome::Gone, _) => {
                count(DeliveryOutcome::Gone);
                let disabled = |live: &mut WebhookState| {
                    live.is_disabled = true;
                    live.failed(seq, "answered 410: it wants no more".to_owned());
                };
                self.keep(id, disabled).await?;
                Ok(Some(DeliveryResult::Ended))
            }
            (AttemptOutcome::Failed { reason, at_least }, Some(mut letter)) => {
                count(DeliveryOutcome::Failed);
                letter.attempts = letter.attempts.saturating_add(1);
                letter.error = reason;
                let webhooks = Arc::clone(self);
                blocking(move || webhooks.store.return_dead_letter(id, letter)).await??;
                Ok(Some(DeliveryResult::Failed { at_least, progressed }))
            }
            (AttemptOutcome::Failed { reason, .. }, None) if attempt >= self.settings.attempts => {
                count(DeliveryOutcome::Failed);
                self.bury(live, message, attempt, reason).await?;
                Ok(Some(DeliveryResult::More))
            }
            (AttemptOutcome::Failed { reason, at_least }, None) => {
                count(DeliveryOutcome::Failed);
                self.table.change(id, |live| {
                    live.attempts = attempt;
                    live.failed(seq, reason);
                });
                Ok(Some(DeliveryResult::Failed { at_least, progressed }))
            }
        }
    }

    /// Applies `change` to the webhook `id`, and stores its state.
    pub(super) async fn keep(
        self: &Arc<Self>,
        id: WebhookId,
        change: impl FnOnce(&mut WebhookState),
    ) -> Result<(), WebhookError> {
        let Some(WebhookState { order, .. }) = self.table.get(id) else { return Ok(()) };
        let order = order.lock_owned().await;
        let Some(live) = self.table.change(id, change) else { return Ok(()) };
        let webhooks = Arc::clone(self);
        let kept = blocking(move || {
            // Held until the write is over, as the turn may be dropped before.
            let _order = order;
            webhooks.store.keep(&live)
        });
        Ok(kept.await??)
    }

    /// Stores an event as a dead letter and moves the cursor past it, in one transaction.
    async fn bury(
        self: &Arc<Self>,
        mut live: WebhookState,
        message: &WebhookMessage,
        attempts: u32,
        error: String,
    ) -> Result<(), WebhookError> {
        self.metrics.webhook_deliveries.of(DeliveryOutcome::Dead).inc();
        let (id, seq) = (live.webhook.id, message.seq);
        let letter = DeadLetter { seq, kind: message.kind, attempts, error, queued: false };
        tracing::warn!(webhook = %id, %seq, letter.error, "a dead letter");
        let error = letter.error.clone();
        let passed = move |live: &mut WebhookState| {
            live.failed(seq, error.clone());
            live.pass(seq);
        };
        passed(&mut live);
        let webhooks = Arc::clone(self);
        let dropped = blocking(move || webhooks.store.add_dead_letter(live, &letter)).await??;
        self.table.change(id, |live| {
            passed(live);
            live.dropped += dropped;
        });
        Ok(())
    }

    /// Delivers some events of the webhook `id`.
    pub(super) async fn turn(self: Arc<Self>, id: WebhookId) -> DeliveryResult {
        self.deliver(id).await.unwrap_or_else(|error| {
            // A fault of this server's ledger or log, not of the target.
            tracing::error!(%error, webhook = %id, "a webhook cannot be delivered now");
            DeliveryResult::Failed { at_least: Duration::ZERO, progressed: false }
        })
    }
}
