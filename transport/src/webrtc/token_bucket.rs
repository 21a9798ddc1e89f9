//! Token buckets with burst and rate, and a table of them by source of requests with a wrong signature. Pure:
//! callers pass `now`.
//!
//! Each such request costs an HMAC, so a source that keeps failing is blocked. Requests for unknown users
//! cost one table look-up and are not counted: many clients share an address, and anyone can forge one.
//! Sources share a bucket if their keyed hashes collide; the table never grows.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Instant,
};

use crate::connection_limit::network;

/// Number of buckets; of a thousand sources, about one in five shares its bucket.
const BUCKETS: usize = 4096;
/// Failed requests allowed per source: a client with twenty candidate pairs and an outdated password sends as
/// many in two seconds.
const FAILURES: BucketRate = BucketRate { burst: 200.0, a_second: 20.0 };

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

/// Token buckets of failed requests by source.
pub(super) struct AuthFailureLimiter {
    keys: RandomState,
    buckets: Box<[TokenBucket]>,
}

impl AuthFailureLimiter {
    pub(super) fn new(now: Instant) -> AuthFailureLimiter {
        let buckets = vec![TokenBucket::full(FAILURES, now); BUCKETS].into();
        AuthFailureLimiter { keys: RandomState::new(), buckets }
    }

    fn bucket(&mut self, source: IpAddr) -> &mut TokenBucket {
        let at = self.keys.hash_one(network(source)) as usize % BUCKETS;
        &mut self.buckets[at]
    }

    /// Returns true if a request from `source` may be checked.
    pub(super) fn allows(&mut self, source: IpAddr, now: Instant) -> bool {
        self.bucket(source).has(1.0, FAILURES, now)
    }

    /// Charges a failed request to `source`.
    pub(super) fn failed(&mut self, source: IpAddr, now: Instant) {
        // `allows` found a token before; if none is left, none can be taken.
        self.bucket(source).try_consume(1.0, FAILURES, now);
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

    #[test]
    fn a_source_that_fails_is_cut_off_and_comes_back() {
        for (name, bad, same) in [
            ("a /64", "2001:db8::1", "2001:db8::ffff:1"),
            ("a mapped address", "192.0.2.1", "::ffff:192.0.2.1"),
        ] {
            let now = Instant::now();
            let mut sources = AuthFailureLimiter::new(now);
            let [bad, same]: [IpAddr; 2] =
                [bad, same].map(|text| text.parse().expect("an address"));
            for _ in 0..FAILURES.burst as usize {
                assert!(sources.allows(bad, now), "{name}");
                sources.failed(bad, now);
            }
            assert!(!sources.allows(bad, now), "{name}");
            assert!(!sources.allows(same, now), "{name} is one source");
            assert!(sources.allows(bad, now + Duration::from_secs(1)), "{name}");
        }
    }
}
