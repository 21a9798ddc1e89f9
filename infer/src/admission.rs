//! The scheduler for tasks: a place is waited for, and given back by dropping it.
//!
//! Promises that a task that stops waiting leaves the queue, that a place comes back however its
//! holder ends, and that a request that nothing was heard of is charged as estimated: hanging up
//! saves no tokens.

#[cfg(test)]
mod tests;

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::oneshot;

use crate::{
    Purse, Request,
    scheduler::{Ask, Limits, Load, Refused, Scheduler, Ticket, Use, Verdict},
};

/// Tokens that an answer is expected to take where a request does not say.
const ANSWER_TOKENS: u64 = 1024;
/// Tokens that a picture is expected to take: about what the common models make of 1000 x 1000.
const IMAGE_TOKENS: u64 = 1536;
/// Bytes of text that are expected to make a token; most text takes more.
const BYTES_A_TOKEN: u64 = 3;

/// The tokens that a request is expected to take, rather too many than too few.
fn estimate(prompt_bytes: usize, images: usize, max_tokens: Option<u32>) -> u64 {
    let answer = max_tokens.map_or(ANSWER_TOKENS, u64::from);
    (prompt_bytes as u64).div_ceil(BYTES_A_TOKEN) + images as u64 * IMAGE_TOKENS + answer
}

impl Request {
    /// The tokens that it is expected to take.
    pub fn tokens_estimate(&self) -> u64 {
        let captions = self.images.iter().map(|image| image.caption.len()).sum();
        self.tokens_estimate_with(self.images.len(), captions)
    }

    /// The tokens that it is expected to take with so many pictures, and captions of so many bytes.
    pub fn tokens_estimate_with(&self, images: usize, caption_bytes: usize) -> u64 {
        estimate(self.text_bytes() + caption_bytes, images, self.max_tokens)
    }

    /// The tokens that a further request is expected to take, with room for `max_tokens` and so much
    /// more text.
    pub(crate) fn tokens_estimate_again(&self, max_tokens: Option<u32>, more_bytes: usize) -> u64 {
        let captions: usize = self.images.iter().map(|image| image.caption.len()).sum();
        estimate(self.text_bytes() + captions + more_bytes, self.images.len(), max_tokens)
    }

    fn text_bytes(&self) -> usize {
        // Backends put the schema into the prompt, or work it as if it were there.
        self.prompt.len() + self.schema.as_ref().map_or(0, |schema| schema.bytes())
    }

    /// Bytes of its pictures.
    pub fn image_bytes(&self) -> u64 {
        self.images.iter().map(|image| image.jpeg.len() as u64).sum()
    }
}

/// Clock that returns the number of the UTC day.
pub type Today = Box<dyn Fn() -> u64 + Send + Sync>;
/// Hears what a principal has used of a day; called with nothing locked, and must not wait.
pub type OnUse = Box<dyn Fn(Use) + Send + Sync>;

/// Admission to the models; clones share it.
#[derive(Clone)]
pub struct Admission(Arc<Shared>);

struct Shared {
    desk: Mutex<Desk>,
    today: Today,
    on_use: OnUse,
}

struct Desk {
    scheduler: Scheduler,
    told: HashMap<Ticket, oneshot::Sender<Result<(), Refused>>>,
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Admission").field(&self.load()).finish()
    }
}

impl Admission {
    /// Admission within `limits`.
    pub fn new(limits: Limits, today: Today, on_use: OnUse) -> Admission {
        let desk = Desk { scheduler: Scheduler::new(limits), told: HashMap::new() };
        Admission(Arc::new(Shared { desk: Mutex::new(desk), today, on_use }))
    }

    /// Restores the use of a day's budget by a principal at the last start.
    pub fn restore(&self, principal: Arc<str>, day: u64, used: u64) {
        self.0.desk().scheduler.restore(principal, day, used);
    }

    /// Counts of waiting requests and of those in flight.
    pub fn load(&self) -> Load {
        self.0.desk().scheduler.load()
    }

