//! Admission to models: limits, order, deadlines and day budgets, without a clock or a task.
//!
//! Promises: no limit is passed; every ask that was taken gets exactly one verdict unless it is
//! cancelled; a principal, a stream and offline work wait for a bounded number of others. What
//! stands at the head of the order and does not fit holds what is behind it: small asks never
//! starve a large one. Long because its rules hold only together.

mod daily_budget;
mod fair_order;

#[cfg(test)]
mod reference_model;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use media::ErrorKind;

use daily_budget::Days;
use fair_order::{PassedOver, Turns};

pub use daily_budget::Use;

/// Live asks that go before an offline one that could go too: every fifth is offline's.
pub const LIVE_TURNS: u32 = 4;
/// One place in so many is for live asks alone, so that offline work never holds them all.
pub const PLACES_A_RESERVED: usize = 8;

/// Limits of requests in flight and waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Asks under way.
    pub in_flight: usize,
    /// Of them of one principal.
    pub in_flight_per_principal: usize,
    /// Asks that wait.
    pub waiters: usize,
    /// Longest wait of a request that does not state its own.
    pub wait: Duration,
    /// Bytes of pictures under way.
    pub image_bytes: u64,
    /// Tokens under way, as estimated.
    pub tokens: u64,
    /// Tokens that a principal may spend in a UTC day; 0 is no limit.
    pub tokens_per_day: u64,
}

impl Limits {
    /// Refuses an ask that could not be let in if it were the only one.
    pub fn check(&self, image_bytes: u64, tokens: u64) -> Result<(), Refused> {
        // No later day has room for what a whole one has not.
        let day_limit = Some(self.tokens_per_day).filter(|limit| *limit > 0);
        let sizes = [
            (Size::Pictures, image_bytes, self.image_bytes),
            (Size::Tokens, tokens, self.tokens),
            (Size::DayTokens, tokens, day_limit.unwrap_or(u64::MAX)),
        ];
        let passed = sizes.into_iter().find(|(_, asked, limit)| asked > limit);
        passed.map_or(Ok(()), |(what, asked, limit)| Err(Refused::TooLarge { what, asked, limit }))
    }
}

/// Kind of work that waits for the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Somebody, now.
    Live,
    /// A job.
    Offline,
}

/// A wish to ask a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Principal that pays.
    pub principal: Arc<str>,
    /// Stream of requests: a run, a session, or the direct requests of a principal.
    pub stream: Arc<str>,
    /// Kind of work that waits.
    pub class: Class,
    /// Bytes of its pictures.
    pub image_bytes: u64,
    /// Tokens of prompt and answer, as estimated.
    pub tokens: u64,
    /// Longest wait; [`Limits::wait`] when `None`.
    pub patience: Option<Duration>,
    /// Least wait: the retry-after of its backend ends then, and it holds no slot meanwhile.
    pub rest: Duration,
}

/// Names an ask that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(u64);

/// Size of a request that can be over its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Bytes of pictures under way.
    Pictures,
    /// Tokens under way.
    Tokens,
    /// Tokens of a day.
    DayTokens,
    /// Bytes of answers that are held for one caller.
    Answers,
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Size::Pictures => "bytes of pictures",
            Size::Tokens => "tokens",
            Size::DayTokens => "tokens of a day",
            Size::Answers => "bytes of answers",
        })
    }
}

/// Reason that a request does not go to a model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The queue is full.
    #[error("{waiters} inference requests are waiting already: send this one again later")]
    QueueFull {
        /// The limit.
        waiters: usize,
    },
    /// Its time to wait is over.
    #[error("no place for the inference request came free within {} ms", .waited.as_millis())]
    TimedOut {
        /// Time that it waited.
        waited: Duration,
    },
    /// It alone is more than may be under way, or than a day has.
    #[error("the inference request takes {asked} {what}, over the limit of {limit}")]
    TooLarge {
        /// Size that is over the limit.
        what: Size,
        /// Size of the request.
        asked: u64,
        /// The limit.
        limit: u64,
    },
    /// Too little is left of the principal's tokens of the day.
    #[error(
        "the tokens of this day (UTC) are spent: {used} of {limit}, and the request may take {asked}"
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

