//! The scheduler in virtual time: what each rule decides.

use std::collections::BTreeMap;

use super::*;

pub(super) const LIMITS: Limits = Limits {
    in_flight: 8,
    in_flight_per_principal: 4,
    waiters: 16,
    wait: Duration::from_secs(5),
    image_bytes: 1000,
    tokens: 1000,
    tokens_per_day: 0,
};
const LONG: Duration = Duration::from_secs(1 << 20);

pub(super) fn ask(principal: &str, stream: &str, class: Class) -> Ask {
    Ask {
        principal: principal.into(),
        stream: stream.into(),
        class,
        image_bytes: 1,
        tokens: 1,
        patience: Some(LONG),
        rest: Duration::ZERO,
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
        self.scheduler.release(ticket, self.day);
        self.poll()
    }

    /// Ends the ask called `name` for so many tokens.
    fn spend(&mut self, name: &str, tokens: u64) -> Use {
        let found = self.names.iter().rev().find(|(_, known)| *known == name);
        let ticket = *found.expect("named").0;
        self.scheduler.spend(ticket, self.day, tokens);
        self.scheduler.release(ticket, self.day).expect("a budget")
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

/// Scheduler whose one slot is taken.
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
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let of = |tokens| Ask { tokens, ..ask("a", "s", Class::Live) };
    let refused = desk.scheduler.push(desk.now, 1, of(101)).expect_err("no day has as many");
    assert_eq!(refused, Refused::TooLarge { what: Size::DayTokens, asked: 101, limit: 100 });
    assert!(desk.scheduler.push(desk.now, 1, of(100)).is_ok(), "a whole day");
}

#[test]
fn waiting_ends_with_the_time_for_it() {
    let (mut desk, _) = busy(LIMITS);
    let usual = desk.push("usual", Ask { patience: None, ..ask("a", "s", Class::Live) });
    desk.push("patient", ask("a", "s", Class::Offline));
    let until = desk.scheduler.deadline(usual, desk.now).expect("it waits");
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
fn whoever_must_rest_waits_and_holds_nobody() {
    let (mut desk, first) = busy(LIMITS);
    let rest = Duration::from_secs(30);
    let rests = desk.push("rests", Ask { rest, ..ask("a", "s", Class::Live) });
    desk.push("b", ask("b", "s", Class::Live));
    let ready = desk.now + rest;
    assert_eq!(desk.scheduler.deadline(rests, desk.now), Some(ready));
    assert_eq!(desk.release(first), ["b"]);
    let b = *desk.names.iter().find(|(_, name)| *name == "b").expect("named").0;
    assert_eq!(desk.release(b), [""; 0], "there is a place, and it is not taken");
    desk.now = ready - Duration::from_millis(1);
    assert_eq!(desk.poll(), [""; 0]);
    desk.now = ready;
    assert_eq!(desk.scheduler.deadline(rests, desk.now), Some(ready - rest + LONG));
    assert_eq!(desk.poll(), ["rests"]);
}

fn of(principal: &str, tokens: u64) -> Ask {
    Ask { tokens, ..ask(principal, "s", Class::Live) }
}

#[test]
fn a_day_ends_for_a_principal_when_its_tokens_are_spent() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    desk.push("first", of("a", 50));
    desk.push("second", of("a", 50));
    desk.push("small", of("a", 1));
    desk.push("other", of("b", 60));
    assert_eq!(desk.poll(), ["first", "other"], "the second waits for what the first spends");
    let used = desk.scheduler.used(&"a".into(), 1).expect("a budget");
    assert_eq!((used.used, used.reserved, used.is_low()), (0, 50, false));
    let used = desk.spend("first", 45);
    assert_eq!((used.used, used.reserved, used.limit, used.is_low()), (45, 0, 100, false));
    assert_eq!(desk.poll(), ["second"]);
    let used = desk.scheduler.used(&"a".into(), 1).expect("a budget");
    assert!(used.is_low(), "45 are spent and 50 may be: {used:?}");
    assert!(desk.spend("second", 54).is_low());
    assert_eq!(desk.poll(), ["small"], "one is left");
    let refused = desk.scheduler.push(desk.now, 1, of("a", 2)).expect_err("spent");
    assert_eq!(refused, Refused::DaySpent { used: 99, asked: 2, limit: 100 });
    assert!(desk.scheduler.push(desk.now, 2, of("a", 20)).is_ok(), "the next day");
    desk.scheduler.restore("c".into(), 2, 100);
    assert!(desk.scheduler.push(desk.now, 2, of("c", 6)).is_err(), "also after a start");
}

#[test]
fn asks_go_side_by_side_only_where_a_multiple_of_their_estimates_fits() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    for name in ["1", "2", "3", "4"] {
        desk.push(name, of("a", 10));
    }
    assert_eq!(desk.poll(), ["1", "2"], "three may cost 120");
    desk.spend("1", 40);
    assert_eq!(desk.poll(), [""; 0]);
    assert_eq!(desk.spend("2", 40).used, 80, "as much as they could");
    assert_eq!(desk.poll(), ["3"], "alone");
    assert_eq!(desk.spend("3", 40).used, 120, "the one that may pass the limit");
    assert_eq!(desk.poll(), ["4: spent"]);
}

#[test]
fn every_request_of_an_ask_is_reserved_for() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let first = desk.push("first", of("a", 30));
    assert_eq!(desk.poll(), ["first"]);
    let scheduler = &mut desk.scheduler;
    assert!(scheduler.reserve(first, 1, 30));
    scheduler.spend(first, 1, 35);
    assert!(!scheduler.reserve(first, 1, 66), "65 are left");
    assert!(scheduler.reserve(first, 1, 60));
    scheduler.spend(first, 1, 20);
    let used = scheduler.used(&"a".into(), 1).expect("a budget");
    assert_eq!((used.used, used.reserved), (55, 0), "nothing is set aside between requests");
    assert!(scheduler.reserve(first, 1, 45));
    let used = scheduler.release(first, 1).expect("a budget");
    assert_eq!((used.used, used.reserved), (100, 0), "given up in mid-request");
    assert!(!scheduler.reserve(first, 1, 1), "it is over");
}

#[test]
fn those_that_wait_are_refused_once_the_day_has_no_room_for_them() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    desk.push("first", of("a", 60));
    desk.push("second", of("a", 60));
    desk.push("third", of("a", 20));
    assert_eq!(desk.poll(), ["first"]);
    desk.spend("first", 70);
    assert_eq!(desk.poll(), ["second: spent", "third"]);
}
