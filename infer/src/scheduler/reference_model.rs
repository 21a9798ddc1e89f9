//! The scheduler beside a model of it: what holds of any sequence of steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    tests::{LIMITS, ask},
    *,
};

/// Most that a request costs, in hundredths of its estimate.
const PART_MAX: u64 = 100 * daily_budget::COST_MAX;

#[derive(Clone, Debug)]
enum Step {
    Push {
        principal: u8,
        stream: u8,
        offline: bool,
        bytes: u64,
        tokens: u64,
        patience_ms: u64,
        rest_ms: u64,
    },
    Cancel(prop::sample::Index),
    /// Another request of an ask, so many tokens of which it takes that part.
    Again(prop::sample::Index, u64, u64),
    Release(prop::sample::Index, u64),
    Wait(u64),
    NextDay,
}

fn step() -> impl Strategy<Value = Step> {
    let rest_ms = prop_oneof![4 => Just(0u64), 1 => 1..4000u64];
    let push = (0..4u8, 0..3u8, any::<bool>(), 0..1200u64, 0..1100u64, 1..9000u64, rest_ms)
        .prop_map(|(principal, stream, offline, bytes, tokens, patience_ms, rest_ms)| Step::Push {
            principal,
            stream,
            offline,
            bytes: bytes / 3,
            tokens: tokens / 2,
            patience_ms,
            rest_ms,
        });
    prop_oneof![
        8 => push,
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        3 => (any::<prop::sample::Index>(), 0..1100u64, 0..=PART_MAX)
            .prop_map(|(which, tokens, part)| Step::Again(which, tokens / 2, part)),
        5 => (any::<prop::sample::Index>(), 0..=PART_MAX)
            .prop_map(|(which, part)| Step::Release(which, part)),
        2 => (0..3000u64).prop_map(Step::Wait),
        1 => Just(Step::NextDay),
    ]
}

/// Expected state, kept beside the scheduler and compared after every step.
struct Model {
    limits: Limits,
    scheduler: Scheduler,
    now: Instant,
    day: u64,
    /// Waiting requests with the first and last time at which they may go.
    waiting: BTreeMap<Ticket, (Ask, Instant, Instant)>,
    /// Requests in flight with the tokens that are set aside for them.
    under_way: BTreeMap<Ticket, (Ask, u64)>,
    spent: BTreeMap<(Arc<str>, u64), u64>,
}

impl Model {
    fn new(limits: Limits) -> Model {
        Model {
            limits,
            scheduler: Scheduler::new(limits),
            now: Instant::now(),
            day: 1,
            waiting: BTreeMap::new(),
            under_way: BTreeMap::new(),
            spent: BTreeMap::new(),
        }
    }

    fn used(&self, principal: &Arc<str>) -> u64 {
        self.spent.get(&(Arc::clone(principal), self.day)).copied().unwrap_or_default()
    }

    fn day_is_spent(&self, ask: &Ask) -> bool {
        let (limit, used) = (self.limits.tokens_per_day, self.used(&ask.principal));
        limit > 0 && (used >= limit || used + ask.tokens > limit)
    }

    fn reserved(&self, principal: &Arc<str>) -> u64 {
        let own = self.under_way.values().filter(|(ask, _)| ask.principal == *principal);
        own.map(|(_, reserved)| *reserved).sum()
    }

