//! Admission to models: limits, order, deadlines and day budgets, without a clock or a task.
//!
//! Promises: no limit is passed; every queued request gets exactly one outcome unless it is
//! cancelled; a principal, a stream and offline work wait for a bounded number of others. What
//! stands at the head of the order and does not fit holds what is behind it: small requests never
//! starve a large one. Long because its rules hold only together.

mod daily_budget;
mod fair_order;

#[cfg(test)]
mod reference_model;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use media::ErrorKind;

use daily_budget::DailyBudgets;
use fair_order::{FairOrder, LivePreference};

pub use daily_budget::DailyUsage;

/// Live requests that go before an offline one that could go too: every fifth is offline's.
pub const LIVE_BEFORE_OFFLINE: u32 = 4;
/// One slot in so many is for live requests alone, so that offline work never holds them all.
pub const SLOTS_PER_RESERVED: usize = 8;

/// Limits of requests in flight and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmissionLimits {
    /// Requests in flight.
    pub in_flight: usize,
    /// Of them of one principal.
    pub in_flight_per_principal: usize,
    /// Asks that wait.
    pub waiters: usize,
    /// Longest wait of a request that does not state its own.
    pub wait: Duration,
    /// Bytes of pictures in flight.
    pub image_bytes: u64,
    /// Tokens in flight, as estimated.
    pub tokens: u64,
    /// Tokens that a principal may spend in a UTC day; 0 is no limit.
    pub tokens_per_day: u64,
}

impl AdmissionLimits {
    /// Refuses a request that could not be let in if it were the only one.
    pub fn check(&self, image_bytes: u64, tokens: u64) -> Result<(), AdmissionError> {
        // No later day has room for what a whole one has not.
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
        /// A caller waits now.
        Live = "live",
        /// A job.
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

/// A request for a permit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionRequest {
    /// Principal that is charged.
    pub principal: Arc<str>,
    /// Stream of requests: a run, a session, or the direct requests of a principal.
    pub stream: Arc<str>,
    /// Kind of work that it belongs to.
    pub priority: Priority,
    /// Bytes of its pictures.
    pub image_bytes: u64,
    /// Tokens of prompt and answer, as estimated.
    pub tokens: u64,
    /// Longest wait; [`AdmissionLimits::wait`] when `None`.
    pub wait_max: Option<Duration>,
    /// Least wait: the retry-after of its backend ends then, and it holds no slot meanwhile.
    pub retry_after: Duration,
}

/// Identifies a queued request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AdmissionId(u64);

/// Size of a request that can be over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitKind {
    /// Bytes of pictures in flight.
    Pictures,
    /// Tokens in flight.
    Tokens,
    /// Tokens of a day.
    DayTokens,
    /// Bytes of answers that are held for one caller.
    Answers,
}

impl fmt::Display for LimitKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            LimitKind::Pictures => "bytes of pictures",
            LimitKind::Tokens => "tokens",
            LimitKind::DayTokens => "tokens of a day",
            LimitKind::Answers => "bytes of answers",
        })
    }
}

/// Reason that a request does not go to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AdmissionError {
    /// The queue is full.
    #[error("inference queue is full ({waiters} waiting); retry later")]
    QueueFull {
        /// The limit.
        waiters: usize,
    },
    /// Its time to wait is over.
    #[error("timed out after {} ms waiting for an inference slot", .waited.as_millis())]
    TimedOut {
        /// Time that it waited.
        waited: Duration,
    },
    /// It alone is more than may be in flight, or than a day has.
    #[error("inference request needs {asked} {what}; the limit is {limit}")]
    TooLarge {
        /// Size that is over the limit.
        what: LimitKind,
        /// Size of the request.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// Too little is left of the principal's tokens of the day.
    #[error(
        "daily token budget exhausted (UTC day): {used} of {limit} used, request needs up to {asked}"
    )]
    DaySpent {
        /// Spent so far.
        used: u64,
        /// Most tokens that it may take.
        asked: u64,
        /// The limit.
        limit: u64,
    },
}

