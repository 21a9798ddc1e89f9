//! When a backend that keeps failing is left alone, and when it is tried again: a value, time comes in.
//!
//! Closed until five failures follow one another; then open, with one trial after each pause. A trial
//! that fails doubles the pause, one that succeeds closes it.

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
    /// As the one that shows whether the backend is back.
    OnTrial,
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
    on_trial: bool,
}

/// One backend's breaker.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Breaker {
    failures: u32,
    pause: Option<Pause>,
}

impl Breaker {
    /// `None` while the backend is left alone. Each admission is followed by one `record`.
    pub fn admit(&mut self, now: Instant) -> Option<Admitted> {
        match &mut self.pause {
            None => Some(Admitted::Freely),
            Some(pause) if pause.on_trial || now < pause.until => None,
            Some(pause) => {
                pause.on_trial = true;
                Some(Admitted::OnTrial)
            }
        }
    }

    /// Takes in what an admitted request showed.
    pub fn record(&mut self, admitted: Admitted, shown: Shown, now: Instant) {
        match (shown, &mut self.pause) {
            (Shown::Works, _) => *self = Breaker::default(),
            (Shown::Nothing, None) => {}
            (Shown::Nothing, Some(pause)) => {
                if admitted == Admitted::OnTrial {
                    pause.on_trial = false;
                }
            }
            (Shown::Fails, None) => {
                self.failures = self.failures.saturating_add(1);
                if self.failures >= FAILURES_MAX {
                    let length = PAUSE_FIRST;
                    self.pause = Some(Pause { until: now + length, length, on_trial: false });
                }
            }
            (Shown::Fails, Some(pause)) => {
                // Those that were under way when it opened say nothing new.
                if admitted == Admitted::OnTrial {
                    let length = PAUSE_MAX.min(pause.length * 2);
                    *pause = Pause { until: now + length, length, on_trial: false };
                }
            }
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

    #[test]
    fn one_trial_after_each_pause_which_doubles_to_its_end() {
        let mut now = Instant::now();
        let mut breaker = opened(now);
        for expected in [1, 2, 4, 8, 16, 30, 30, 30] {
            let pause = SECOND * expected;
            assert_eq!(breaker.admit(now + pause - Duration::from_millis(1)), None, "{pause:?}");
            now += pause;
            assert_eq!(breaker.admit(now), Some(Admitted::OnTrial), "{pause:?}");
            assert_eq!(breaker.admit(now), None, "one at a time");
            breaker.record(Admitted::OnTrial, Shown::Fails, now);
        }
        now += PAUSE_MAX;
        assert_eq!(breaker.admit(now), Some(Admitted::OnTrial));
        breaker.record(Admitted::OnTrial, Shown::Works, now);
        assert!(!breaker.is_open());
        assert_eq!(breaker.admit(now), Some(Admitted::Freely));
    }

    #[test]
    fn a_trial_that_was_given_up_leaves_room_for_the_next() {
        let now = Instant::now() + SECOND;
        let mut breaker = opened(now - SECOND);
        assert_eq!(breaker.admit(now), Some(Admitted::OnTrial));
        breaker.record(Admitted::OnTrial, Shown::Nothing, now);
        assert_eq!(breaker.admit(now), Some(Admitted::OnTrial));
    }

    #[test]
    fn failures_of_before_do_not_lengthen_the_pause() {
        let now = Instant::now();
        let mut breaker = opened(now);
        breaker.record(Admitted::Freely, Shown::Fails, now);
        assert_eq!(breaker.admit(now + SECOND), Some(Admitted::OnTrial));
    }

    proptest! {
        /// Whatever happens, there is never more than one trial, and the longest pause ends it.
        #[test]
        fn it_never_stays_shut(steps in proptest::collection::vec((0_u64..40_000, 0_u8..3), 1..200)) {
            let mut now = Instant::now();
            let mut breaker = Breaker::default();
            for (wait_ms, outcome) in steps {
                now += Duration::from_millis(wait_ms);
                if let Some(admitted) = breaker.admit(now) {
                    if admitted == Admitted::OnTrial {
                        prop_assert_eq!(breaker.admit(now), None);
                    }
                    let shown = [Shown::Works, Shown::Fails, Shown::Nothing][usize::from(outcome)];
                    breaker.record(admitted, shown, now);
                }
                prop_assert!(breaker.clone().admit(now + PAUSE_MAX).is_some());
            }
        }
    }
}
