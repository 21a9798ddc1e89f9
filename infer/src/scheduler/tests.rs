//! The scheduler in virtual time: what each rule decides, and what holds of any sequence.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

const LIMITS: Limits = Limits {
    in_flight: 8,
    in_flight_per_principal: 4,
    waiters: 16,
    wait: Duration::from_secs(5),
    image_bytes: 1000,
    tokens: 1000,
    tokens_per_day: 0,
};
const LONG: Duration = Duration::from_secs(1 << 20);

fn ask(principal: &str, stream: &str, class: Class) -> Ask {
    Ask {
        principal: principal.into(),
        stream: stream.into(),
        class,
        image_bytes: 1,
        tokens: 1,
        patience: Some(LONG),
    }
}

/// A scheduler with names for its asks.
struct Desk {
    scheduler: Scheduler,
    now: Instant,
    day: u64,
    names: BTreeMap<Ticket, String>,
}

impl Desk {
    fn new(limits: Limits) -> Desk {
        let scheduler = Scheduler::new(limits);
        Desk { scheduler, now: Instant::now(), day: 1, names: BTreeMap::new() }
    }

    fn push(&mut self, name: &str, ask: Ask) -> Ticket {
        let ticket = self.scheduler.push(self.now, self.day, ask).expect("taken");
        self.names.insert(ticket, name.to_owned());
        ticket
    }

    /// Every verdict for now, as `name` or `name: why not`.
    fn poll(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some(Verdict { ticket, outcome }) = self.scheduler.poll(self.now, self.day) {
            let name = &self.names[&ticket];
            said.push(match outcome {
                Ok(()) => name.clone(),
                Err(Refused::QueueFull { .. }) => format!("{name}: full"),
                Err(Refused::TimedOut { .. }) => format!("{name}: late"),
                Err(Refused::DaySpent { .. }) => format!("{name}: spent"),
                Err(Refused::TooLarge { .. }) => format!("{name}: too large"),
            });
        }
        said
    }

    fn release(&mut self, ticket: Ticket) -> Vec<String> {
        self.scheduler.release(ticket, self.day, 0);
        self.poll()
    }

    /// With one place: everything that waits, in the order in which it goes.
    fn order(&mut self, first: Ticket) -> Vec<String> {
        let (mut under_way, mut order) = (first, Vec::new());
        loop {
            let said = self.release(under_way);
            let Some(name) = said.first() else { return order };
            assert_eq!(said.len(), 1, "one place: {said:?}");
            let found = self.names.iter().find(|(_, known)| *known == name);
            under_way = *found.expect("named").0;
            order.push(name.clone());
        }
    }
}

/// One place, taken by somebody else.
fn busy(limits: Limits) -> (Desk, Ticket) {
    let mut desk = Desk::new(Limits { in_flight: 1, ..limits });
    let first = desk.push("first", ask("nobody", "s", Class::Live));
    assert_eq!(desk.poll(), ["first"]);
    (desk, first)
}

#[test]
fn principals_take_turns_and_then_their_streams() {
    let (mut desk, first) = busy(LIMITS);
    for name in ["a/x/1", "a/x/2", "a/y/1", "a/y/2", "b/x/1", "c/x/1"] {
        let mut parts = name.split('/');
        let mut part = || parts.next().expect("three parts");
        desk.push(name, ask(part(), part(), Class::Live));
    }
    assert_eq!(desk.order(first), ["a/x/1", "b/x/1", "c/x/1", "a/y/1", "a/x/2", "a/y/2"]);
}

#[test]
fn whoever_comes_back_at_once_goes_behind_who_waits() {
    let (mut desk, first) = busy(LIMITS);
    desk.push("a1", ask("a", "s", Class::Live));
    desk.push("b1", ask("b", "s", Class::Live));
    desk.push("c1", ask("c", "s", Class::Live));
    assert_eq!(desk.release(first), ["a1"]);
    desk.push("a2", ask("a", "s", Class::Live));
    let a1 = *desk.names.iter().find(|(_, name)| *name == "a1").expect("named").0;
    assert_eq!(desk.order(a1), ["b1", "c1", "a2"]);
}

