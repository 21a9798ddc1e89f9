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
    let small = *desk.names.iter().find(|(_, name)| *name == "small").expect("named").0;
    desk.scheduler.release(small, 1, 11).expect("a budget");
    let refused = desk.scheduler.push(desk.now, 1, of("a", 1)).expect_err("spent");
    assert_eq!(refused, Refused::DaySpent { used: 101, limit: 100 });
    assert!(desk.scheduler.push(desk.now, 2, of("a", 20)).is_ok(), "the next day");
    desk.scheduler.restore("c".into(), 2, 100);
    assert!(desk.scheduler.push(desk.now, 2, of("c", 6)).is_err(), "also after a start");
}

#[test]
fn what_is_left_of_a_day_is_spent_one_ask_at_a_time_however_large_the_estimates() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let of = |tokens| Ask { tokens, ..ask("a", "s", Class::Live) };
    let mut asked = 0;
    loop {
        let names = [format!("{asked}"), format!("{asked} beside")];
        let tickets = names.clone().map(|name| (desk.scheduler.push(desk.now, 1, of(80)), name));
        let [(Ok(first), _), (Ok(second), _)] = &tickets else { break };
        for (ticket, name) in [(first, &names[0]), (second, &names[1])] {
            desk.names.insert(*ticket, name.clone());
        }
        assert_eq!(desk.poll(), [names[0].clone()], "80 and 80 are more than a day has");
        assert!(desk.scheduler.cancel(*second), "it waits");
        desk.scheduler.release(*first, 1, 9);
        asked += 1;
    }
    assert_eq!(asked, 12, "12 of 9 tokens each pass 100, by less than one takes");
}

#[test]
fn those_that_wait_are_refused_once_the_day_is_spent() {
    let mut desk = Desk::new(Limits { tokens_per_day: 100, ..LIMITS });
    let of = |tokens| Ask { tokens, ..ask("a", "s", Class::Live) };
    let first = desk.push("first", of(60));
    desk.push("second", of(60));
    assert_eq!(desk.poll(), ["first"]);
    desk.scheduler.release(first, 1, 100);
    assert_eq!(desk.poll(), ["second: spent"]);
}