impl AdmissionError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            AdmissionError::TooLarge { .. } => ErrorKind::InvalidInput,
            _ => ErrorKind::Exhausted,
        }
    }
}

/// Outcome of a request that was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdmissionOutcome {
    /// The request.
    pub id: AdmissionId,
    /// It is in flight, or was refused.
    pub outcome: Result<(), AdmissionError>,
}

/// Counts of waiting requests and of those in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SchedulerLoad {
    /// Live requests that wait.
    pub waiting_live: usize,
    /// Offline requests that wait.
    pub waiting_offline: usize,
    /// Requests in flight.
    pub in_flight: usize,
    /// Of them offline.
    pub in_flight_offline: usize,
    /// Bytes of their pictures.
    pub image_bytes: u64,
    /// Their tokens, as estimated.
    pub tokens: u64,
}

#[derive(Debug)]
struct QueuedRequest {
    request: AdmissionRequest,
    since: Instant,
    /// It may go from then on.
    ready: Instant,
    until: Instant,
}

#[derive(Debug)]
struct InFlightRequest {
    request: AdmissionRequest,
    /// Tokens of the day that are set aside.
    reserved: u64,
    /// A request was sent for which they are.
    is_asking: bool,
}

/// The state machine. Days are numbers of UTC days.
#[derive(Debug)]
pub struct Scheduler {
    limits: AdmissionLimits,
    next: u64,
    waiting: BTreeMap<AdmissionId, QueuedRequest>,
    in_flight: HashMap<AdmissionId, InFlightRequest>,
    of_principal: HashMap<Arc<str>, usize>,
    load: SchedulerLoad,
    order: FairOrder,
    budgets: DailyBudgets,
}

impl Scheduler {
    /// A scheduler with nothing in flight.
    pub fn new(limits: AdmissionLimits) -> Scheduler {
        Scheduler {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            in_flight: HashMap::new(),
            of_principal: HashMap::new(),
            load: SchedulerLoad::default(),
            order: FairOrder::default(),
            budgets: DailyBudgets::new(limits.tokens_per_day),
        }
    }

