//! Tests of each scheduler rule in virtual time.

mod reference_model;

use std::collections::BTreeMap;

use super::*;

const LIMITS: AdmissionLimits = AdmissionLimits {
    in_flight: 8,
    in_flight_per_principal: 4,
    waiters: 16,
    wait: Duration::from_secs(5),
    image_bytes: 1000,
    tokens: 1000,
    tokens_per_day: 0,
};
const LONG: Duration = Duration::from_secs(1 << 20);

fn request(principal: &str, stream: &str, priority: Priority) -> AdmissionRequest {
    AdmissionRequest {
        principal: principal.into(),
        stream: stream.into(),
        priority,
        image_bytes: 1,
        tokens: 1,
        wait_max: Some(LONG),
        retry_after: Duration::ZERO,
    }
}

/// Scheduler with names for its requests.
struct Desk {
    scheduler: Scheduler,
    now: Instant,
    day: u64,
    names: BTreeMap<AdmissionId, String>,
}

impl Desk {
    fn new(limits: AdmissionLimits) -> Desk {
        let scheduler = Scheduler::new(limits);
        Desk { scheduler, now: Instant::now(), day: 1, names: BTreeMap::new() }
    }

    fn push(&mut self, name: &str, request: AdmissionRequest) -> AdmissionId {
        let id = self.scheduler.push(self.now, self.day, request).expect("taken");
        self.names.insert(id, name.to_owned());
        id
    }

    /// Pushes `count` requests called `name` and their number.
    fn push_all(&mut self, name: &str, count: u32, request: &AdmissionRequest) {
        for at in 0..count {
            self.push(&format!("{name}{at}"), request.clone());
        }
    }

    /// Returns the last request called `name`.
    fn id(&self, name: &str) -> AdmissionId {
        let found = self.names.iter().rev().find(|(_, known)| *known == name);
        *found.expect("named").0
    }

    /// Returns all outcomes that are ready, as `name` or `name: reason`.
    fn poll(&mut self) -> Vec<String> {
        let mut said = Vec::new();
        while let Some((id, outcome)) = self.scheduler.poll(self.now, self.day) {
            let name = &self.names[&id];
            said.push(match outcome {
                Ok(()) => name.clone(),
                Err(AdmissionError::QueueFull { .. }) => format!("{name}: full"),
                Err(AdmissionError::TimedOut { .. }) => format!("{name}: late"),
                Err(AdmissionError::DaySpent { .. }) => format!("{name}: spent"),
                Err(AdmissionError::TooLarge { .. }) => format!("{name}: too large"),
            });
        }
        said
    }

    fn release(&mut self, id: AdmissionId) -> Vec<String> {
        self.scheduler.release(id, self.day);
        self.poll()
    }

    /// Commits `tokens` for the request called `name` and ends it.
    fn spend(&mut self, name: &str, tokens: u64) -> DailyUsage {
        let id = self.id(name);
        self.scheduler.commit(id, self.day, tokens);
        self.scheduler.release(id, self.day).expect("a budget")
    }

    /// Returns all waiting requests in the order in which they are admitted to the one slot.
    fn order(&mut self, first: AdmissionId) -> Vec<String> {
        let (mut in_flight, mut order) = (first, Vec::new());
        loop {
            let said = self.release(in_flight);
            let Some(name) = said.first() else { return order };
            assert_eq!(said.len(), 1, "one place: {said:?}");
            in_flight = self.id(name);
            order.push(name.clone());
        }
    }
}

/// Returns a scheduler whose one slot is taken.
fn busy(limits: AdmissionLimits) -> (Desk, AdmissionId) {
    let mut state = Desk::new(AdmissionLimits { in_flight: 1, ..limits });
    let first = state.push("first", request("nobody", "s", Priority::Live));
    assert_eq!(state.poll(), ["first"]);
    (state, first)
}

#[test]
fn principals_take_turns_and_then_their_streams() {
    let (mut state, first) = busy(LIMITS);
    for name in ["a/x/1", "a/x/2", "a/y/1", "a/y/2", "b/x/1", "c/x/1"] {
        let mut parts = name.split('/');
        let mut part = || parts.next().expect("three parts");
        state.push(name, request(part(), part(), Priority::Live));
    }
    assert_eq!(state.order(first), ["a/x/1", "b/x/1", "c/x/1", "a/y/1", "a/x/2", "a/y/2"]);
}

