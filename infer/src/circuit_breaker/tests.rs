//! The breaker in virtual time.

use std::{
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use proptest::prelude::*;

use super::{Admitted, Breaker, FAILURES_MAX, PAUSE_FIRST, PAUSE_MAX, Shown, Shut, Turn};

const SECOND: Duration = Duration::from_secs(1);

fn alice() -> Arc<str> {
    "alice".into()
}

fn bob() -> Arc<str> {
    "bob".into()
}

fn admit(breaker: &mut Breaker, payer: &Arc<str>, now: Instant) -> Admitted {
    breaker.admit(payer, now).unwrap_or_else(|shut| panic!("{payer}: {shut:?}"))
}

fn ask(breaker: &mut Breaker, payer: &Arc<str>, shown: Shown, now: Instant) -> Turn {
    let admitted = admit(breaker, payer, now);
    breaker.record(&admitted, shown, now)
}

/// So many asks of alice show this.
fn fail(breaker: &mut Breaker, asks: u32, shown: Shown, now: Instant) {
    for _ in 0..asks {
        ask(breaker, &alice(), shown, now);
    }
}

/// Left alone by everybody: it was away for alice.
fn opened(now: Instant) -> Breaker {
    let mut breaker = Breaker::default();
    for _ in 1..FAILURES_MAX {
        assert_eq!(ask(&mut breaker, &alice(), Shown::IsAway, now), Turn::None);
    }
    assert_eq!(ask(&mut breaker, &alice(), Shown::IsAway, now), Turn::All);
    breaker
}

fn trial(breaker: &mut Breaker, payer: &Arc<str>, now: Instant) -> Admitted {
    let admitted = admit(breaker, payer, now);
    assert!(admitted.is_trial(), "{admitted:?}");
    admitted
}

#[test]
fn five_failures_on_end_open_it_and_a_success_between_does_not() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    for shown in [Shown::IsAway; 4].into_iter().chain([Shown::Works]).chain([Shown::IsAway; 4]) {
        assert_eq!(ask(&mut breaker, &alice(), shown, now), Turn::None);
    }
    assert_eq!(ask(&mut breaker, &alice(), Shown::IsAway, now), Turn::All);
    for payer in [alice(), bob()] {
        assert_eq!(breaker.shut(&payer, now), Some(Shut::Paused(now + PAUSE_FIRST)), "{payer}");
    }
}

#[test]
fn failures_of_one_principal_are_its_own_until_they_are_confirmed() {
    use Shown::{Fails, IsAway, Works};
    // What others show after alice's failures, and what becomes of the breaker.
    let rows: [(&str, u32, &[Shown], Turn, bool); 6] = [
        ("alice alone", 50, &[], Turn::Own, false),
        ("another's fails", 5, &[Fails], Turn::All, true),
        ("another's fails and the sum is too small", 3, &[Fails], Turn::None, false),
        ("another's was answered", 5, &[Works, Fails], Turn::None, false),
        ("another is refused a connection", 1, &[IsAway; 4], Turn::All, true),
        ("another's alone fail", 0, &[Fails; 5], Turn::Own, false),
    ];
    for (name, failures, others, expected, is_shut) in rows {
        let mut now = Instant::now();
        let (mut breaker, mut turn) = (Breaker::default(), Turn::None);
        let mut own = false;
        for _ in 0..failures {
            now += PAUSE_MAX;
            let turn = ask(&mut breaker, &alice(), Fails, now);
            own |= turn == Turn::Own;
        }
        assert_eq!(own, failures >= FAILURES_MAX, "{name}");
        if own {
            turn = Turn::Own;
        }
        for shown in others {
            turn = ask(&mut breaker, &bob(), *shown, now);
        }
        assert_eq!(turn, expected, "{name}");
        assert_eq!(breaker.shut("carol", now).is_some(), is_shut, "{name}");
    }
}

#[test]
fn a_probe_that_fails_confirms_what_one_principal_saw() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    assert_eq!(breaker.is_away(now), Turn::None, "nobody's ask has failed");
    let mut breaker_of = |failures: u32| {
        breaker = Breaker::default();
        fail(&mut breaker, failures, Shown::Fails, now);
        (breaker.is_away(now), breaker.shut(&bob(), now).is_some())
    };
    assert_eq!(breaker_of(4), (Turn::None, false));
    assert_eq!(breaker_of(5), (Turn::All, true));
}

