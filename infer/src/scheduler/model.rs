//! The scheduler beside a model of it: what holds of any sequence of steps.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{
    tests::{LIMITS, ask},
    *,
};

#[derive(Clone, Debug)]
enum Step {
    Push { principal: u8, stream: u8, offline: bool, bytes: u64, tokens: u64, patience_ms: u64 },
    Cancel(prop::sample::Index),
    Release(prop::sample::Index, u64),
    Wait(u64),
    NextDay,
}

fn step() -> impl Strategy<Value = Step> {
    let push = (0..4u8, 0..3u8, any::<bool>(), 0..1200u64, 0..1100u64, 1..9000u64).prop_map(
        |(principal, stream, offline, bytes, tokens, patience_ms)| Step::Push {
            principal,
            stream,
            offline,
            bytes: bytes / 3,
            tokens: tokens / 2,
            patience_ms,
        },
    );
    prop_oneof![
        8 => push,
        1 => any::<prop::sample::Index>().prop_map(Step::Cancel),
        5 => (any::<prop::sample::Index>(), 0..=100u64)
            .prop_map(|(which, part)| Step::Release(which, part)),
        2 => (0..3000u64).prop_map(Step::Wait),
        1 => Just(Step::NextDay),
    ]
}

/// What must be the case, kept beside the scheduler and compared after every step.
struct Model {
    limits: Limits,
    scheduler: Scheduler,
    now: Instant,
    day: u64,
    waiting: BTreeMap<Ticket, (Ask, Instant)>,
    under_way: BTreeMap<Ticket, Ask>,
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
        let limit = self.limits.tokens_per_day;
        limit > 0 && self.used(&ask.principal) >= limit
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Push { principal, stream, offline, bytes, tokens, patience_ms } => {
                let class = if offline { Class::Offline } else { Class::Live };
                let patience = Duration::from_millis(patience_ms);
                self.push(Ask {
                    image_bytes: bytes,
                    tokens,
                    patience: Some(patience),
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
            Step::Wait(ms) => self.now += Duration::from_millis(ms),
            Step::NextDay => self.day += 1,
            Step::Cancel(_) | Step::Release(..) => {}
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
                let until = self.now + ask.patience.expect("given");
                assert!(self.waiting.insert(ticket, (ask, until)).is_none(), "a new name");
            }
            Err(Refused::TooLarge { .. }) => assert!(too_large, "{ask:?}"),
            Err(Refused::DaySpent { .. }) => assert!(self.day_is_spent(&ask), "{ask:?}"),
            Err(other) => panic!("{other}"),
        }
    }

    fn release(&mut self, ticket: Ticket, part: u64) {
        let ask = self.under_way.remove(&ticket).expect("under way");
        let spent = ask.tokens * part / 100;
        let found = self.scheduler.release(ticket, self.day, spent);
        assert_eq!(self.scheduler.release(ticket, self.day, spent), None, "once");
        *self.spent.entry((Arc::clone(&ask.principal), self.day)).or_default() += spent;
        let used = found.map(|found| found.used);
        let expected = (self.limits.tokens_per_day > 0).then(|| self.used(&ask.principal));
        assert_eq!(used, expected);
    }

    fn poll(&mut self) {
        while let Some(Verdict { ticket, outcome }) = self.scheduler.poll(self.now, self.day) {
            let before = self.waiting.len();
            let (ask, until) = self.waiting.remove(&ticket).expect("one verdict, of who waits");
            match outcome {
                Ok(()) => {
                    assert!(until > self.now, "nobody goes late");
                    self.under_way.insert(ticket, ask);
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
        let sum = |of: fn(&Ask) -> u64| self.under_way.values().map(of).sum::<u64>();
        let count = |is: &dyn Fn(&Ask) -> bool| self.under_way.values().filter(|a| is(a)).count();
        let offline = count(&|ask| ask.class == Class::Offline);
        let load = self.scheduler.load();
        let waiting = |class| self.waiting.values().filter(|(ask, _)| ask.class == class).count();
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
            let reserved: u64 =
                self.under_way.values().filter(|ask| own(ask)).map(|ask| ask.tokens).sum();
            // Past midnight what is under way may stand beside nothing spent.
            let (day, used) = (limits.tokens_per_day, self.used(&principal));
            let fits = used + reserved <= day || count(&own) <= 1;
            assert!(day == 0 || fits, "{principal}: {used} and {reserved} of {day}");
        }
        assert!(!self.under_way.is_empty() || self.waiting.is_empty(), "somebody can go");
        for (ticket, (_, until)) in &self.waiting {
            assert_eq!(self.scheduler.deadline(*ticket), Some(*until));
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
        // Everybody ends: by an answer, or by a refusal with a name.
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