    /// Queues a request, or refuses it at once; [`Scheduler::poll`] gives its outcome.
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
        *self.waiting_of(request.priority) += 1;
        let (ready, until) = (now + request.retry_after, now + wait_max);
        self.waiting.insert(id, QueuedRequest { request, since: now, ready, until });
        Ok(id)
    }

    /// The next outcome, until there is none for now.
    pub fn poll(&mut self, now: Instant, day: u64) -> Option<AdmissionOutcome> {
        if let Some(refused) = self.overdue(now, day) {
            return Some(refused);
        }
        let Some(id) = self.choose(now, day) else { return self.overfull() };
        let preference = match self.load.waiting_offline {
            0 => LivePreference::None,
            _ if self.has_offline_slot() => LivePreference::One,
            _ => LivePreference::NotNow,
        };
        self.order.served(&self.waiting.get(&id)?.request, preference);
        let request = self.leave(id)?.request;
        let (reserved, is_asking) = (request.tokens, false);
        self.budgets.reserve(&request.principal, 0, reserved);
        *self.of_principal.entry(Arc::clone(&request.principal)).or_default() += 1;
        self.load.in_flight += 1;
        self.load.in_flight_offline += usize::from(request.priority == Priority::Offline);
        self.load.image_bytes += request.image_bytes;
        self.load.tokens += request.tokens;
        self.in_flight.insert(id, InFlightRequest { request, reserved, is_asking });
        Some(AdmissionOutcome { id, outcome: Ok(()) })
    }

    /// Removes a waiting request; `false` when it does not wait.
    pub fn cancel(&mut self, id: AdmissionId) -> bool {
        self.leave(id).is_some()
    }

    /// Sets `tokens` of the day aside for the next request of a request in flight, in place of what was;
    /// `false` where there are not as many.
    pub fn reserve(&mut self, id: AdmissionId, day: u64, tokens: u64) -> bool {
        let Some(InFlightRequest { request, reserved, is_asking }) = self.in_flight.get_mut(&id)
        else {
            return false;
        };
        self.budgets.reserve(&request.principal, *reserved, 0);
        *is_asking = self.budgets.has_room(&request.principal, day, tokens);
        *reserved = if *is_asking { tokens } else { 0 };
        self.budgets.reserve(&request.principal, 0, *reserved);
        *is_asking
    }

    /// Counts what a request took that was reserved for.
    pub fn commit(&mut self, id: AdmissionId, day: u64, tokens: u64) {
        if let Some(InFlightRequest { request, reserved, is_asking }) = self.in_flight.get_mut(&id)
        {
            self.budgets.commit(&request.principal, day, std::mem::take(reserved), tokens);
            *is_asking = false;
        }
    }

    /// Ends a request in flight. Tokens that no `commit` counted are charged as reserved.
    ///
    /// Returns what its principal has used of the day; `None` without a day budget.
    pub fn release(&mut self, id: AdmissionId, day: u64) -> Option<DailyUsage> {
        let InFlightRequest { request, reserved, is_asking } = self.in_flight.remove(&id)?;
        self.load.in_flight -= 1;
        self.load.in_flight_offline -= usize::from(request.priority == Priority::Offline);
        self.load.image_bytes -= request.image_bytes;
        self.load.tokens -= request.tokens;
        if let Some(count) = self.of_principal.get_mut(&request.principal) {
            *count -= 1;
            if *count == 0 {
                self.of_principal.remove(&request.principal);
            }
        }
        self.budgets.commit(
            &request.principal,
            day,
            reserved,
            if is_asking { reserved } else { 0 },
        );
        self.budgets.used(&request.principal, day)
    }

    /// Tokens that a principal has used of a day; `None` without a day budget.
    pub fn used(&self, principal: &Arc<str>, day: u64) -> Option<DailyUsage> {
        self.budgets.used(principal, day)
    }

    /// Restores the use of a day by a principal before this scheduler began.
    pub fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        self.budgets.restore(principal, day, used);
    }

    /// Next time at which a waiting request may change state: its retry-after ends, or its wait.
    pub fn deadline(&self, id: AdmissionId, now: Instant) -> Option<Instant> {
        let QueuedRequest { ready, until, .. } = self.waiting.get(&id)?;
        Some(if now < *ready { *ready.min(until) } else { *until })
    }

    /// Counts of waiting requests and of those in flight.
    pub fn load(&self) -> SchedulerLoad {
        self.load
    }

    fn waiting_of(&mut self, priority: Priority) -> &mut usize {
        match priority {
            Priority::Live => &mut self.load.waiting_live,
            Priority::Offline => &mut self.load.waiting_offline,
        }
    }

    /// Removes a queued request.
    fn leave(&mut self, id: AdmissionId) -> Option<QueuedRequest> {
        let queued = self.waiting.remove(&id)?;
        *self.waiting_of(queued.request.priority) -= 1;
        let left = self.waiting.values().map(|other| &other.request);
        self.order.left(&queued.request, left);
        Some(queued)
    }

    fn refuse(
        &mut self,
        id: AdmissionId,
        why: impl FnOnce(&QueuedRequest) -> AdmissionError,
    ) -> Option<AdmissionOutcome> {
        let outcome = Err(why(&self.leave(id)?));
        Some(AdmissionOutcome { id, outcome })
    }

    /// Request that has waited long enough, or whose principal has spent the day.
    fn overdue(&mut self, now: Instant, day: u64) -> Option<AdmissionOutcome> {
        let late = self.waiting.iter().find(|(_, queued)| queued.until <= now);
        if let Some((&id, _)) = late {
            let waited = |queued: &QueuedRequest| now.saturating_duration_since(queued.since);
            return self.refuse(id, |queued| AdmissionError::TimedOut { waited: waited(queued) });
        }
        let spent = self.waiting.iter().find_map(|(&id, queued)| {
            let request = &queued.request;
            Some((id, self.budgets.check(&request.principal, day, request.tokens).err()?))
        });
        let (id, refused) = spent?;
        self.refuse(id, |_| refused)
    }

    /// The next request in order, if it fits now.
    fn choose(&self, now: Instant, day: u64) -> Option<AdmissionId> {
        let live = self.head(Priority::Live, now, day);
        let offline = Some(()).filter(|()| self.has_offline_slot());
        let offline = offline.and_then(|()| self.head(Priority::Offline, now, day));
        let id = match (live, offline) {
            (Some(live), None) => live,
            (None, offline) => offline?,
            (Some(_), Some(offline)) if self.order.is_offline_due() => offline,
            (Some(live), Some(_)) => live,
        };
        let request = &self.waiting.get(&id)?.request;
        // One that does not fit holds the rest: the room it needs is not given to smaller ones.
        (self.has_slot(request) && self.has_room(request)).then_some(id)
    }

    /// The next of a priority in the order of principals and then of streams, the earliest deadline of
    /// the stream first; those that wait for a retry-after, and principals at their limit or that owe
    /// their next slot to the other priority, are passed over.
    fn head(&self, priority: Priority, now: Instant, day: u64) -> Option<AdmissionId> {
        let owing = self.owing(priority, now);
        let could = |queued: &&QueuedRequest| {
            let QueuedRequest { request, ready, .. } = queued;
            request.priority == priority
                && *ready <= now
                && self.principal_can(request)
                && !owing.contains(&request.principal)
        };
        let order = |(id, queued): (&AdmissionId, &QueuedRequest)| {
            (self.order.position(&queued.request), queued.until, *id)
        };
        let candidates = self.waiting.iter().filter(|(_, queued)| could(queued));
        let mut ordered: Vec<_> = candidates.map(order).collect();
        ordered.sort_unstable();
        // A principal whose head must wait for its own day's tokens holds only itself.
        let mut held: Vec<&Arc<str>> = Vec::new();
        for (_, _, id) in ordered {
            let request = &self.waiting.get(&id)?.request;
            if held.contains(&&request.principal) {
                continue;
            }
            if self.budgets.has_room(&request.principal, day, request.tokens) {
                return Some(id);
            }
            held.push(&request.principal);
        }
        None
    }

    /// Principals that owe their next slot to requests of the other priority, which can go.
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
        let in_flight = self.of_principal.get(&request.principal).copied().unwrap_or_default();
        in_flight < self.limits.in_flight_per_principal
    }

    fn has_offline_slot(&self) -> bool {
        let reserved = self.limits.in_flight / SLOTS_PER_RESERVED;
        self.load.in_flight_offline < self.limits.in_flight - reserved
    }

    /// Returns true if there is a slot for it, whatever its size.
    fn has_slot(&self, request: &AdmissionRequest) -> bool {
        self.load.in_flight < self.limits.in_flight
            && self.principal_can(request)
            && (request.priority == Priority::Live || self.has_offline_slot())
    }

    /// Its bytes and tokens fit beside what is in flight.
    fn has_room(&self, request: &AdmissionRequest) -> bool {
        self.load.image_bytes + request.image_bytes <= self.limits.image_bytes
            && self.load.tokens + request.tokens <= self.limits.tokens
    }

    /// The one that waits too many, when nothing can go to a model.
    ///
    /// The principal with the most waiting requests loses its youngest, offline before live; of
    /// two that wait with as many, the one that came last.
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
        self.refuse(id, |_| AdmissionError::QueueFull { waiters })
    }
}