#[test]
fn one_trial_after_each_pause_which_doubles_to_its_end() {
    let mut now = Instant::now();
    let mut breaker = opened(now);
    for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
        let until = now + SECOND * expected;
        let before = until - Duration::from_millis(1);
        assert_eq!(breaker.shut(&alice(), before), Some(Shut::Paused(until)), "{expected}");
        now = until;
        let admitted = trial(&mut breaker, &alice(), now);
        let tried = Some(Shut::Tried(now + PAUSE_MAX));
        assert_eq!(breaker.shut(&alice(), now), tried, "one at a time");
        assert_eq!(breaker.shut(&bob(), now), tried, "of all");
        breaker.record(&admitted, Shown::IsAway, now);
    }
    now += PAUSE_MAX;
    let admitted = trial(&mut breaker, &bob(), now);
    assert_eq!(breaker.record(&admitted, Shown::Works, now), Turn::Closed);
    assert!(!admit(&mut breaker, &bob(), now).is_trial());
}

#[test]
fn two_whose_questions_fail_take_no_trial_from_a_third() {
    let start = Instant::now();
    let mut breaker = Breaker::default();
    fail(&mut breaker, 3, Shown::Fails, start);
    ask(&mut breaker, &bob(), Shown::Fails, start);
    assert_eq!(ask(&mut breaker, &bob(), Shown::Fails, start), Turn::All);
    let now = start + PAUSE_FIRST;
    let others_first = Some(Shut::Paused(now + PAUSE_FIRST));
    assert_eq!([alice(), bob()].map(|payer| breaker.shut(&payer, now)), [others_first; 2]);
    let carol: Arc<str> = PAYERS[2].into();
    assert_eq!(breaker.shut(&carol, now), None);
    let now = now + PAUSE_FIRST;
    for payer in [alice(), bob()] {
        let suspected = trial(&mut breaker, &payer, now);
        breaker.record(&suspected, Shown::Fails, now);
        assert_eq!(breaker.shut(&carol, now), None, "the pause of all is no longer for it");
    }
    let fair = trial(&mut breaker, &carol, now);
    assert_eq!(breaker.record(&fair, Shown::Works, now), Turn::Closed);
}

#[test]
fn a_trial_of_whoever_failed_most_leaves_the_next_to_others() {
    let start = Instant::now();
    let mut breaker = Breaker::default();
    fail(&mut breaker, 4, Shown::Fails, start);
    assert_eq!(ask(&mut breaker, &bob(), Shown::Fails, start), Turn::All);
    let now = start + PAUSE_FIRST;
    assert_eq!(breaker.shut(&alice(), now), Some(Shut::Paused(now + PAUSE_FIRST)), "others first");
    assert_eq!(breaker.shut(&bob(), now), None);
    let now = now + PAUSE_FIRST;
    let suspected = trial(&mut breaker, &alice(), now);
    assert_eq!(breaker.shut(&bob(), now), Some(Shut::Tried(now + PAUSE_MAX)));
    breaker.record(&suspected, Shown::Fails, now);
    assert_eq!(breaker.shut(&alice(), now), Some(Shut::Paused(now + PAUSE_FIRST * 2)));
    let fair = trial(&mut breaker, &bob(), now);
    breaker.record(&fair, Shown::Works, now);
    assert_eq!(breaker.shut(&bob(), now), None);
    assert!(breaker.shut(&alice(), now).is_some(), "its own asks still fail");
}

#[test]
fn a_trial_that_was_given_up_leaves_room_for_the_next() {
    let now = Instant::now() + SECOND;
    let mut breaker = opened(now - SECOND);
    let admitted = trial(&mut breaker, &alice(), now);
    breaker.record(&admitted, Shown::Nothing, now);
    trial(&mut breaker, &bob(), now);
}

#[test]
fn a_trial_that_hangs_is_followed_by_another() {
    let mut now = Instant::now() + SECOND;
    let mut breaker = opened(now - SECOND);
    let hangs = trial(&mut breaker, &alice(), now);
    assert!(breaker.shut(&bob(), now + PAUSE_MAX - Duration::from_millis(1)).is_some());
    now += PAUSE_MAX;
    let next = trial(&mut breaker, &bob(), now);
    breaker.record(&hangs, Shown::Fails, now);
    assert_eq!(breaker.shut("carol", now), Some(Shut::Tried(now + PAUSE_MAX)), "still under way");
    breaker.record(&next, Shown::Fails, now);
    let until = now + 2 * SECOND;
    assert_eq!(breaker.shut("carol", now), Some(Shut::Paused(until)), "it has doubled once");
    breaker.record(&hangs, Shown::Works, now);
    assert_eq!(breaker.shut("carol", now), None, "an answer is one, however late");
}

