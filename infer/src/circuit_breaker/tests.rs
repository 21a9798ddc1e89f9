//! Tests of the breaker in virtual time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{
    BreakerOpen::{HalfOpen, Open},
    BreakerTicket,
    BreakerTransition::{self, Closed, OpenForAll, OpenForOne},
    CircuitBreaker, FAILURES_MAX, OPEN_FIRST, OPEN_MAX,
    RequestSignal::{self, Fails, IsAway, Nothing, Works},
};

const SECOND: Duration = Duration::from_secs(1);

fn alice() -> Arc<str> {
    "alice".into()
}

fn bob() -> Arc<str> {
    "bob".into()
}

fn admit(breaker: &mut CircuitBreaker, principal: &Arc<str>, now: Instant) -> BreakerTicket {
    breaker.admit(principal, now).unwrap_or_else(|open| panic!("{principal}: {open:?}"))
}

fn ask(
    breaker: &mut CircuitBreaker,
    principal: &Arc<str>,
    signal: RequestSignal,
    now: Instant,
) -> BreakerTransition {
    let ticket = admit(breaker, principal, now);
    breaker.record(&ticket, signal, now)
}

/// Records `signal` for `asks` requests of alice.
fn fail(breaker: &mut CircuitBreaker, asks: u32, signal: RequestSignal, now: Instant) {
    for _ in 0..asks {
        ask(breaker, &alice(), signal, now);
    }
}

/// Returns a breaker that alice's failures opened for all, as the backend was away.
fn opened(now: Instant) -> CircuitBreaker {
    let mut breaker = CircuitBreaker::default();
    for _ in 1..FAILURES_MAX {
        assert_eq!(ask(&mut breaker, &alice(), IsAway, now), BreakerTransition::None);
    }
    assert_eq!(ask(&mut breaker, &alice(), IsAway, now), OpenForAll);
    breaker
}

fn trial(breaker: &mut CircuitBreaker, principal: &Arc<str>, now: Instant) -> BreakerTicket {
    let ticket = admit(breaker, principal, now);
    assert!(ticket.is_probe(), "{ticket:?}");
    ticket
}

#[test]
fn five_failures_on_end_open_it_and_a_success_between_does_not() {
    let now = Instant::now();
    let mut breaker = CircuitBreaker::default();
    for signal in [IsAway; 4].into_iter().chain([Works]).chain([IsAway; 4]) {
        assert_eq!(ask(&mut breaker, &alice(), signal, now), BreakerTransition::None);
    }
    assert_eq!(ask(&mut breaker, &alice(), IsAway, now), OpenForAll);
    for principal in [alice(), bob()] {
        assert_eq!(breaker.state(&principal, now), Some(Open(now + OPEN_FIRST)), "{principal}");
    }
}

#[test]
fn failures_of_one_principal_are_its_own_until_they_are_confirmed() {
    // Signals of other principals after alice's failures, and the expected transition.
    let rows: [(&str, u32, &[RequestSignal], BreakerTransition, bool); 6] = [
        ("alice alone", 50, &[], OpenForOne, false),
        ("another's fails", 5, &[Fails], OpenForAll, true),
        ("another's fails and the sum is too small", 3, &[Fails], BreakerTransition::None, false),
        ("another's was answered", 5, &[Works, Fails], BreakerTransition::None, false),
        ("another is refused a connection", 1, &[IsAway; 4], OpenForAll, true),
        ("another's alone fail", 0, &[Fails; 5], OpenForOne, false),
    ];
    for (name, failures, others, expected, is_shut) in rows {
        let mut now = Instant::now();
        let (mut breaker, mut turn) = (CircuitBreaker::default(), BreakerTransition::None);
        let mut own = false;
        for _ in 0..failures {
            now += OPEN_MAX;
            let turn = ask(&mut breaker, &alice(), Fails, now);
            own |= turn == OpenForOne;
        }
        assert_eq!(own, failures >= FAILURES_MAX, "{name}");
        if own {
            turn = OpenForOne;
        }
        for signal in others {
            turn = ask(&mut breaker, &bob(), *signal, now);
        }
        assert_eq!(turn, expected, "{name}");
        assert_eq!(breaker.state("carol", now).is_some(), is_shut, "{name}");
    }
}

#[test]
fn a_probe_that_fails_confirms_what_one_principal_saw() {
    let now = Instant::now();
    let mut breaker = CircuitBreaker::default();
    assert_eq!(breaker.mark_away(now), BreakerTransition::None, "nobody's ask has failed");
    let mut breaker_of = |failures: u32| {
        breaker = CircuitBreaker::default();
        fail(&mut breaker, failures, Fails, now);
        (breaker.mark_away(now), breaker.state(&bob(), now).is_some())
    };
    assert_eq!(breaker_of(4), (BreakerTransition::None, false));
    assert_eq!(breaker_of(5), (OpenForAll, true));
}