#[test]
fn whoever_comes_back_at_once_goes_behind_who_waits() {
    let (mut state, first) = busy(LIMITS);
    state.push("a1", request("a", "s", Priority::Live));
    state.push("b1", request("b", "s", Priority::Live));
    state.push("c1", request("c", "s", Priority::Live));
    assert_eq!(state.release(first), ["a1"]);
    state.push("a2", request("a", "s", Priority::Live));
    assert_eq!(state.order(state.id("a1")), ["b1", "c1", "a2"]);
}

#[test]
fn of_one_stream_the_earliest_deadline_goes_first() {
    let (mut state, first) = busy(LIMITS);
    for (name, patience_s) in [("slow", 60), ("quick", 1), ("medium", 10)] {
        let wait_max = Some(Duration::from_secs(patience_s));
        state.push(name, AdmissionRequest { wait_max, ..request("a", "s", Priority::Live) });
    }
    assert_eq!(state.order(first), ["quick", "medium", "slow"]);
}

#[test]
fn every_fifth_turn_is_offlines_while_both_wait() {
    let (mut state, first) = busy(AdmissionLimits { in_flight_per_principal: 1, ..LIMITS });
    state.push_all("off", 2, &request("job", "s", Priority::Offline));
    state.push_all("live", 9, &request("cam", "s", Priority::Live));
    let order = state.order(first);
    let offline: Vec<usize> = (0..order.len()).filter(|at| order[*at].starts_with("off")).collect();
    assert_eq!(offline, [4, 9], "{order:?}");
}

#[test]
fn offline_work_leaves_the_last_place_to_live_asks() {
    let mut state = Desk::new(AdmissionLimits { in_flight_per_principal: 100, ..LIMITS });
    state.push_all("off", 8, &request("job", "s", Priority::Offline));
    assert_eq!(state.poll().len(), 7);
    state.push("live", request("cam", "s", Priority::Live));
    assert_eq!(state.poll(), ["live"]);
    let few = AdmissionLimits { in_flight: 4, in_flight_per_principal: 100, ..LIMITS };
    let mut state = Desk::new(few);
    state.push_all("off", 4, &request("job", "s", Priority::Offline));
    assert_eq!(state.poll().len(), 4, "few places are for everybody");
}

#[test]
fn a_principal_at_its_limit_holds_nobody_else() {
    let mut state = Desk::new(LIMITS);
    state.push_all("a", 6, &request("a", "s", Priority::Live));
    assert_eq!(state.poll(), ["a0", "a1", "a2", "a3"]);
    state.push("b", request("b", "s", Priority::Live));
    assert_eq!(state.poll(), ["b"]);
}

#[test]
fn work_of_one_kind_does_not_keep_a_principal_from_the_other() {
    use Priority::{Live, Offline};
    // Of the principal at its limit, the first kind could take every slot and the second none: `b` takes what
    // is left, and with it the turns of the second kind.
    for (first, second) in [(Live, Offline), (Offline, Live)] {
        let mut state = Desk::new(AdmissionLimits {
            in_flight: 2,
            in_flight_per_principal: 1,
            waiters: 100,
            ..LIMITS
        });
        for at in 0..20 {
            state.push(&format!("a{at}"), request("a", "s", first));
            state.push(&format!("b{at}"), request("b", "s", second));
        }
        let seen = state.push("seen", request("a", "s", second));
        let mut order = state.poll();
        while state.scheduler.waiting.contains_key(&seen) {
            let oldest = *state.scheduler.in_flight.keys().min().expect("two in flight");
            order.extend(state.release(oldest));
        }
        assert!(order.len() <= 6, "{second:?}: {order:?}");
    }
}

#[test]
fn a_large_ask_is_not_passed_by_small_ones() {
    for large in [
        AdmissionRequest { image_bytes: 900, ..request("a", "s", Priority::Live) },
        AdmissionRequest { tokens: 900, ..request("a", "s", Priority::Live) },
    ] {
        let mut state = Desk::new(LIMITS);
        let first = state.push(
            "first",
            AdmissionRequest { image_bytes: 200, tokens: 200, ..request("b", "s", Priority::Live) },
        );
        assert_eq!(state.poll(), ["first"]);
        state.push("large", large);
        state.push("small", request("c", "s", Priority::Live));
        assert_eq!(state.poll(), [""; 0], "the room is kept for the large one");
        assert_eq!(state.release(first), ["large", "small"]);
    }
}