#[test]
fn of_one_stream_the_earliest_deadline_goes_first() {
    let (mut desk, first) = busy(LIMITS);
    for (name, patience_s) in [("slow", 60), ("quick", 1), ("medium", 10)] {
        let patience = Some(Duration::from_secs(patience_s));
        desk.push(name, Ask { patience, ..ask("a", "s", Class::Live) });
    }
    assert_eq!(desk.order(first), ["quick", "medium", "slow"]);
}

#[test]
fn every_fifth_turn_is_offlines_while_both_wait() {
    let (mut desk, first) = busy(Limits { in_flight_per_principal: 1, ..LIMITS });
    for at in 0..2 {
        desk.push(&format!("off{at}"), ask("job", "s", Class::Offline));
    }
    for at in 0..9 {
        desk.push(&format!("live{at}"), ask("cam", "s", Class::Live));
    }
    let order = desk.order(first);
    let offline: Vec<usize> = (0..order.len()).filter(|at| order[*at].starts_with("off")).collect();
    assert_eq!(offline, [4, 9], "{order:?}");
}

#[test]
fn offline_work_leaves_the_last_place_to_live_asks() {
    let mut desk = Desk::new(Limits { in_flight_per_principal: 100, ..LIMITS });
    for at in 0..8 {
        desk.push(&format!("off{at}"), ask("job", "s", Class::Offline));
    }
    assert_eq!(desk.poll().len(), 7);
    desk.push("live", ask("cam", "s", Class::Live));
    assert_eq!(desk.poll(), ["live"]);
    let few = Limits { in_flight: 4, in_flight_per_principal: 100, ..LIMITS };
    let mut desk = Desk::new(few);
    for at in 0..4 {
        desk.push(&format!("off{at}"), ask("job", "s", Class::Offline));
    }
    assert_eq!(desk.poll().len(), 4, "few places are for everybody");
}

#[test]
fn a_principal_at_its_limit_holds_nobody_else() {
    let mut desk = Desk::new(LIMITS);
    for at in 0..6 {
        desk.push(&format!("a{at}"), ask("a", "s", Class::Live));
    }
    assert_eq!(desk.poll(), ["a0", "a1", "a2", "a3"]);
    desk.push("b", ask("b", "s", Class::Live));
    assert_eq!(desk.poll(), ["b"]);
}

#[test]
fn a_large_ask_is_not_passed_by_small_ones() {
    for large in [
        Ask { image_bytes: 900, ..ask("a", "s", Class::Live) },
        Ask { tokens: 900, ..ask("a", "s", Class::Live) },
    ] {
        let mut desk = Desk::new(LIMITS);
        let first =
            desk.push("first", Ask { image_bytes: 200, tokens: 200, ..ask("b", "s", Class::Live) });
        assert_eq!(desk.poll(), ["first"]);
        desk.push("large", large);
        desk.push("small", ask("c", "s", Class::Live));
        assert_eq!(desk.poll(), [""; 0], "the room is kept for the large one");
        assert_eq!(desk.release(first), ["large", "small"]);
    }
}

#[test]
fn what_could_never_go_is_refused_at_once() {
    let mut desk = Desk::new(LIMITS);
    for large in [
        Ask { image_bytes: 1001, ..ask("a", "s", Class::Live) },
        Ask { tokens: 1001, ..ask("a", "s", Class::Live) },
    ] {
        let refused = desk.scheduler.push(desk.now, 1, large).expect_err("too large");
        assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    }
    assert_eq!(desk.scheduler.load(), Load::default());
}