impl Refused {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Refused::TooLarge { .. } => ErrorKind::InvalidInput,
            _ => ErrorKind::Exhausted,
        }
    }
}

/// Outcome of a request that was queued.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// The ask.
    pub ticket: Ticket,
    /// It is under way, or it is not and will not be.
    pub outcome: Result<(), Refused>,
}

/// Counts of waiting requests and of those in flight.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Load {
    /// Live asks that wait.
    pub waiting_live: usize,
    /// Offline asks that wait.
    pub waiting_offline: usize,
    /// Asks under way.
    pub in_flight: usize,
    /// Of them offline.
    pub in_flight_offline: usize,
    /// Bytes of their pictures.
    pub image_bytes: u64,
    /// Their tokens, as estimated.
    pub tokens: u64,
}

#[derive(Debug)]
struct Waiter {
    ask: Ask,
    since: Instant,
    /// It may go from then on.
    ready: Instant,
    until: Instant,
}

#[derive(Debug)]
struct UnderWay {
    ask: Ask,
    /// Tokens of the day that are set aside.
    reserved: u64,
    /// A request was sent for which they are.
    is_asking: bool,
}

/// The state machine. Days are numbers of UTC days.
#[derive(Debug)]
pub struct Scheduler {
    limits: Limits,
    next: u64,
    waiting: BTreeMap<Ticket, Waiter>,
    under_way: HashMap<Ticket, UnderWay>,
    of_principal: HashMap<Arc<str>, usize>,
    load: Load,
    turns: Turns,
    days: Days,
}

impl Scheduler {
    /// A scheduler with nothing under way.
    pub fn new(limits: Limits) -> Scheduler {
        Scheduler {
            limits,
            next: 0,
            waiting: BTreeMap::new(),
            under_way: HashMap::new(),
            of_principal: HashMap::new(),
            load: Load::default(),
            turns: Turns::default(),
            days: Days::new(limits.tokens_per_day),
        }
    }

    /// Takes an ask, or refuses it at once; [`Scheduler::poll`] tells what becomes of it.
    pub fn push(&mut self, now: Instant, day: u64, ask: Ask) -> Result<Ticket, Refused> {
        self.limits.check(ask.image_bytes, ask.tokens)?;
        self.days.check(&ask.principal, day, ask.tokens)?;
        let ticket = Ticket(self.next);
        self.next += 1;
        let patience = ask.patience.unwrap_or(self.limits.wait);
        self.turns.joined(&ask);
        *self.waiting_of(ask.class) += 1;
        let (ready, until) = (now + ask.rest, now + patience);
        self.waiting.insert(ticket, Waiter { ask, since: now, ready, until });
        Ok(ticket)
    }

    /// The next verdict, until there is none for now.
    pub fn poll(&mut self, now: Instant, day: u64) -> Option<Verdict> {
        if let Some(refused) = self.overdue(now, day) {
            return Some(refused);
        }
        let Some(ticket) = self.choose(now, day) else { return self.overfull() };
        let ask = self.leave(ticket)?.ask;
        let passed_over = match self.load.waiting_offline {
            0 => PassedOver::None,
            _ if self.has_offline_place() => PassedOver::One,
            _ => PassedOver::NotNow,
        };
        self.turns.served(&ask, passed_over);
        let (reserved, is_asking) = (ask.tokens, false);
        self.days.reserve(&ask.principal, 0, reserved);
        *self.of_principal.entry(Arc::clone(&ask.principal)).or_default() += 1;
        self.load.in_flight += 1;
        self.load.in_flight_offline += usize::from(ask.class == Class::Offline);
        self.load.image_bytes += ask.image_bytes;
        self.load.tokens += ask.tokens;
        self.under_way.insert(ticket, UnderWay { ask, reserved, is_asking });
        Some(Verdict { ticket, outcome: Ok(()) })
    }

    /// Forgets an ask that waits; `false` when it does not.
    pub fn cancel(&mut self, ticket: Ticket) -> bool {
        self.leave(ticket).is_some()
    }

