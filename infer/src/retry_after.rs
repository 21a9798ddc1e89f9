//! Retry-after of a backend: a value, time comes in.
//!
//! Promises that no later wish shortens a rest, and that those who waited it out are let go one
//! after the other: the first learns of another rest before all have asked.

use std::time::{Duration, Instant};

/// Longest rest that is kept: a backend that asks for a day would be out of service for a day.
const REST_MAX: Duration = Duration::from_secs(60);
/// Longest rest that is told: beyond it nobody waits, and clocks end somewhere.
const TOLD_MAX: Duration = Duration::from_secs(86_400);
/// Time between two that waited: a refusal comes back in less.
const TURN: Duration = Duration::from_millis(25);
/// Turns until they begin anew, so that nobody waits long after the rest.
const TURNS_MAX: u32 = 64;

/// Retry-after of one backend.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rest {
    /// It is kept until then.
    until: Option<Instant>,
    /// It was asked for until then.
    told: Option<Instant>,
    turns: u32,
}

impl Rest {
    /// The backend asked for `wish`.
    pub fn prolong(&mut self, now: Instant, wish: Duration) {
        let until = Some(now + REST_MAX.min(wish));
        if self.until < until {
            (self.until, self.turns) = (until, 0);
        }
        self.told = self.told.max(Some(now + TOLD_MAX.min(wish)));
    }

    /// Time until the end that was asked for; `None` when the backend can be asked.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let is_kept = self.until? > now;
        is_kept.then_some(self.told?.saturating_duration_since(now))
    }

    /// Time until whoever waits for its end may look again; each call takes a turn.
    pub fn turn(&mut self, now: Instant) -> Option<Duration> {
        let turn = self.left(now)? + TURN * self.turns;
        self.turns = (self.turns + 1) % TURNS_MAX;
        Some(turn)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn whoever_waits_goes_in_turn_after_the_rest() {
        let now = Instant::now();
        let mut rest = Rest::default();
        assert_eq!((rest.left(now), rest.turn(now)), (None, None));
        let wish = Duration::from_secs(2);
        rest.prolong(now, wish);
        let turns = [(); 3].map(|()| rest.turn(now).expect("it rests"));
        assert_eq!(turns, [wish, wish + TURN, wish + TURN * 2]);
        assert_eq!(rest.turn(now + wish), None, "it is over");
    }

    #[test]
    fn a_rest_of_a_day_is_told_and_kept_for_a_minute() {
        let now = Instant::now();
        for wish in [TOLD_MAX, Duration::MAX] {
            let mut rest = Rest::default();
            rest.prolong(now, wish);
            assert_eq!(rest.left(now), Some(TOLD_MAX), "{wish:?}");
            assert_eq!(rest.left(now + REST_MAX), None, "{wish:?}");
        }
    }

    proptest! {
        /// The end of a rest only moves away, it is never kept for longer than the longest, and
        /// nobody who waits looks before its end.
        #[test]
        fn no_wish_shortens_a_rest(
            steps in proptest::collection::vec((0_u64..5000, 0_u64..200_000, any::<bool>()), 1..100)
        ) {
            let mut now = Instant::now();
            let (mut rest, mut kept, mut told) = (Rest::default(), now, now);
            for (wait_ms, wish_ms, waits) in steps {
                now += Duration::from_millis(wait_ms);
                if waits {
                    let turn = rest.turn(now);
                    prop_assert_eq!(turn.is_some(), kept > now);
                    prop_assert!(turn.is_none_or(|turn| now + turn >= told));
                    prop_assert!(turn.is_none_or(|turn| now + turn < told + TURN * TURNS_MAX));
                } else {
                    let wish = Duration::from_millis(wish_ms);
                    rest.prolong(now, wish);
                    (kept, told) = (kept.max(now + wish.min(REST_MAX)), told.max(now + wish));
                }
                let left = (kept > now).then(|| told - now);
                prop_assert_eq!(rest.left(now), left);
                prop_assert!(kept <= now + REST_MAX);
            }
        }
    }
}
