//! When a backend that keeps failing is left alone, and when it is tried again: a value, time comes in.
//!
//! Closed until five failures follow one another; then open, with one trial after each pause. A trial
//! that fails doubles the pause, one that succeeds closes it, and one that says nothing for as long
//! as the longest pause is followed by another.

use std::time::{Duration, Instant};

/// Failures on end that open it.
const FAILURES_MAX: u32 = 5;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);

/// May a request go out?
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admitted {
    /// As any other.
    Freely,
    /// As the one that shows whether the backend is back; trials are numbered.
    OnTrial(u32),
}

/// What a request showed about the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It works, whether or not the answer was of use.
    Works,
    /// It does not.
    Fails,
    /// Nothing: the request was given up too early to tell.
    Nothing,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    until: Instant,
    length: Duration,
    /// The trial under way, and when it is given up.
    trial: Option<(u32, Instant)>,
}

impl Pause {
    fn new(now: Instant, length: Duration) -> Pause {
        Pause { until: now + length, length, trial: None }
    }
}

/// One backend's breaker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    pause: Option<Pause>,
    trials: u32,
}

impl Breaker {
    /// `None` while the backend is left alone. Each admission is followed by one `record`.
    pub fn admit(&mut self, now: Instant) -> Option<Admitted> {
        let Some(pause) = &mut self.pause else { return Some(Admitted::Freely) };
        let until = pause.trial.map_or(pause.until, |(_, given_up)| given_up);
        if now < until {
            return None;
        }
        self.trials = self.trials.wrapping_add(1);
        // Its own time may be minutes, and the backend may be back long before.
        pause.trial = Some((self.trials, now + PAUSE_MAX));
        Some(Admitted::OnTrial(self.trials))
    }

    /// Takes in what an admitted request showed.
    pub fn record(&mut self, admitted: Admitted, shown: Shown, now: Instant) {
        if shown == Shown::Works {
            (self.failures, self.pause) = (0, None);
            return;
        }
        match &mut self.pause {
            None if shown == Shown::Fails => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES_MAX {
                    self.pause = Some(Pause::new(now, PAUSE_FIRST));
                }
            }
            Some(pause) => {
                // Those that were under way when it opened say nothing new, nor does a trial that
                // was given up.
                let is_the_trial =
                    pause.trial.is_some_and(|(number, _)| admitted == Admitted::OnTrial(number));
                if is_the_trial && shown == Shown::Fails {
                    *pause = Pause::new(now, PAUSE_MAX.min(pause.length * 2));
                } else if is_the_trial {
                    pause.trial = None;
                }
            }
            None => {}
        }
    }

    /// It is left alone, or on trial.
    pub fn is_open(&self) -> bool {
        self.pause.is_some()
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use proptest::prelude::*;

    use super::{Admitted, Breaker, FAILURES_MAX, PAUSE_MAX, Shown};

    const SECOND: Duration = Duration::from_secs(1);

    fn opened(now: Instant) -> Breaker {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            assert_eq!(breaker.admit(now), Some(Admitted::Freely));
            breaker.record(Admitted::Freely, Shown::Fails, now);
        }
        breaker
    }

    #[test]
    fn five_failures_on_end_open_it_and_a_success_between_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::default();
        for shown in [Shown::Fails; 4].into_iter().chain([Shown::Works]).chain([Shown::Fails; 4]) {
            assert_eq!(breaker.admit(now), Some(Admitted::Freely));
            breaker.record(Admitted::Freely, shown, now);
        }
        assert_eq!(breaker.admit(now), Some(Admitted::Freely));
        breaker.record(Admitted::Freely, Shown::Fails, now);
        assert_eq!(breaker.admit(now), None);
    }

    fn trial(breaker: &mut Breaker, now: Instant) -> Admitted {
        let admitted = breaker.admit(now).expect("a trial");
        assert!(matches!(admitted, Admitted::OnTrial(_)), "{admitted:?}");
        admitted
    }

    #[test]
    fn one_trial_after_each_pause_which_doubles_to_its_end() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
            let pause = SECOND * expected;
            assert_eq!(breaker.admit(now + pause - Duration::from_millis(1)), None, "{pause:?}");
            now += pause;
            let admitted = trial(&mut breaker, now);
            assert_eq!(breaker.admit(now), None, "one at a time");
            breaker.record(admitted, Shown::Fails, now);
        }
        now += PAUSE_MAX;
        let admitted = trial(&mut breaker, now);
        breaker.record(admitted, Shown::Works, now);
        assert!(!breaker.is_open());
        assert_eq!(breaker.admit(now), Some(Admitted::Freely));
    }

    #[test]
    fn a_trial_that_was_given_up_leaves_room_for_the_next() {
        let now = Instant::now() + SECOND;
        let mut breaker = opened(now - SECOND);
        let admitted = trial(&mut breaker, now);
        breaker.record(admitted, Shown::Nothing, now);
        trial(&mut breaker, now);
    }

    #[test]
    fn a_trial_that_hangs_is_followed_by_another() {
        let mut now = Instant::now() + SECOND;
        let mut breaker = opened(now - SECOND);
        let hangs = trial(&mut breaker, now);
        assert_eq!(breaker.admit(now + PAUSE_MAX - Duration::from_millis(1)), None);
        now += PAUSE_MAX;
        let next = trial(&mut breaker, now);
        breaker.record(hangs, Shown::Fails, now);
        assert_eq!(breaker.admit(now), None, "the next is still under way");
        breaker.record(next, Shown::Fails, now);
        assert_eq!(breaker.admit(now + SECOND), None, "the pause has doubled once");
        let last = trial(&mut breaker, now + 2 * SECOND);
        breaker.record(hangs, Shown::Works, now);
        assert!(!breaker.is_open(), "an answer is one, however late");
        breaker.record(last, Shown::Fails, now);
        assert!(!breaker.is_open());
    }

    #[test]
    fn failures_of_before_do_not_lengthen_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.record(Admitted::Freely, Shown::Fails, now);
        trial(&mut breaker, now + SECOND);
    }

    proptest! {
        /// Whatever happens, also when no trial is ever heard of again: one is let through at a
        /// time, and it is never shut for longer than the longest pause.
        #[test]
        fn it_never_stays_shut(
            steps in proptest::collection::vec((0_u64..40_000, 0_u8..6, any::<prop::sample::Index>()), 1..200)
        ) {
            let mut now = Instant::now();
            let mut breaker = Breaker::default();
            let mut under_way = Vec::new();
            let mut last_trial: Option<Instant> = None;
            for (wait_ms, step, which) in steps {
                now += Duration::from_millis(wait_ms);
                if let Some(shown) = [Shown::Works, Shown::Fails, Shown::Nothing].get(usize::from(step)) {
                    if !under_way.is_empty() {
                        let admitted = under_way.swap_remove(which.index(under_way.len()));
                        breaker.record(admitted, *shown, now);
                        last_trial = last_trial.filter(|_| !matches!(admitted, Admitted::OnTrial(_)));
                    }
                } else if let Some(admitted) = breaker.admit(now) {
                    if matches!(admitted, Admitted::OnTrial(_)) {
                        prop_assert!(last_trial.is_none_or(|since| now >= since + PAUSE_MAX));
                        prop_assert_eq!(breaker.admit(now), None);
                        last_trial = Some(now);
                    }
                    under_way.push(admitted);
                }
                if !breaker.is_open() {
                    last_trial = None;
                }
                prop_assert!(breaker.clone().admit(now + PAUSE_MAX).is_some());
            }
        }
    }
}
