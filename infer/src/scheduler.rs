//! Admission to models: limits, order, deadlines and daily budgets, without a clock or a task.
//!
//! Promises: no limit is exceeded; every queued request gets exactly one outcome unless it is cancelled; the
//! wait of a principal, a stream and offline work is bounded by a number of other requests. A request at the
//! head that does not fit blocks those behind it, so that small requests never starve a large one. Long
//! because the rules hold only together.

mod daily_budget;
mod fair_order;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use media::ErrorKind;

use daily_budget::DailyBudgets;
use fair_order::FairOrder;

pub use daily_budget::DailyUsage;

/// Live requests served before a ready offline one: every fifth slot goes to offline work.
pub const LIVE_BEFORE_OFFLINE: u32 = 4;
/// One slot in this many is reserved for live requests, so that offline work never holds all.
pub const SLOTS_PER_RESERVED: usize = 8;

/// Limits of requests in flight and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Most requests in flight.
    pub in_flight: usize,
    /// Most requests of one principal in flight.
    pub in_flight_per_principal: usize,
    /// Most requests waiting.
    pub waiters: usize,
    /// Longest wait of a request that states none.
    pub wait: Duration,
    /// Most bytes of pictures in flight.
    pub image_bytes: u64,
    /// Most estimated tokens in flight.
    pub tokens: u64,
    /// Tokens that a principal may use per UTC day; 0 means no limit.
    pub tokens_per_day: u64,
}

impl AdmissionLimits {
    /// Rejects a request that exceeds a limit even if it were the only one.
    pub fn check(&self, image_bytes: u64, tokens: u64) -> Result<(), AdmissionError> {
        // No later day has more tokens either.
        let day_limit = Some(self.tokens_per_day).filter(|limit| *limit > 0);
        let sizes = [
            (LimitKind::Pictures, image_bytes, self.image_bytes),
            (LimitKind::Tokens, tokens, self.tokens),
            (LimitKind::DayTokens, tokens, day_limit.unwrap_or(u64::MAX)),
        ];
        let passed = sizes.into_iter().find(|(_, asked, limit)| asked > limit);
        passed.map_or(Ok(()), |(what, asked, limit)| {
            Err(AdmissionError::TooLarge { what, asked, limit })
        })
    }
}

media::named! {
    /// Kind of work that a request belongs to.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum Priority {
        /// A caller is waiting for the answer.
        Live = "live",
        /// The request belongs to a job.
        Offline = "offline",
    }
}

impl Priority {
    fn other(self) -> Priority {
        match self {
            Priority::Live => Priority::Offline,
            Priority::Offline => Priority::Live,
        }
    }
}

/// Request for a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// Principal to charge.
    pub principal: Arc<str>,
    /// Stream of the request: a run, a session, or the direct requests of a principal.
    pub stream: Arc<str>,
    /// Kind of work of the request.
    pub priority: Priority,
    /// Bytes of pictures.
    pub image_bytes: u64,
    /// Estimated tokens of prompt and answer.
    pub tokens: u64,
    /// Longest wait; `None` for [`AdmissionLimits::wait`].
    pub wait_max: Option<Duration>,
    /// Shortest wait, until the backend's retry-after ends; no slot is held during it.
    pub retry_after: Duration,
}

/// Identifies a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionId(u64);

media::named! {
    /// Kind of limit that a single request can exceed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "the text of each says it")]
    pub enum LimitKind {
        Pictures = "bytes of pictures",
        Tokens = "tokens",
        DayTokens = "tokens of a day",
        /// Bytes of answers held for one caller.
        Answers = "bytes of answers",
    }
}

/// Reason that a request is not admitted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum AdmissionError {
    #[error("inference queue is full ({waiters} waiting); retry later")]
    QueueFull { waiters: usize },
    #[error("timed out after {} ms waiting for an inference slot", .waited.as_millis())]
    TimedOut { waited: Duration },
    /// The request alone exceeds a limit in flight or the daily budget.
    #[error("inference request needs {asked} {}; the limit is {limit}", .what.as_str())]
    TooLarge { what: LimitKind, asked: u64, limit: u64 },
    #[error(
        "daily token budget exhausted (UTC day): {used} of {limit} used, request needs up to {asked}"
    )]
    DaySpent { used: u64, asked: u64, limit: u64 },
}

