//! Exponential back-off with jitter. Pure: returns the delay for a failure count.

use std::time::Duration;

/// Returns a random number for [`Backoff::delay`].
pub fn jitter() -> u32 {
    u32::from_ne_bytes(crate::base::random_bytes())
}

/// Delays that grow by a factor up to a maximum, with jitter so that callers do not retry in step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    /// Delay after the first failure.
    pub first: Duration,
    /// Factor between one delay and the next.
    pub factor: u32,
    /// Maximum delay before jitter.
    pub longest: Duration,
}

impl Backoff {
    /// Returns the delay after `failures` consecutive failures (at least 1); `jitter` is a random number.
    ///
    /// The result is between 75 % and 125 % of the exact delay.
    pub fn delay(self, failures: u32, jitter: u32) -> Duration {
        self.exact(failures).mul_f64(0.75 + 0.5 * f64::from(jitter) / f64::from(u32::MAX))
    }

    /// Returns the delay after `failures` consecutive failures without jitter, for a single caller.
    pub fn exact(self, failures: u32) -> Duration {
        let factor = self.factor.saturating_pow(failures.saturating_sub(1));
        self.first.saturating_mul(factor).min(self.longest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_the_longest_and_are_spread() {
        let secs = Duration::from_secs;
        let backoff = Backoff { first: secs(4), factor: 3, longest: secs(60) };
        let table = [(0, 4), (1, 4), (2, 12), (3, 36), (4, 60), (40, 60), (u32::MAX, 60)];
        for (failures, expected) in table {
            let (least, most) = (backoff.delay(failures, 0), backoff.delay(failures, u32::MAX));
            assert_eq!(least, secs(expected) * 3 / 4, "{failures}");
            assert_eq!(most, secs(expected) * 5 / 4, "{failures}");
        }
    }
}
