//! Retry-after state of a backend. Pure: callers pass `now`.
//!
//! Promises that no later value shortens the wait, and that the waiters are released one after the other: the
//! first one receives a new retry-after before all have sent.

use std::time::{Duration, Instant};

/// Longest wait that is enforced: a backend that asks for a day would be out of service for a day.
const HELD_MAX: Duration = Duration::from_secs(60);
/// Longest wait that is reported: no caller waits longer, and clock arithmetic stays in range.
pub(crate) const ASKED_MAX: Duration = Duration::from_secs(86_400);
/// Time between two waiters; a refusal arrives sooner.
const SLOT: Duration = Duration::from_millis(25);
/// Slots before the count restarts at zero, so that no waiter is released much later.
const SLOTS_MAX: u32 = 64;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryAfterState {
    /// End of the enforced wait.
    until: Option<Instant>,
    /// End of the wait that the backend asked for.
    asked_until: Option<Instant>,
    slots: u32,
}

impl RetryAfterState {
    /// Records that the backend asked for the delay `asked`.
    pub fn extend(&mut self, now: Instant, asked: Duration) {
        let until = Some(now + HELD_MAX.min(asked));
        if self.until < until {
            (self.until, self.slots) = (until, 0);
        }
        self.asked_until = self.asked_until.max(Some(now + ASKED_MAX.min(asked)));
    }

    /// Returns the time until the requested end; `None` if the backend accepts requests.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let is_kept = self.until? > now;
        is_kept.then_some(self.asked_until?.saturating_duration_since(now))
    }

    /// Returns the time until the next waiter may send; each call takes a slot.
    pub fn next_slot(&mut self, now: Instant) -> Option<Duration> {
        let slot = self.left(now)? + SLOT * self.slots;
        self.slots = (self.slots + 1) % SLOTS_MAX;
        Some(slot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whoever_waits_goes_in_turn_after_the_rest() {
        let now = Instant::now();
        let mut state = RetryAfterState::default();
        assert_eq!((state.left(now), state.next_slot(now)), (None, None));
        let asked = Duration::from_secs(2);
        state.extend(now, asked);
        let slots = [(); 3].map(|()| state.next_slot(now).expect("it rests"));
        assert_eq!(slots, [asked, asked + SLOT, asked + SLOT * 2]);
        assert_eq!(state.next_slot(now + asked), None, "it is over");
    }

    #[test]
    fn a_rest_of_a_day_is_told_and_kept_for_a_minute() {
        let now = Instant::now();
        for asked in [ASKED_MAX, Duration::MAX] {
            let mut state = RetryAfterState::default();
            state.extend(now, asked);
            assert_eq!(state.left(now), Some(ASKED_MAX), "{asked:?}");
            assert_eq!(state.left(now + HELD_MAX), None, "{asked:?}");
        }
    }

    proptest! {
        /// The end only moves later, is never enforced for longer than the longest wait, and no waiter is
        /// released before it.
        #[test]
        fn no_wish_shortens_a_rest(
            steps in proptest::collection::vec((0_u64..5000, 0_u64..200_000, any::<bool>()), 1..100)
        ) {
            let mut now = Instant::now();
            let (mut state, mut kept, mut asked_until) = (RetryAfterState::default(), now, now);
            for (wait_ms, wish_ms, waits) in steps {
                now += Duration::from_millis(wait_ms);
                if waits {
                    let slot = state.next_slot(now);
                    prop_assert_eq!(slot.is_some(), kept > now);
                    prop_assert!(slot.is_none_or(|slot| now + slot >= asked_until));
                    prop_assert!(slot.is_none_or(|slot| now + slot < asked_until + SLOT * SLOTS_MAX));
                } else {
                    let asked = Duration::from_millis(wish_ms);
                    state.extend(now, asked);
                    kept = kept.max(now + asked.min(HELD_MAX));
                    asked_until = asked_until.max(now + asked);
                }
                let left = (kept > now).then(|| asked_until - now);
                prop_assert_eq!(state.left(now), left);
                prop_assert!(kept <= now + HELD_MAX);
            }
        }
    }
}