#[test]
fn one_trial_after_each_pause_which_doubles_to_its_end() {
    let mut now = Instant::now();
    let mut breaker = opened(now);
    for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
        let until = now + SECOND * expected;
        let before = until - Duration::from_millis(1);
        assert_eq!(breaker.state(&alice(), before), Some(Open(until)), "{expected}");
        now = until;
        let ticket = trial(&mut breaker, &alice(), now);
        let half_open = Some(HalfOpen(now + OPEN_MAX));
        assert_eq!(breaker.state(&alice(), now), half_open, "one at a time");
        assert_eq!(breaker.state(&bob(), now), half_open, "of all");
        breaker.record(&ticket, IsAway, now);
    }
    now += OPEN_MAX;
    let ticket = trial(&mut breaker, &bob(), now);
    assert_eq!(breaker.record(&ticket, Works, now), Closed);
    assert!(!admit(&mut breaker, &bob(), now).is_probe());
}

#[test]
fn two_whose_questions_fail_take_no_trial_from_a_third() {
    let start = Instant::now();
    let mut breaker = CircuitBreaker::default();
    fail(&mut breaker, 3, Fails, start);
    ask(&mut breaker, &bob(), Fails, start);
    assert_eq!(ask(&mut breaker, &bob(), Fails, start), OpenForAll);
    let now = start + OPEN_FIRST;
    let others_first = Some(Open(now + OPEN_FIRST));
    assert_eq!([alice(), bob()].map(|principal| breaker.state(&principal, now)), [others_first; 2]);
    let carol: Arc<str> = PAYERS[2].into();
    assert_eq!(breaker.state(&carol, now), None);
    let now = now + OPEN_FIRST;
    for principal in [alice(), bob()] {
        let suspected = trial(&mut breaker, &principal, now);
        breaker.record(&suspected, Fails, now);
        assert_eq!(breaker.state(&carol, now), None, "the pause of all is no longer for it");
    }
    let fair = trial(&mut breaker, &carol, now);
    assert_eq!(breaker.record(&fair, Works, now), Closed);
}

#[test]
fn a_trial_of_whoever_failed_most_leaves_the_next_to_others() {
    let start = Instant::now();
    let mut breaker = CircuitBreaker::default();
    fail(&mut breaker, 4, Fails, start);
    assert_eq!(ask(&mut breaker, &bob(), Fails, start), OpenForAll);
    let now = start + OPEN_FIRST;
    assert_eq!(breaker.state(&alice(), now), Some(Open(now + OPEN_FIRST)), "others first");
    assert_eq!(breaker.state(&bob(), now), None);
    let now = now + OPEN_FIRST;
    let suspected = trial(&mut breaker, &alice(), now);
    assert_eq!(breaker.state(&bob(), now), Some(HalfOpen(now + OPEN_MAX)));
    breaker.record(&suspected, Fails, now);
    assert_eq!(breaker.state(&alice(), now), Some(Open(now + OPEN_FIRST * 2)));
    let fair = trial(&mut breaker, &bob(), now);
    breaker.record(&fair, Works, now);
    assert_eq!(breaker.state(&bob(), now), None);
    assert!(breaker.state(&alice(), now).is_some(), "its own asks still fail");
}

#[test]
fn a_trial_that_was_given_up_leaves_room_for_the_next() {
    let now = Instant::now() + SECOND;
    let mut breaker = opened(now - SECOND);
    let ticket = trial(&mut breaker, &alice(), now);
    breaker.record(&ticket, Nothing, now);
    trial(&mut breaker, &bob(), now);
}

#[test]
fn a_trial_that_hangs_is_followed_by_another() {
    let mut now = Instant::now() + SECOND;
    let mut breaker = opened(now - SECOND);
    let hangs = trial(&mut breaker, &alice(), now);
    assert!(breaker.state(&bob(), now + OPEN_MAX - Duration::from_millis(1)).is_some());
    now += OPEN_MAX;
    let next = trial(&mut breaker, &bob(), now);
    breaker.record(&hangs, Fails, now);
    assert_eq!(breaker.state("carol", now), Some(HalfOpen(now + OPEN_MAX)), "still under way");
    breaker.record(&next, Fails, now);
    let until = now + 2 * SECOND;
    assert_eq!(breaker.state("carol", now), Some(Open(until)), "it has doubled once");
    breaker.record(&hangs, Works, now);
    assert_eq!(breaker.state("carol", now), None, "an answer is one, however late");
}