    /// Sets `tokens` of the day aside for the next request of an ask under way, in place of what was;
    /// `false` where there are not as many.
    pub fn reserve(&mut self, ticket: Ticket, day: u64, tokens: u64) -> bool {
        let Some(UnderWay { ask, reserved, is_asking }) = self.under_way.get_mut(&ticket) else {
            return false;
        };
        self.days.reserve(&ask.principal, *reserved, 0);
        *is_asking = self.days.has_room(&ask.principal, day, tokens);
        *reserved = if *is_asking { tokens } else { 0 };
        self.days.reserve(&ask.principal, 0, *reserved);
        *is_asking
    }

    /// Counts what a request took that was reserved for.
    pub fn spend(&mut self, ticket: Ticket, day: u64, tokens: u64) {
        if let Some(UnderWay { ask, reserved, is_asking }) = self.under_way.get_mut(&ticket) {
            self.days.spend(&ask.principal, day, std::mem::take(reserved), tokens);
            *is_asking = false;
        }
    }

    /// Ends an ask under way. A request that nothing was heard of counts as it was estimated.
    ///
    /// Tells what its principal has used of the day; `None` without a day budget.
    pub fn release(&mut self, ticket: Ticket, day: u64) -> Option<Use> {
        let UnderWay { ask, reserved, is_asking } = self.under_way.remove(&ticket)?;
        self.load.in_flight -= 1;
        self.load.in_flight_offline -= usize::from(ask.class == Class::Offline);
        self.load.image_bytes -= ask.image_bytes;
        self.load.tokens -= ask.tokens;
        if let Some(count) = self.of_principal.get_mut(&ask.principal) {
            *count -= 1;
            if *count == 0 {
                self.of_principal.remove(&ask.principal);
            }
        }
        self.days.spend(&ask.principal, day, reserved, if is_asking { reserved } else { 0 });
        self.days.used(&ask.principal, day)
    }

    /// Tokens that a principal has used of a day; `None` without a day budget.
    pub fn used(&self, principal: &Arc<str>, day: u64) -> Option<Use> {
        self.days.used(principal, day)
    }

    /// Restores the use of a day by a principal before this scheduler began.
    pub fn restore(&mut self, principal: Arc<str>, day: u64, used: u64) {
        self.days.restore(principal, day, used);
    }

    /// Next time at which a waiting request may change state: its retry-after ends, or its wait.
    pub fn deadline(&self, ticket: Ticket, now: Instant) -> Option<Instant> {
        let Waiter { ready, until, .. } = self.waiting.get(&ticket)?;
        Some(if now < *ready { *ready.min(until) } else { *until })
    }

    /// Counts of waiting requests and of those in flight.
    pub fn load(&self) -> Load {
        self.load
    }

    fn waiting_of(&mut self, class: Class) -> &mut usize {
        match class {
            Class::Live => &mut self.load.waiting_live,
            Class::Offline => &mut self.load.waiting_offline,
        }
    }

    /// Takes a waiter out.
    fn leave(&mut self, ticket: Ticket) -> Option<Waiter> {
        let waiter = self.waiting.remove(&ticket)?;
        *self.waiting_of(waiter.ask.class) -= 1;
        let left = self.waiting.values().map(|other| &other.ask);
        self.turns.left(&waiter.ask, left);
        Some(waiter)
    }

    fn refuse(&mut self, ticket: Ticket, why: impl FnOnce(&Waiter) -> Refused) -> Option<Verdict> {
        let outcome = Err(why(&self.leave(ticket)?));
        Some(Verdict { ticket, outcome })
    }

    /// Request that has waited long enough, or whose principal has spent the day.
    fn overdue(&mut self, now: Instant, day: u64) -> Option<Verdict> {
        let late = self.waiting.iter().find(|(_, waiter)| waiter.until <= now);
        if let Some((&ticket, _)) = late {
            let waited = |waiter: &Waiter| now.saturating_duration_since(waiter.since);
            return self.refuse(ticket, |waiter| Refused::TimedOut { waited: waited(waiter) });
        }
        let spent = self.waiting.iter().find_map(|(&ticket, waiter)| {
            let ask = &waiter.ask;
            Some((ticket, self.days.check(&ask.principal, day, ask.tokens).err()?))
        });
        let (ticket, refused) = spent?;
        self.refuse(ticket, |_| refused)
    }

