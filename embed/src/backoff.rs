//! Exponential back-off after a sidecar's failures. Pure: callers pass the time.

use std::time::{Duration, Instant};

/// Exponential back-off: the wait doubles with each failure; a success resets it.
#[derive(Clone, Copy, Debug)]
pub struct Backoff {
    shortest: Duration,
    next: Duration,
    until: Option<Instant>,
}

impl Backoff {
    /// Wait after the first failure.
    pub const SHORTEST: Duration = Duration::from_millis(100);
    /// Longest wait.
    pub const LONGEST: Duration = Duration::from_secs(5);

    /// Creates a back-off without failures; the wait after the first one is `shortest`.
    pub fn starting_with(shortest: Duration) -> Backoff {
        Backoff { shortest, next: shortest, until: None }
    }

    /// Returns true while the back-off lasts: nothing may be tried at `now`.
    pub fn holds(&self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    /// Records a failure: starts the wait at `now` and doubles the next one, up to [`Backoff::LONGEST`].
    pub fn failed(&mut self, now: Instant) {
        self.until = Some(now + self.next);
        self.next = (self.next * 2).min(Backoff::LONGEST);
    }

    /// Records a success: ends the wait and resets the next one to the shortest.
    pub fn worked(&mut self) {
        *self = Backoff::starting_with(self.shortest);
    }
}

impl Default for Backoff {
    fn default() -> Backoff {
        Backoff::starting_with(Backoff::SHORTEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_over() {
        let zero = Instant::now();
        let mut backoff = Backoff::default();
        assert!(!backoff.holds(zero));
        for wait_ms in [100, 200, 400, 800, 1600, 3200, 5000, 5000] {
            backoff.failed(zero);
            let until = zero + Duration::from_millis(wait_ms);
            assert!(backoff.holds(until - Duration::from_nanos(1)), "{wait_ms}");
            assert!(!backoff.holds(until), "{wait_ms}");
        }
        backoff.worked();
        assert!(!backoff.holds(zero));
        backoff.failed(zero);
        assert!(!backoff.holds(zero + Backoff::SHORTEST));
    }
}