    /// Tokens that a principal has used of this day; `None` without a day budget.
    pub fn used(&self, principal: &Arc<str>) -> Option<Use> {
        self.0.desk().scheduler.used(principal, (self.0.today)())
    }

    /// Waits for a place; dropping the future leaves the queue.
    pub async fn enter(&self, ask: Ask) -> Result<Permit, Refused> {
        let (since, payer) = (Instant::now(), Arc::clone(&ask.principal));
        let (tell, mut told) = oneshot::channel();
        let ticket = {
            let mut desk = self.0.desk();
            let ticket = desk.scheduler.push(since, (self.0.today)(), ask)?;
            desk.told.insert(ticket, tell);
            ticket
        };
        // From here on the ask is somewhere in the scheduler, and is taken out by the drop.
        let mut place = Place { shared: Arc::clone(&self.0), ticket, stage: Stage::Waiting };
        self.0.pump();
        loop {
            let next = self.0.desk().scheduler.deadline(ticket, Instant::now());
            let overdue = async {
                match next {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    // It waits no longer: its verdict is on the way.
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                verdict = &mut told => {
                    place.stage = Stage::Over;
                    // The sender is dropped only after it was used.
                    verdict.unwrap_or(Err(Refused::TimedOut { waited: since.elapsed() }))?;
                    place.stage = Stage::UnderWay;
                    return Ok(Permit { place, payer, waited: since.elapsed() });
                }
                () = overdue => self.0.pump(),
            }
        }
    }
}

impl Shared {
    fn desk(&self) -> MutexGuard<'_, Desk> {
        // Every change of the desk is finished before anything that could panic.
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sends every verdict that is ready.
    fn pump(&self) {
        let (now, day) = (Instant::now(), (self.today)());
        let mut desk = self.desk();
        while let Some(Verdict { ticket, outcome }) = desk.scheduler.poll(now, day) {
            if let Some(tell) = desk.told.remove(&ticket) {
                // Whoever stopped waiting just now gives the place back by its drop.
                tell.send(outcome).ok();
            }
        }
    }

    /// Ends what is under way.
    fn release(&self, ticket: Ticket) {
        let used = self.desk().scheduler.release(ticket, (self.today)());
        if let Some(used) = used {
            (self.on_use)(used);
        }
        self.pump();
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The request is in the queue, or just out of it without knowing.
    Waiting,
    UnderWay,
    Over,
}

/// Share of the scheduler that a request holds until dropped.
struct Place {
    shared: Arc<Shared>,
    ticket: Ticket,
    stage: Stage,
}

impl Drop for Place {
    fn drop(&mut self) {
        match self.stage {
            Stage::Over => {}
            Stage::UnderWay => self.shared.release(self.ticket),
            Stage::Waiting => {
                let waited = {
                    let mut desk = self.shared.desk();
                    desk.told.remove(&self.ticket);
                    desk.scheduler.cancel(self.ticket)
                };
                if waited {
                    // Somebody behind it may go now.
                    self.shared.pump();
                } else {
                    // It was let in and never knew.
                    self.shared.release(self.ticket);
                }
            }
        }
    }
}

/// The right to ask a model, until dropped, and what its requests are paid from.
#[must_use]
pub struct Permit {
    place: Place,
    payer: Arc<str>,
    waited: Duration,
}

impl Permit {
    /// Time that the request waited for it.
    pub fn waited(&self) -> Duration {
        self.waited
    }
}

impl Purse for Permit {
    fn payer(&self) -> Arc<str> {
        Arc::clone(&self.payer)
    }

    fn reserve(&self, tokens: u64) -> bool {
        let Place { shared, ticket, .. } = &self.place;
        shared.desk().scheduler.reserve(*ticket, (shared.today)(), tokens)
    }

    fn spend(&self, tokens: u64) {
        let Place { shared, ticket, .. } = &self.place;
        shared.desk().scheduler.spend(*ticket, (shared.today)(), tokens);
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit").field("ticket", &self.place.ticket).finish_non_exhaustive()
    }
}
