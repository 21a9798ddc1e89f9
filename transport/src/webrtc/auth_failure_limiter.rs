//! Rate limit per source of requests with a wrong signature: token buckets in a table of fixed size.
//!
//! Each such request costs an HMAC, so a source that keeps failing is blocked. Requests for unknown users
//! cost one table look-up and are not counted: many clients share an address, and anyone can forge one.
//! Sources share a bucket if their keyed hashes collide; the table never grows.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Instant,
};

use super::token_bucket::{BucketRate, TokenBucket};

/// Number of buckets; of a thousand sources, about one in five shares its bucket.
const BUCKETS: usize = 4096;
/// Failed requests allowed per source: a client with twenty candidate pairs and an outdated password sends as
/// many in two seconds.
const FAILURES: BucketRate = BucketRate { burst: 200.0, a_second: 20.0 };

/// Token buckets by source.
pub(super) struct AuthFailureLimiter {
    keys: RandomState,
    buckets: Box<[TokenBucket]>,
}

impl AuthFailureLimiter {
    pub(super) fn new(now: Instant) -> AuthFailureLimiter {
        AuthFailureLimiter {
            keys: RandomState::new(),
            buckets: vec![TokenBucket::full(FAILURES, now); BUCKETS].into(),
        }
    }

    fn bucket(&mut self, source: IpAddr) -> &mut TokenBucket {
        // One host can use a whole /64 of IPv6.
        let name: u64 = match source.to_canonical() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        let at = self.keys.hash_one((source.to_canonical().is_ipv4(), name)) as usize % BUCKETS;
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