#[test]
fn failures_of_before_do_not_lengthen_the_pause() {
    let now = Instant::now();
    let mut breaker = CircuitBreaker::default();
    let late = admit(&mut breaker, &alice(), now);
    fail(&mut breaker, 5, IsAway, now);
    breaker.record(&late, IsAway, now);
    trial(&mut breaker, &alice(), now + SECOND);
}

/// Principals of the properties; the backend fails on the requests of the first one.
const PAYERS: [&str; 3] = ["alice", "bob", "carol"];

proptest! {
    /// In every history, even with probes that never end, one probe is admitted at a time, a suspect's
    /// failure blocks no other principal, and no principal is blocked for longer than the longest open period
    /// and a second.
    #[test]
    fn it_never_stays_shut(
        steps in proptest::collection::vec(
            (0_u64..40_000, 0_u8..7, 0_usize..3, any::<prop::sample::Index>()), 1..200)
    ) {
        let mut now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        let principals = PAYERS.map(Arc::<str>::from);
        let mut under_way: Vec<BreakerTicket> = Vec::new();
        for (wait_ms, step, who, which) in steps {
            now += Duration::from_millis(wait_ms);
            let signal = [Works, Fails, IsAway, Nothing];
            if let Some(signal) = signal.get(usize::from(step)) {
                if !under_way.is_empty() {
                    let ticket = under_way.swap_remove(which.index(under_way.len()));
                    let suspects = breaker.open.as_ref().map(|open| open.suspects.clone());
                    let is_suspect = suspects.is_some_and(|all| all.contains(&ticket.principal));
                    let open = breaker.open.as_ref();
                    let was_half_open = open.is_some_and(|open| open.period.is_probe(&ticket));
                    breaker.record(&ticket, *signal, now);
                    if was_half_open && *signal == Fails && is_suspect {
                        let all = breaker.open.as_ref().and_then(|open| open.period.state(now));
                        prop_assert_eq!(all, None, "others may try at once");
                    }
                }
            } else if step == 4 {
                breaker.mark_away(now);
            } else if let Ok(ticket) = breaker.admit(&principals[who], now) {
                if breaker.open.is_some() {
                    prop_assert!(ticket.is_probe());
                    for principal in &principals {
                        prop_assert!(breaker.admit(principal, now).is_err(), "one at a time");
                    }
                }
                under_way.push(ticket);
            }
            for principal in &principals {
                prop_assert_eq!(breaker.state(principal, now + OPEN_MAX + OPEN_FIRST), None);
            }
        }
    }

    /// If only alice's requests fail and the backend works, all requests of others are answered, provided
    /// that those which meet a probe wait for its result.
    #[test]
    fn nobody_pays_for_the_questions_of_another(
        asks in proptest::collection::vec((0_u64..3000, 0_usize..3, 1_u64..20_000), 1..300),
        is_suspected in any::<bool>(),
    ) {
        let mut now = Instant::now();
        let mut breaker = CircuitBreaker::default();
        let principals = PAYERS.map(Arc::<str>::from);
        let mut under_way: BTreeMap<(Instant, usize), BreakerTicket> = BTreeMap::new();
        let mut waiting: Vec<usize> = Vec::new();
        if is_suspected {
            // A request of another principal failed as well, once.
            fail(&mut breaker, 4, Fails, now);
            ask(&mut breaker, &bob(), Fails, now);
            now += OPEN_FIRST;
        }
        let mut number = 0;
        for (wait_ms, who, takes_ms) in asks {
            now += Duration::from_millis(wait_ms);
            let at = now;
            let mut comes = Vec::new();
            // Requests that ended earlier are recorded first; their waiters check the breaker again.
            while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= at) {
                let ((ended, _), ticket) = entry.remove_entry();
                let fails = *ticket.principal == *principals[0];
                let signal = if fails { Fails } else { Works };
                breaker.record(&ticket, signal, ended);
                comes.extend(waiting.drain(..).map(|who| (who, ended)));
            }
            comes.push((who, at));
            for (who, when) in comes {
                match breaker.admit(&principals[who], when) {
                    Ok(ticket) => {
                        number += 1;
                        under_way.insert((when + Duration::from_millis(takes_ms), number), ticket);
                    }
                    Err(HalfOpen(_)) => waiting.push(who),
                    Err(Open(_)) => prop_assert_eq!(who, 0, "another than alice is held back"),
                }
            }
        }
    }
}
