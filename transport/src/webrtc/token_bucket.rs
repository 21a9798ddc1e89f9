//! Token bucket with burst and rate. Pure: callers pass `now`.

use std::time::Instant;

#[derive(Clone, Copy, Debug)]
pub(super) struct BucketRate {
    /// Capacity, in tokens.
    pub(super) burst: f32,
    /// Refill, in tokens per second.
    pub(super) a_second: f32,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TokenBucket {
    tokens: f32,
    at: Instant,
}

impl TokenBucket {
    pub(super) fn full(rate: BucketRate, now: Instant) -> TokenBucket {
        TokenBucket { tokens: rate.burst, at: now }
    }

    /// Returns true if `cost` tokens are available at `now`.
    pub(super) fn has(&mut self, cost: f32, rate: BucketRate, now: Instant) -> bool {
        let since = now.saturating_duration_since(self.at).as_secs_f32();
        self.tokens = (self.tokens + since * rate.a_second).min(rate.burst);
        self.at = self.at.max(now);
        self.tokens >= cost
    }

    /// Takes `cost` tokens; takes none and returns false if there are too few.
    pub(super) fn try_consume(&mut self, cost: f32, rate: BucketRate, now: Instant) -> bool {
        let has = self.has(cost, rate, now);
        if has {
            self.tokens -= cost;
        }
        has
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_bucket_gives_a_burst_and_then_its_rate() {
        let rate = BucketRate { burst: 10.0, a_second: 100.0 };
        let now = Instant::now();
        let mut bucket = TokenBucket::full(rate, now);
        let mut taken =
            |at: Instant| (0..1000).take_while(|_| bucket.try_consume(1.0, rate, at)).count();
        assert_eq!(taken(now), 10);
        assert_eq!(taken(now + Duration::from_millis(55)), 5);
        assert_eq!(taken(now + Duration::from_secs(9)), 10, "no more than a burst is saved");
        assert_eq!(taken(now), 0, "a clock that goes back gives nothing");
    }
}