    /// A request of `ask`, reserved at `estimate`, took `spent`.
    fn spend(&mut self, ask: &Ask, estimate: u64, spent: u64) {
        let limit = self.limits.tokens_per_day;
        let used = self.spent.entry((Arc::clone(&ask.principal), self.day)).or_default();
        *used += spent;
        let over = spent.saturating_sub(estimate);
        assert!(limit == 0 || *used <= limit + over, "{used} of {limit}: {over} over an estimate");
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push { principal, stream, offline, bytes, tokens, patience_ms, rest_ms } => {
                let class = if offline { Class::Offline } else { Class::Live };
                let patience = Duration::from_millis(patience_ms);
                self.push(Ask {
                    image_bytes: bytes,
                    tokens,
                    patience: Some(patience),
                    rest: Duration::from_millis(rest_ms),
                    ..ask(&format!("p{principal}"), &format!("s{stream}"), class)
                });
            }
            Step::Cancel(which) if !self.waiting.is_empty() => {
                let ticket = *self.waiting.keys().nth(which.index(self.waiting.len())).expect("in");
                assert!(self.scheduler.cancel(ticket), "it waits");
                assert!(!self.scheduler.cancel(ticket), "once");
                self.waiting.remove(&ticket);
            }
            Step::Release(which, part) if !self.under_way.is_empty() => {
                let index = which.index(self.under_way.len());
                self.release(*self.under_way.keys().nth(index).expect("in"), part);
            }
            Step::Again(which, tokens, part) if !self.under_way.is_empty() => {
                let index = which.index(self.under_way.len());
                self.again(*self.under_way.keys().nth(index).expect("in"), tokens, part);
            }
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
            Step::NextDay => self.day += 1,
            Step::Cancel(_) | Step::Again(..) | Step::Release(..) => {}
        }
        self.poll();
        self.check();
    }

    fn push(&mut self, ask: Ask) {
        let day = self.limits.tokens_per_day;
        let too_large = ask.image_bytes > self.limits.image_bytes
            || ask.tokens > self.limits.tokens
            || (day > 0 && ask.tokens > day);
        match self.scheduler.push(self.now, self.day, ask.clone()) {
            Ok(ticket) => {
                assert!(!too_large && !self.day_is_spent(&ask), "{ask:?}");
                let (ready, until) = (self.now + ask.rest, self.now + ask.patience.expect("given"));
                assert!(self.waiting.insert(ticket, (ask, ready, until)).is_none(), "a new name");
            }
            Err(Refused::TooLarge { .. }) => assert!(too_large, "{ask:?}"),
            Err(Refused::DaySpent { .. }) => assert!(self.day_is_spent(&ask), "{ask:?}"),
            Err(other) => panic!("{other}"),
        }
    }

    /// Sets `tokens` aside for a request of `ticket`; whether there was room is the scheduler's word,
    /// held against the limit by what it comes to cost.
    fn reserve(&mut self, ticket: Ticket, tokens: u64) -> bool {
        let fits = self.scheduler.reserve(ticket, self.day, tokens);
        let (ask, reserved) = self.under_way.get_mut(&ticket).expect("under way");
        *reserved = if fits { tokens } else { 0 };
        let principal = Arc::clone(&ask.principal);
        let (limit, used) = (self.limits.tokens_per_day, self.used(&principal));
        let is_alone = self.reserved(&principal) == if fits { tokens } else { 0 };
        let too_much = limit > 0 && (used >= limit || used + tokens > limit);
        assert!(!fits || !too_much, "{used} and {tokens} of {limit}");
        assert!(fits || too_much || !is_alone, "there was room");
        fits
    }

    /// A request of `tokens` takes `part` hundredths of them, where there is room for it.
    fn again(&mut self, ticket: Ticket, tokens: u64, part: u64) {
        if !self.reserve(ticket, tokens) {
            return;
        }
        let spent = tokens * part / 100;
        self.scheduler.spend(ticket, self.day, spent);
        let (ask, reserved) = self.under_way.get_mut(&ticket).expect("under way");
        *reserved = 0;
        let ask = ask.clone();
        self.spend(&ask, tokens, spent);
    }

    /// Ends an ask: in mid-request where `part` is 100, else after one that took so many hundredths.
    fn release(&mut self, ticket: Ticket, part: u64) {
        let (_, reserved) = *self.under_way.get(&ticket).expect("under way");
        if part != 100 {
            self.again(ticket, reserved, part);
        } else if self.reserve(ticket, reserved) {
            let ask = self.under_way[&ticket].0.clone();
            self.spend(&ask, reserved, reserved);
        }
        let (ask, _) = self.under_way.remove(&ticket).expect("under way");
        let found = self.scheduler.release(ticket, self.day);
        assert_eq!(self.scheduler.release(ticket, self.day), None, "once");
        let told = found.map(|found| (found.used, found.reserved));
        let expected = (self.used(&ask.principal), self.reserved(&ask.principal));
        assert_eq!(told, (self.limits.tokens_per_day > 0).then_some(expected));
    }

    fn poll(&mut self) {
        while let Some(Verdict { ticket, outcome }) = self.scheduler.poll(self.now, self.day) {
            let before = self.waiting.len();
            let (ask, ready, until) =
                self.waiting.remove(&ticket).expect("one verdict, of who waits");
            match outcome {
                Ok(()) => {
                    assert!(until > self.now, "nobody goes late");
                    assert!(ready <= self.now, "nobody goes early");
                    let reserved = ask.tokens;
                    self.under_way.insert(ticket, (ask, reserved));
                }
                Err(Refused::TimedOut { .. }) => assert!(until <= self.now, "{ask:?}"),
                Err(Refused::QueueFull { .. }) => assert!(before > self.limits.waiters),
                Err(Refused::DaySpent { .. }) => assert!(self.day_is_spent(&ask), "{ask:?}"),
                Err(other) => panic!("{other}"),
            }
        }
    }

    fn check(&self) {
        let limits = self.limits;
        let under_way = || self.under_way.values().map(|(ask, _)| ask);
        let sum = |of: fn(&Ask) -> u64| under_way().map(of).sum::<u64>();
        let count = |is: &dyn Fn(&Ask) -> bool| under_way().filter(|ask| is(ask)).count();
        let offline = count(&|ask| ask.class == Class::Offline);
        let load = self.scheduler.load();
        let waiting = |class| self.waiting.values().filter(|(ask, ..)| ask.class == class).count();
        let expected = Load {
            waiting_live: waiting(Class::Live),
            waiting_offline: waiting(Class::Offline),
            in_flight: self.under_way.len(),
            in_flight_offline: offline,
            image_bytes: sum(|ask| ask.image_bytes),
            tokens: sum(|ask| ask.tokens),
        };
        assert_eq!(load, expected, "nobody is lost");
        assert!(load.in_flight <= limits.in_flight);
        assert!(load.image_bytes <= limits.image_bytes && load.tokens <= limits.tokens);
        assert!(offline <= limits.in_flight - limits.in_flight / PLACES_A_RESERVED);
        assert!(self.waiting.len() <= limits.waiters);
        for principal in (0..4).map(|at| Arc::<str>::from(format!("p{at}"))) {
            let own = |ask: &Ask| ask.principal == principal;
            assert!(count(&own) <= limits.in_flight_per_principal, "{principal}");
        }
        let could_go = self.waiting.values().any(|(_, ready, _)| *ready <= self.now);
        assert!(!self.under_way.is_empty() || !could_go, "somebody can go");
        for (ticket, (_, ready, until)) in &self.waiting {
            let next = if *ready > self.now { ready.min(until) } else { until };
            assert_eq!(self.scheduler.deadline(*ticket, self.now), Some(*next));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, ..ProptestConfig::default() })]

    #[test]
    fn no_limit_is_passed_and_nobody_is_lost(
        steps in prop::collection::vec(step(), 1..160),
        in_flight in 1..12usize,
        own in 1..5usize,
        day in prop_oneof![Just(0u64), 500..4000u64],
    ) {
        let limits = Limits {
            in_flight,
            in_flight_per_principal: own,
            tokens_per_day: day,
            ..LIMITS
        };
        let mut model = Model::new(limits);
        for step in steps {
            model.step(step);
        }
        // Everybody ends: by an answer, or by a refusal with a name. No rest lasts so long.
        model.now += Duration::from_secs(4);
        model.poll();
        for _ in 0..model.waiting.len() + model.under_way.len() {
            let Some(ticket) = model.under_way.keys().next().copied() else { break };
            model.release(ticket, 100);
            model.poll();
            model.check();
        }
        prop_assert_eq!(model.scheduler.load(), Load::default());
    }

    #[test]
    fn nobody_starves(
        crowd in prop::collection::vec((0..4u8, 0..3u8, any::<bool>(), 1..400u64), 400),
        seen_offline in any::<bool>(),
        seen_tokens in 1..1000u64,
    ) {
        let limits = Limits { waiters: 1000, in_flight: 9, ..LIMITS };
        let mut model = Model::new(limits);
        let of = |principal: u8, stream: u8, offline: bool, tokens| Ask {
            tokens,
            ..ask(
                &format!("p{principal}"),
                &format!("s{stream}"),
                if offline { Class::Offline } else { Class::Live },
            )
        };
        let (before, after) = crowd.split_at(60);
        for &(principal, stream, offline, tokens) in before {
            model.push(of(principal, stream, offline, tokens));
        }
        let seen = of(0, 9, seen_offline, seen_tokens);
        model.push(seen.clone());
        let ticket = *model.waiting.keys().next_back().expect("pushed last");
        // Four principals of at most four streams each, and every fifth turn for offline work,
        // besides those under way when it came.
        let bound = limits.in_flight + 4 * 4 * (LIVE_TURNS as usize + 1);
        let mut released = 0;
        let mut crowd = after.iter();
        while model.waiting.contains_key(&ticket) {
            if let Some(&(principal, stream, offline, tokens)) = crowd.next() {
                model.push(of(principal, stream, offline, tokens));
            }
            model.poll();
            // Answers come in the order in which they were asked for.
            if let Some(oldest) = model.under_way.keys().next().copied() {
                model.release(oldest, 100);
                released += 1;
            }
            model.poll();
            model.check();
            prop_assert!(released <= bound, "{released} others were answered first: {seen:?}");
        }
    }
}