impl AdmissionError {
    /// Returns the error kind that decides the caller's response.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AdmissionError::TooLarge { .. } => ErrorKind::InvalidInput,
            _ => ErrorKind::Exhausted,
        }
    }
}

/// Outcome of a queued request: admitted, or refused with a reason.
pub type AdmissionOutcome = (AdmissionId, Result<(), AdmissionError>);

/// Counts of waiting requests and of those in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct SchedulerLoad {
    pub waiting_live: usize,
    pub waiting_offline: usize,
    pub in_flight: usize,
    pub in_flight_offline: usize,
    /// Bytes of pictures in flight.
    pub image_bytes: u64,
    /// Estimated tokens in flight.
    pub tokens: u64,
}

#[derive(Debug)]
struct QueuedRequest {
    request: AdmissionRequest,
    since: Instant,
    /// Earliest admission.
    ready: Instant,
    until: Instant,
}

#[derive(Debug)]
struct InFlightRequest {
    request: AdmissionRequest,
    /// Daily tokens reserved for the request.
    reserved: u64,
    /// True if an attempt was sent for which the tokens are reserved.
    is_asking: bool,
}

/// Scheduler as a state machine. Days are numbers of UTC days.
#[derive(Debug)]
pub struct Scheduler {
    limits: AdmissionLimits,
    next: u64,
    waiting: BTreeMap<AdmissionId, QueuedRequest>,
    in_flight: HashMap<AdmissionId, InFlightRequest>,
    order: FairOrder,
    budgets: DailyBudgets,
}

impl Scheduler {
    /// Creates a scheduler without requests.
    pub fn new(limits: AdmissionLimits) -> Scheduler {
        Scheduler {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            in_flight: HashMap::new(),
            order: FairOrder::default(),
            budgets: DailyBudgets::new(limits.tokens_per_day),
        }
    }

    /// Queues a request or refuses it at once; [`Scheduler::poll`] returns its outcome.
    pub fn push(
        &mut self,
        now: Instant,
        day: u64,
        request: AdmissionRequest,
    ) -> Result<AdmissionId, AdmissionError> {
        self.limits.check(request.image_bytes, request.tokens)?;
        self.budgets.check(&request.principal, day, request.tokens)?;
        let id = AdmissionId(self.next);
        self.next += 1;
        let wait_max = request.wait_max.unwrap_or(self.limits.wait);
        self.order.joined(&request);
        let (ready, until) = (now + request.retry_after, now + wait_max);
        self.waiting.insert(id, QueuedRequest { request, since: now, ready, until });
        Ok(id)
    }

    /// Returns the next outcome; `None` if there is none at `now`.
    pub fn poll(&mut self, now: Instant, day: u64) -> Option<AdmissionOutcome> {
        if let Some(refused) = self.overdue(now, day) {
            return Some(refused);
        }
        let Some(id) = self.choose(now, day) else { return self.overfull() };
        let (offline_waits, slot) = (self.load().waiting_offline > 0, self.has_offline_slot());
        self.order.served(&self.waiting.get(&id)?.request, offline_waits, slot);
        let request = self.leave(id)?.request;
        let (reserved, is_asking) = (request.tokens, false);
        self.in_flight.insert(id, InFlightRequest { request, reserved, is_asking });
        Some((id, Ok(())))
    }

    /// Removes a waiting request; `false` if it does not wait.
    pub fn cancel(&mut self, id: AdmissionId) -> bool {
        self.leave(id).is_some()
    }

    /// Replaces the reservation of a request in flight by `tokens` for its next attempt; `false` if the daily
    /// budget has too few, and then nothing is reserved.
    pub fn reserve(&mut self, id: AdmissionId, day: u64, tokens: u64) -> bool {
        let Some(held) = self.in_flight.remove(&id) else { return false };
        let is_asking = self.has_budget(&held.request, day, tokens);
        let reserved = if is_asking { tokens } else { 0 };
        self.in_flight.insert(id, InFlightRequest { reserved, is_asking, ..held });
        is_asking
    }