    /// The ask whose turn it is, if it fits now.
    fn choose(&self, now: Instant, day: u64) -> Option<Ticket> {
        let live = self.head(Class::Live, now, day);
        let offline = Some(()).filter(|()| self.has_offline_place());
        let offline = offline.and_then(|()| self.head(Class::Offline, now, day));
        let ticket = match (live, offline) {
            (Some(live), None) => live,
            (None, offline) => offline?,
            (Some(_), Some(offline)) if self.turns.is_offlines() => offline,
            (Some(live), Some(_)) => live,
        };
        let ask = &self.waiting.get(&ticket)?.ask;
        // Whoever does not fit holds the rest: the room it needs is not given to smaller ones.
        (self.has_place(ask) && self.has_room(ask)).then_some(ticket)
    }

    /// The next of a class by turns of principals and then of streams, the earliest deadline of
    /// the stream first; those that rest, and principals that have all they may have under way, are
    /// passed over.
    fn head(&self, class: Class, now: Instant, day: u64) -> Option<Ticket> {
        let could = |waiter: &&Waiter| {
            let Waiter { ask, ready, .. } = waiter;
            ask.class == class && *ready <= now && self.principal_can(ask)
        };
        let order = |(ticket, waiter): (&Ticket, &Waiter)| {
            (self.turns.place(&waiter.ask), waiter.until, *ticket)
        };
        let candidates = self.waiting.iter().filter(|(_, waiter)| could(waiter));
        let mut ordered: Vec<_> = candidates.map(order).collect();
        ordered.sort_unstable();
        // A principal whose head must wait for its own day's tokens holds only itself.
        let mut held: Vec<&Arc<str>> = Vec::new();
        for (_, _, ticket) in ordered {
            let ask = &self.waiting.get(&ticket)?.ask;
            if held.contains(&&ask.principal) {
                continue;
            }
            if self.days.has_room(&ask.principal, day, ask.tokens) {
                return Some(ticket);
            }
            held.push(&ask.principal);
        }
        None
    }

    fn principal_can(&self, ask: &Ask) -> bool {
        let under_way = self.of_principal.get(&ask.principal).copied().unwrap_or_default();
        under_way < self.limits.in_flight_per_principal
    }

    fn has_offline_place(&self) -> bool {
        let reserved = self.limits.in_flight / PLACES_A_RESERVED;
        self.load.in_flight_offline < self.limits.in_flight - reserved
    }

    /// Returns true if there is a slot for it, whatever its size.
    fn has_place(&self, ask: &Ask) -> bool {
        self.load.in_flight < self.limits.in_flight
            && self.principal_can(ask)
            && (ask.class == Class::Live || self.has_offline_place())
    }

    /// Its bytes and tokens fit beside what is under way.
    fn has_room(&self, ask: &Ask) -> bool {
        self.load.image_bytes + ask.image_bytes <= self.limits.image_bytes
            && self.load.tokens + ask.tokens <= self.limits.tokens
    }

    /// The one that waits too many, when nothing can go to a model.
    ///
    /// The principal that waits with the most asks gives up its youngest, offline before live; of
    /// two that wait with as many, the one that came last.
    fn overfull(&mut self) -> Option<Verdict> {
        let waiters = self.limits.waiters;
        if self.waiting.len() <= waiters {
            return None;
        }
        let mut waits: HashMap<&Arc<str>, (usize, Ticket)> = HashMap::new();
        for (ticket, waiter) in &self.waiting {
            let (count, youngest) = waits.entry(&waiter.ask.principal).or_insert((0, *ticket));
            *count += 1;
            *youngest = (*youngest).max(*ticket);
        }
        let (principal, _) = waits.into_iter().max_by_key(|(_, most)| *most)?;
        let own = self.waiting.iter().filter(|(_, waiter)| waiter.ask.principal == *principal);
        let youngest =
            |(ticket, waiter): &(&Ticket, &Waiter)| (waiter.ask.class == Class::Offline, **ticket);
        let (&ticket, _) = own.max_by_key(youngest)?;
        self.refuse(ticket, |_| Refused::QueueFull { waiters })
    }
}
