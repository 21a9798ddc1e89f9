//! A turn of one webhook: what follows its cursor is read, sent, and what came of it is noted.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use media::{Seq, WebhookId};
use timeline::TimelineError;

use super::{
    DeadLetter, WebhookError, Webhooks, blocking,
    message::Message,
    post::{self, Verdict},
    table::Live,
};
use crate::{
    delivery::outbox::{Consumer, Outcome, Turn},
    metrics::Delivery,
};

/// A turn ends after so many events, or after this long: others wait for its place.
const TURN_EVENTS: usize = 16;
const TURN_TIME: Duration = Duration::from_secs(2);
/// Heads looked at in one step.
const HEADS: usize = 256;

impl Webhooks {
    /// The next message of a webhook from `from` on; `Err` holds where to go on when there is none.
    fn next(&self, live: &Live) -> Result<Result<Message, Seq>, TimelineError> {
        let (webhook, mut from) = (&live.webhook, live.next);
        loop {
            let heads = self.timeline().heads_of(webhook.run, from, HEADS);
            let Some(last) = heads.last() else { return Ok(Err(from)) };
            let is_wanted = |kind| webhook.kinds.as_ref().is_none_or(|kinds| kinds.contains(&kind));
            for head in heads.iter().filter(|head| is_wanted(head.kind)) {
                // Retention may have removed it since: then there is nothing to tell.
                if let Some(event) = self.timeline().get_parts(head.seq)? {
                    return Ok(Ok(Message::new(webhook, &self.source, event)?));
                }
            }
            from = Seq(last.seq.0 + 1);
        }
    }

    /// Delivers what follows the cursor of a webhook, and then notes durably how far it came.
    async fn deliver(self: &Arc<Self>, turn: Turn<WebhookId>) -> Result<Outcome, WebhookError> {
        let started = Instant::now();
        let mut delivered = 0;
        let outcome = loop {
            let Some(live) = self.entitled(turn.key).await? else { return Ok(Outcome::Ended) };
            let (webhooks, looking) = (Arc::clone(self), live.clone());
            let message = match blocking(move || webhooks.next(&looking)).await?? {
                Ok(message) => message,
                Err(next) => {
                    self.table.update(&Live { next, ..live });
                    break Outcome::Drained;
                }
            };
            // Attempts at an event count from its own first one.
            let attempt = if delivered == 0 { turn.failures + 1 } else { 1 };
            let timeout = self.settings.timeout;
            let verdict = post::post(&self.egress, &live.webhook, &message, timeout).await;
            match self.settle(live, &message, verdict, attempt).await? {
                None => delivered += 1,
                Some(Outcome::Failed { at_least, .. }) => {
                    break Outcome::Failed { at_least, progressed: delivered > 0 };
                }
                Some(outcome) => return Ok(outcome),
            }
            if delivered == TURN_EVENTS || started.elapsed() > TURN_TIME {
                break Outcome::More;
            }
        };
        if delivered > 0 {
            self.keep(turn.key).await?;
        }
        Ok(outcome)
    }

    /// The webhook `id` when it may be told anything; one whose run is gone goes too.
    async fn entitled(self: &Arc<Self>, id: WebhookId) -> Result<Option<Live>, WebhookError> {
        let Some(live) = self.table.get(id) else { return Ok(None) };
        if self.registry.find(live.webhook.run, &live.webhook.owner).is_none() {
            self.remove(id).await?;
            return Ok(None);
        }
        Ok((!live.is_disabled).then_some(live))
    }

    /// Notes what an attempt came to; `None` when the next event may follow.
    async fn settle(
        self: &Arc<Self>,
        mut live: Live,
        message: &Message,
        verdict: Verdict,
        attempt: u32,
    ) -> Result<Option<Outcome>, WebhookError> {
        let id = live.webhook.id;
        let count = |outcome| self.metrics.webhook_deliveries.of(outcome).inc();
        match verdict {
            Verdict::Delivered => {
                count(Delivery::Delivered);
                live.delivered(message.seq);
                self.table.update(&live);
                Ok(None)
            }
            Verdict::Gone => {
                count(Delivery::Gone);
                live.is_disabled = true;
                live.failed(message.seq, "answered 410: it wants no more".to_owned());
                self.table.update(&live);
                self.keep(id).await?;
                Ok(Some(Outcome::Ended))
            }
            Verdict::Failed { reason, .. } if attempt >= self.settings.attempts => {
                count(Delivery::Failed);
                self.bury(live, message, attempt, reason).await?;
                Ok(Some(Outcome::More))
            }
            Verdict::Failed { reason, at_least } => {
                count(Delivery::Failed);
                live.failed(message.seq, reason);
                self.table.update(&live);
                Ok(Some(Outcome::Failed { at_least, progressed: false }))
            }
        }
    }

    /// Notes durably how far the webhook `id` has come.
    async fn keep(self: &Arc<Self>, id: WebhookId) -> Result<(), WebhookError> {
        let Some(live) = self.table.get(id) else { return Ok(()) };
        let webhooks = Arc::clone(self);
        Ok(blocking(move || webhooks.store.keep(&live)).await??)
    }

    /// Makes an event a dead letter and goes on after it, in one step.
    async fn bury(
        self: &Arc<Self>,
        mut live: Live,
        message: &Message,
        attempts: u32,
        error: String,
    ) -> Result<(), WebhookError> {
        self.metrics.webhook_deliveries.of(Delivery::Dead).inc();
        let letter = DeadLetter { seq: message.seq, kind: message.kind, attempts, error };
        tracing::warn!(webhook = %live.webhook.id, seq = %letter.seq, letter.error, "a dead letter");
        live.failed(message.seq, letter.error.clone());
        live.next = Seq(message.seq.0 + 1);
        let webhooks = Arc::clone(self);
        let live = blocking(move || webhooks.store.bury(live, &letter)).await??;
        self.table.update(&live);
        Ok(())
    }
}

impl Consumer for Webhooks {
    type Key = WebhookId;

    async fn turn(self: Arc<Self>, turn: Turn<WebhookId>) -> Outcome {
        self.deliver(turn).await.unwrap_or_else(|error| {
            // The ledger or the log: of this server, not of the target.
            tracing::error!(%error, webhook = %turn.key, "a webhook cannot be delivered now");
            Outcome::Failed { at_least: Duration::ZERO, progressed: false }
        })
    }
}