    /// Charges the tokens that a reserved attempt took.
    pub fn commit(&mut self, id: AdmissionId, day: u64, tokens: u64) {
        if let Some(held) = self.in_flight.get_mut(&id) {
            (held.reserved, held.is_asking) = (0, false);
            self.budgets.commit(&held.request.principal, day, tokens);
        }
    }

    /// Ends a request in flight. A reservation without `commit` is charged in full if its attempt was sent.
    ///
    /// Returns the principal's usage of the day; `None` without a daily budget.
    pub fn release(&mut self, id: AdmissionId, day: u64) -> Option<DailyUsage> {
        let InFlightRequest { request, reserved, is_asking } = self.in_flight.remove(&id)?;
        let spent = if is_asking { reserved } else { 0 };
        self.budgets.commit(&request.principal, day, spent);
        self.used(&request.principal, day)
    }

    /// Returns a principal's token usage of the day; `None` without a daily budget.
    pub fn used(&self, principal: &Arc<str>, day: u64) -> Option<DailyUsage> {
        self.budgets.used(principal, day, self.reserved(principal))
    }

    /// Returns the tokens reserved for a principal's requests in flight, whichever day they began.
    fn reserved(&self, principal: &str) -> u64 {
        let own = self.in_flight.values().filter(|held| *held.request.principal == *principal);
        own.map(|held| held.reserved).sum()
    }

    fn has_budget(&self, request: &AdmissionRequest, day: u64, tokens: u64) -> bool {
        let reserved = self.reserved(&request.principal);
        self.budgets.has_room(&request.principal, day, tokens, reserved)
    }

