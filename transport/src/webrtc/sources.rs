//! How many requests that prove nothing a source may send: token buckets in a table of fixed size.
//!
//! A check from an address that no session knows costs an HMAC, so a source that keeps failing is
//! cut off. Sources share a bucket when their keyed hashes meet; the table never grows.

use std::{
    hash::{BuildHasher, RandomState},
    net::IpAddr,
    time::Instant,
};

/// Buckets; two sources of a thousand meet in one bucket in one case of eight.
const BUCKETS: usize = 4096;
/// Failed requests that a source may send at once: a client with twenty candidate pairs and the
/// credentials of a session that has just ended sends as many in two seconds.
const BURST: f32 = 200.0;
/// Failed requests a second that it gets back.
const A_SECOND: f32 = 20.0;

/// The buckets.
pub(super) struct Sources {
    keys: RandomState,
    buckets: Box<[Bucket]>,
}

#[derive(Clone, Copy)]
struct Bucket {
    tokens: f32,
    at: Instant,
}

impl Sources {
    /// Full buckets.
    pub(super) fn new(now: Instant) -> Sources {
        let full = Bucket { tokens: BURST, at: now };
        Sources { keys: RandomState::new(), buckets: vec![full; BUCKETS].into() }
    }

    fn bucket(&mut self, source: IpAddr, now: Instant) -> &mut Bucket {
        // One host has a whole /64 of IPv6.
        let name: u64 = match source.to_canonical() {
            IpAddr::V4(ip) => u64::from(ip.to_bits()),
            IpAddr::V6(ip) => (ip.to_bits() >> 64) as u64,
        };
        let at = self.keys.hash_one((source.to_canonical().is_ipv4(), name)) as usize % BUCKETS;
        let bucket = &mut self.buckets[at];
        let since = now.saturating_duration_since(bucket.at).as_secs_f32();
        bucket.tokens = (bucket.tokens + since * A_SECOND).min(BURST);
        bucket.at = bucket.at.max(now);
        bucket
    }

    /// Whether a request from `source` may still be looked at.
    pub(super) fn allows(&mut self, source: IpAddr, now: Instant) -> bool {
        self.bucket(source, now).tokens >= 1.0
    }

    /// A request from `source` proved nothing.
    pub(super) fn failed(&mut self, source: IpAddr, now: Instant) {
        let bucket = self.bucket(source, now);
        bucket.tokens = (bucket.tokens - 1.0).max(0.0);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_source_that_fails_is_cut_off_and_comes_back() {
        let now = Instant::now();
        let mut sources = Sources::new(now);
        let bad: IpAddr = "2001:db8::1".parse().expect("an address");
        let same_net: IpAddr = "2001:db8::ffff:1".parse().expect("an address");
        for _ in 0..BURST as usize {
            assert!(sources.allows(bad, now));
            sources.failed(bad, now);
        }
        assert!(!sources.allows(bad, now));
        assert!(!sources.allows(same_net, now), "a /64 is one source");
        let later = now + Duration::from_secs(1);
        assert!(sources.allows(bad, later));
    }

    #[test]
    fn a_mapped_address_is_the_same_source() {
        let now = Instant::now();
        let mut sources = Sources::new(now);
        let plain: IpAddr = "192.0.2.1".parse().expect("an address");
        let mapped: IpAddr = "::ffff:192.0.2.1".parse().expect("an address");
        (0..BURST as usize).for_each(|_| sources.failed(plain, now));
        assert!(!sources.allows(mapped, now));
    }
}