#[test]
fn failures_of_before_do_not_lengthen_the_pause() {
    let now = Instant::now();
    let mut breaker = Breaker::default();
    let late = admit(&mut breaker, &alice(), now);
    fail(&mut breaker, 5, Shown::IsAway, now);
    breaker.record(&late, Shown::IsAway, now);
    trial(&mut breaker, &alice(), now + SECOND);
}

/// Principals of the properties; the first one's questions are what a backend fails on.
const PAYERS: [&str; 3] = ["alice", "bob", "carol"];

proptest! {
    /// In every history, also when no trial is ever heard of again: one is let through at a time, a
    /// suspect's failure keeps nobody else out, and nobody is shut out for longer than the longest
    /// pause and a second.
    #[test]
    fn it_never_stays_shut(
        steps in proptest::collection::vec(
            (0_u64..40_000, 0_u8..7, 0_usize..3, any::<prop::sample::Index>()), 1..200)
    ) {
        let mut now = Instant::now();
        let mut breaker = Breaker::default();
        let payers = PAYERS.map(Arc::<str>::from);
        let mut under_way: Vec<Admitted> = Vec::new();
        for (wait_ms, step, who, which) in steps {
            now += Duration::from_millis(wait_ms);
            let shown = [Shown::Works, Shown::Fails, Shown::IsAway, Shown::Nothing];
            if let Some(shown) = shown.get(usize::from(step)) {
                if !under_way.is_empty() {
                    let admitted = under_way.swap_remove(which.index(under_way.len()));
                    let suspects = breaker.open.as_ref().map(|open| open.suspects.clone());
                    let is_suspect = suspects.is_some_and(|all| all.contains(&admitted.payer));
                    let was_tried = breaker.open.as_ref().is_some_and(|open| open.pause.is_trial(&admitted));
                    breaker.record(&admitted, *shown, now);
                    if was_tried && *shown == Shown::Fails && is_suspect {
                        let all = breaker.open.as_ref().and_then(|open| open.pause.shut(now));
                        prop_assert_eq!(all, None, "others may try at once");
                    }
                }
            } else if step == 4 {
                breaker.is_away(now);
            } else if let Ok(admitted) = breaker.admit(&payers[who], now) {
                if breaker.open.is_some() {
                    prop_assert!(admitted.is_trial());
                    for payer in &payers {
                        prop_assert!(breaker.admit(payer, now).is_err(), "one at a time");
                    }
                }
                under_way.push(admitted);
            }
            for payer in &payers {
                prop_assert_eq!(breaker.shut(payer, now + PAUSE_MAX + PAUSE_FIRST), None);
            }
        }
    }

    /// Requests of alice fail, and the backend works: asks of others are answered, all of them,
    /// where those that meet a trial wait for what it shows.
    #[test]
    fn nobody_pays_for_the_questions_of_another(
        asks in proptest::collection::vec((0_u64..3000, 0_usize..3, 1_u64..20_000), 1..300),
        is_suspected in any::<bool>(),
    ) {
        let mut now = Instant::now();
        let mut breaker = Breaker::default();
        let payers = PAYERS.map(Arc::<str>::from);
        let mut under_way: BTreeMap<(Instant, usize), Admitted> = BTreeMap::new();
        let mut waiting: Vec<usize> = Vec::new();
        if is_suspected {
            // Something that others asked failed too, once.
            fail(&mut breaker, 4, Shown::Fails, now);
            ask(&mut breaker, &bob(), Shown::Fails, now);
            now += PAUSE_FIRST;
        }
        let mut number = 0;
        for (wait_ms, who, takes_ms) in asks {
            now += Duration::from_millis(wait_ms);
            let at = now;
            let mut comes = Vec::new();
            // What ends before goes first, and has those that wait for it look again.
            while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= at) {
                let ((ended, _), admitted) = entry.remove_entry();
                let shown = if *admitted.payer == *payers[0] { Shown::Fails } else { Shown::Works };
                breaker.record(&admitted, shown, ended);
                comes.extend(waiting.drain(..).map(|who| (who, ended)));
            }
            comes.push((who, at));
            for (who, when) in comes {
                match breaker.admit(&payers[who], when) {
                    Ok(admitted) => {
                        number += 1;
                        under_way.insert((when + Duration::from_millis(takes_ms), number), admitted);
                    }
                    Err(Shut::Tried(_)) => waiting.push(who),
                    Err(Shut::Paused(_)) => prop_assert_eq!(who, 0, "another than alice is held back"),
                }
            }
        }
    }
}