#[test]
fn waiting_ends_with_the_time_for_it() {
    let (mut state, _) = busy(LIMITS);
    let usual = state
        .push("usual", AdmissionRequest { wait_max: None, ..request("a", "s", Priority::Live) });
    state.push("patient", request("a", "s", Priority::Offline));
    let until = state.scheduler.deadline(usual, state.now).expect("it waits");
    assert_eq!(until - state.now, LIMITS.wait);
    state.now = until - Duration::from_millis(1);
    assert_eq!(state.poll(), [""; 0]);
    state.now = until;
    assert_eq!(state.poll(), ["usual: late"]);
    assert_eq!(state.scheduler.load().waiting_offline, 1);
}

#[test]
fn a_full_queue_refuses_whoever_fills_it() {
    let (mut state, _) = busy(AdmissionLimits { waiters: 4, ..LIMITS });
    state.push_all("a", 4, &request("a", "s", Priority::Live));
    assert_eq!(state.poll(), [""; 0]);
    state.push("a4", request("a", "s", Priority::Live));
    assert_eq!(state.poll(), ["a4: full"]);
    state.push("b0", request("b", "s", Priority::Live));
    assert_eq!(state.poll(), ["a3: full"], "the one with the most gives way");
    state.push("b1", request("b", "s", Priority::Offline));
    assert_eq!(state.poll(), ["a2: full"]);
    state.push("a5", request("a", "s", Priority::Live));
    assert_eq!(state.poll(), ["a5: full"], "as many each: the last to come");
    state.push("b2", request("b", "s", Priority::Live));
    assert_eq!(state.poll(), ["b1: full"], "offline before live");
}

#[test]
fn an_ask_that_can_go_at_once_needs_no_room_in_the_queue() {
    let mut state = Desk::new(AdmissionLimits { waiters: 2, in_flight_per_principal: 1, ..LIMITS });
    state.push_all("a", 3, &request("a", "s", Priority::Live));
    assert_eq!(state.poll(), ["a0"]);
    state.push("b", request("b", "s", Priority::Live));
    assert_eq!(state.poll(), ["b"], "nobody is refused for it");
}

fn of(principal: &str, tokens: u64) -> AdmissionRequest {
    AdmissionRequest { tokens, ..request(principal, "s", Priority::Live) }
}

#[test]
fn a_day_ends_for_a_principal_when_its_tokens_are_spent() {
    let mut state = Desk::new(AdmissionLimits { tokens_per_day: 100, ..LIMITS });
    state.push("first", of("a", 50));
    state.push("second", of("a", 50));
    state.push("small", of("a", 1));
    state.push("other", of("b", 60));
    assert_eq!(state.poll(), ["first", "other"], "the second waits for what the first spends");
    let used = state.scheduler.used(&"a".into(), 1).expect("a budget");
    assert_eq!((used.used, used.reserved, used.is_low()), (0, 50, false));
    let used = state.spend("first", 45);
    assert_eq!((used.used, used.reserved, used.limit, used.is_low()), (45, 0, 100, false));
    assert_eq!(state.poll(), ["second"]);
    let used = state.scheduler.used(&"a".into(), 1).expect("a budget");
    assert!(used.is_low(), "45 are spent and 50 may be: {used:?}");
    assert!(state.spend("second", 54).is_low());
    assert_eq!(state.poll(), ["small"], "one is left");
    let refused = state.scheduler.push(state.now, 1, of("a", 2)).expect_err("spent");
    assert_eq!(refused, AdmissionError::DaySpent { used: 99, asked: 2, limit: 100 });
    assert!(state.scheduler.push(state.now, 2, of("a", 20)).is_ok(), "the next day");
    state.scheduler.restore("c".into(), 2, 100);
    assert!(state.scheduler.push(state.now, 2, of("c", 6)).is_err(), "also after a start");
}

#[test]
fn asks_go_side_by_side_only_where_a_multiple_of_their_estimates_fits() {
    let mut state = Desk::new(AdmissionLimits { tokens_per_day: 100, ..LIMITS });
    for name in ["1", "2", "3", "4"] {
        state.push(name, of("a", 10));
    }
    assert_eq!(state.poll(), ["1", "2"], "three may cost 120");
    state.spend("1", 40);
    assert_eq!(state.poll(), [""; 0]);
    assert_eq!(state.spend("2", 40).used, 80, "as much as they could");
    assert_eq!(state.poll(), ["3"], "alone");
    assert_eq!(state.spend("3", 40).used, 120, "the one that may pass the limit");
    assert_eq!(state.poll(), ["4: spent"]);
}