    /// Restores a principal's usage of a day from before the restart.
    pub fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        self.budgets.restore(principal, day, used);
    }

    /// Returns the time at which a waiting request may change state: its retry-after or its wait ends.
    pub fn deadline(&self, id: AdmissionId, now: Instant) -> Option<Instant> {
        let QueuedRequest { ready, until, .. } = self.waiting.get(&id)?;
        Some(if now < *ready { *ready.min(until) } else { *until })
    }

    /// Counts of waiting requests and of those in flight.
    pub fn load(&self) -> SchedulerLoad {
        let is_offline = |request: &&AdmissionRequest| request.priority == Priority::Offline;
        let waiting = self.waiting.values().map(|queued| &queued.request);
        let in_flight = self.in_flight.values().map(|held| &held.request);
        let waiting_offline = waiting.filter(is_offline).count();
        SchedulerLoad {
            waiting_live: self.waiting.len() - waiting_offline,
            waiting_offline,
            in_flight: self.in_flight.len(),
            in_flight_offline: in_flight.clone().filter(is_offline).count(),
            image_bytes: in_flight.clone().map(|request| request.image_bytes).sum(),
            tokens: in_flight.map(|request| request.tokens).sum(),
        }
    }

    fn leave(&mut self, id: AdmissionId) -> Option<QueuedRequest> {
        let queued = self.waiting.remove(&id)?;
        let left = self.waiting.values().map(|other| &other.request);
        self.order.left(&queued.request, left);
        Some(queued)
    }

    fn refuse(&mut self, id: AdmissionId, why: AdmissionError) -> Option<AdmissionOutcome> {
        self.leave(id)?;
        Some((id, Err(why)))
    }

    /// Refuses one request that has waited too long or whose principal has spent the daily budget.
    fn overdue(&mut self, now: Instant, day: u64) -> Option<AdmissionOutcome> {
        let late = self.waiting.iter().find(|(_, queued)| queued.until <= now);
        if let Some((&id, queued)) = late {
            let waited = now.saturating_duration_since(queued.since);
            return self.refuse(id, AdmissionError::TimedOut { waited });
        }
        let spent = self.waiting.iter().find_map(|(&id, queued)| {
            let request = &queued.request;
            Some((id, self.budgets.check(&request.principal, day, request.tokens).err()?))
        });
        let (id, refused) = spent?;
        self.refuse(id, refused)
    }

    /// Returns the next request in order, if it fits.
    fn choose(&self, now: Instant, day: u64) -> Option<AdmissionId> {
        if self.in_flight.len() >= self.limits.in_flight {
            return None;
        }
        let live = self.head(Priority::Live, now, day);
        let offline = self.has_offline_slot().then(|| self.head(Priority::Offline, now, day));
        let id = match offline.flatten() {
            Some(offline) if live.is_none() || self.order.is_offline_due() => offline,
            _ => live?,
        };
        let request = &self.waiting.get(&id)?.request;
        // A request that does not fit blocks the rest: smaller ones must not take the room it needs.
        self.has_room(request).then_some(id)
    }

    /// Returns the next request of a priority, by the order of principals, then of streams, then by deadline.
    /// Skips requests that wait for a retry-after, and principals that are at their limit or owe their next
    /// slot to the other priority.
    fn head(&self, priority: Priority, now: Instant, day: u64) -> Option<AdmissionId> {
        let owing = self.owing(priority, now);
        let could = |queued: &&QueuedRequest| {
            let QueuedRequest { request, ready, .. } = queued;
            request.priority == priority && *ready <= now && !owing.contains(&request.principal)
        };
        let order = |(id, queued): (&AdmissionId, &QueuedRequest)| {
            (self.order.position(&queued.request), queued.until, *id)
        };
        let candidates = self.waiting.iter().filter(|(_, queued)| could(queued));
        let mut ordered: Vec<_> = candidates.map(order).collect();
        ordered.sort_unstable();
        // A principal that is at its limit, or whose head exceeds the daily budget, blocks only itself. Each is
        // looked at once, as the look goes over all requests in flight.
        let mut held: Vec<&Arc<str>> = Vec::new();
        for (_, _, id) in ordered {
            let request = &self.waiting.get(&id)?.request;
            if held.contains(&&request.principal) {
                continue;
            }
            if self.principal_can(request) && self.has_budget(request, day, request.tokens) {
                return Some(id);
            }
            held.push(&request.principal);
        }
        None
    }

    /// Returns the principals that owe their next slot to ready requests of the other priority.
    fn owing(&self, priority: Priority, now: Instant) -> HashSet<&Arc<str>> {
        let other = priority.other();
        if other == Priority::Offline && !self.has_offline_slot() {
            return HashSet::new();
        }
        let ready =
            |queued: &&QueuedRequest| queued.request.priority == other && queued.ready <= now;
        let principals =
            self.waiting.values().filter(ready).map(|queued| &queued.request.principal);
        principals.filter(|principal| self.order.is_owed(other, principal)).collect()
    }

    fn principal_can(&self, request: &AdmissionRequest) -> bool {
        let own = |held: &&InFlightRequest| held.request.principal == request.principal;
        self.in_flight.values().filter(own).count() < self.limits.in_flight_per_principal
    }

    fn has_offline_slot(&self) -> bool {
        let reserved = self.limits.in_flight / SLOTS_PER_RESERVED;
        self.load().in_flight_offline < self.limits.in_flight - reserved
    }

    /// Returns true if the request's bytes and tokens fit beside those in flight.
    fn has_room(&self, request: &AdmissionRequest) -> bool {
        let SchedulerLoad { image_bytes, tokens, .. } = self.load();
        image_bytes + request.image_bytes <= self.limits.image_bytes
            && tokens + request.tokens <= self.limits.tokens
    }

    /// Refuses one request if too many wait and none can be admitted.
    ///
    /// The principal with the most waiting requests loses its youngest, offline before live; of two
    /// principals with equally many, the one with the youngest request.
    fn overfull(&mut self) -> Option<AdmissionOutcome> {
        let waiters = self.limits.waiters;
        if self.waiting.len() <= waiters {
            return None;
        }
        let mut waits: HashMap<&Arc<str>, (usize, AdmissionId)> = HashMap::new();
        for (id, queued) in &self.waiting {
            let (count, youngest) = waits.entry(&queued.request.principal).or_insert((0, *id));
            *count += 1;
            *youngest = (*youngest).max(*id);
        }
        let (principal, _) = waits.into_iter().max_by_key(|(_, most)| *most)?;
        let own = self.waiting.iter().filter(|(_, queued)| queued.request.principal == *principal);
        let youngest = |(id, queued): &(&AdmissionId, &QueuedRequest)| {
            (queued.request.priority == Priority::Offline, **id)
        };
        let (&id, _) = own.max_by_key(youngest)?;
        self.refuse(id, AdmissionError::QueueFull { waiters })
    }
}