#[test]
fn waiting_ends_with_the_time_for_it() {
    let (mut desk, _) = busy(LIMITS);
    let usual = desk.push("usual", Ask { patience: None, ..ask("a", "s", Class::Live) });
    desk.push("patient", ask("a", "s", Class::Offline));
    let until = desk.scheduler.deadline(usual).expect("it waits");
    assert_eq!(until - desk.now, LIMITS.wait);
    desk.now = until - Duration::from_millis(1);
    assert_eq!(desk.poll(), [""; 0]);
    desk.now = until;
    assert_eq!(desk.poll(), ["usual: late"]);
    assert_eq!(desk.scheduler.load().waiting_offline, 1);
}

#[test]
fn a_full_queue_refuses_whoever_fills_it() {
    let (mut desk, _) = busy(Limits { waiters: 4, ..LIMITS });
    for at in 0..4 {
        desk.push(&format!("a{at}"), ask("a", "s", Class::Live));
    }
    assert_eq!(desk.poll(), [""; 0]);
    desk.push("a4", ask("a", "s", Class::Live));
    assert_eq!(desk.poll(), ["a4: full"]);
    desk.push("b0", ask("b", "s", Class::Live));
    assert_eq!(desk.poll(), ["a3: full"], "the one with the most gives way");
    desk.push("b1", ask("b", "s", Class::Offline));
    assert_eq!(desk.poll(), ["a2: full"]);
    desk.push("a5", ask("a", "s", Class::Live));
    assert_eq!(desk.poll(), ["a5: full"], "as many each: the last to come");
    desk.push("b2", ask("b", "s", Class::Live));
    assert_eq!(desk.poll(), ["b1: full"], "offline before live");
}

#[test]
fn an_ask_that_can_go_at_once_needs_no_room_in_the_queue() {
    let mut desk = Desk::new(Limits { waiters: 2, in_flight_per_principal: 1, ..LIMITS });
    for at in 0..3 {
        desk.push(&format!("a{at}"), ask("a", "s", Class::Live));
    }
    assert_eq!(desk.poll(), ["a0"]);
    desk.push("b", ask("b", "s", Class::Live));
    assert_eq!(desk.poll(), ["b"], "nobody is refused for it");
}

#[test]
fn a_day_ends_for_a_principal_when_its_tokens_are_spent() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let of = |principal: &str, tokens| Ask { tokens, ..ask(principal, "s", Class::Live) };
    let first = desk.push("first", of("a", 60));
    desk.push("second", of("a", 60));
    desk.push("small", of("a", 1));
    desk.push("other", of("b", 60));
    assert_eq!(desk.poll(), ["first", "other"], "the second waits for what the first spends");
    let used = desk.scheduler.release(first, 1, 30).expect("a budget");
    assert_eq!((used.used, used.limit, used.is_low()), (30, 100, false));
    assert_eq!(desk.poll(), ["second", "small"]);
    let second = *desk.names.iter().find(|(_, name)| *name == "second").expect("named").0;
    let used = desk.scheduler.release(second, 1, 60).expect("a budget");
    assert!(used.is_low(), "{used:?}");
    let refused = desk.scheduler.push(desk.now, 1, of("a", 20)).expect_err("spent");
    assert_eq!(refused, Refused::DaySpent { used: 90, limit: 100, asked: 20 });
    assert!(desk.scheduler.push(desk.now, 2, of("a", 20)).is_ok(), "the next day");
    desk.scheduler.restore("c".into(), 2, 95);
    assert!(desk.scheduler.push(desk.now, 2, of("c", 6)).is_err(), "also after a start");
}

#[test]
fn those_that_wait_are_refused_once_the_day_is_spent() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let of = |tokens| Ask { tokens, ..ask("a", "s", Class::Live) };
    let first = desk.push("first", of(60));
    desk.push("second", of(60));
    assert_eq!(desk.poll(), ["first"]);
    desk.scheduler.release(first, 1, 60);
    assert_eq!(desk.poll(), ["second: spent"]);
}

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
        limit > 0 && self.used(&ask.principal) + ask.tokens > limit
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
        let too_large =
            ask.image_bytes > self.limits.image_bytes || ask.tokens > self.limits.tokens;
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
            let day = limits.tokens_per_day;
            assert!(day == 0 || self.used(&principal) + reserved <= day, "{principal}");
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
