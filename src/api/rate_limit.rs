//! Rate limits: token buckets for requests and for failed authentications.

use std::{collections::HashMap, net::IpAddr, num::NonZeroU32, time::Instant};

use super::prelude::*;
use crate::base::metrics::RefusalReason;
use parking_lot::Mutex;

/// Burst of failed authentications per address; one more is allowed per second.
pub const FAILURES_MAX: u32 = 20;
/// Maximum number of addresses with failures; beyond it, failures of further addresses are refused.
const ADDRESSES_MAX: usize = 4096;
const SECOND: Duration = Duration::from_secs(1);

/// Rate limits of the server; a limit that is `None` is off.
pub struct RateLimits {
    global: Option<Mutex<Bucket>>,
    per_second: Option<NonZeroU32>,
    principals: Mutex<HashMap<Principal, Bucket>>,
    failures: Mutex<Failures>,
}

/// Buckets of addresses with recent failed authentications.
#[derive(Debug, Default)]
struct Failures(HashMap<IpAddr, Bucket>);

impl RateLimits {
    /// Creates limits in requests per second: of all requests, and of each principal.
    pub fn new(global: Option<NonZeroU32>, principal: Option<NonZeroU32>) -> RateLimits {
        let now = Instant::now();
        RateLimits {
            global: global.map(|rate| Mutex::new(Bucket::full(rate, now))),
            per_second: principal,
            principals: Mutex::default(),
            failures: Mutex::default(),
        }
    }

    /// Counts a failed authentication of `address`, or refuses it.
    pub(super) fn of_failure(&self, address: IpAddr) -> ApiResult<()> {
        let mut failures = self.failures.lock();
        limited(RefusalReason::FailedAuthentications, failures.take(address, Instant::now()))
    }

    pub(super) fn of_all(&self) -> ApiResult<()> {
        let Some(bucket) = &self.global else { return Ok(()) };
        let taken = bucket.lock().take(Instant::now());
        limited(RefusalReason::GlobalRate, taken)
    }

    /// Returns a token to the global bucket after a refusal by the caller's own limit.
    pub(super) fn give_back(&self, refusal: RefusalReason) {
        let is_own =
            matches!(refusal, RefusalReason::PrincipalRate | RefusalReason::FailedAuthentications);
        if let Some(bucket) = self.global.as_ref().filter(|_| is_own) {
            bucket.lock().give_back();
        }
    }

    /// Counts a request of `principal`, or refuses it. The number of principals is bounded by that of keys.
    pub(super) fn of_principal(&self, principal: &Principal) -> ApiResult<()> {
        let Some(rate) = self.per_second else { return Ok(()) };
        let now = Instant::now();
        let mut principals = self.principals.lock();
        let bucket = principals.entry(principal.clone()).or_insert(Bucket::full(rate, now));
        limited(RefusalReason::PrincipalRate, bucket.take(now))
    }
}

impl Failures {
    fn take(&mut self, address: IpAddr, now: Instant) -> Result<(), Duration> {
        if self.0.len() >= ADDRESSES_MAX && !self.0.contains_key(&address) {
            self.0.retain(|_, bucket| bucket.full_at > now);
            if self.0.len() >= ADDRESSES_MAX {
                return Err(SECOND);
            }
        }
        let fresh = Bucket { step: SECOND, holds: SECOND * FAILURES_MAX, full_at: now };
        self.0.entry(address).or_insert(fresh).take(now)
    }
}

/// Converts the result of taking a token; the error is the time until the next one.
fn limited(of: RefusalReason, taken: Result<(), Duration>) -> ApiResult<()> {
    taken.map_err(|retry_after| ApiError::RateLimited { of, retry_after })
}

/// Returns the message of a refusal by the limit `of`: whose it is, and what to do.
pub(super) fn exceeded(of: RefusalReason) -> &'static str {
    match of {
        RefusalReason::PrincipalRate => {
            "your limit of requests a second is exceeded: retry after the seconds in Retry-After"
        }
        RefusalReason::FailedAuthentications => {
            "too many requests of your address failed to authenticate: retry after the seconds in \
             Retry-After, with a right key"
        }
        _ => {
            "the server's limit of requests a second, of all callers together, is exceeded: retry \
             after the seconds in Retry-After"
        }
    }
}

/// Token bucket stored as the time at which it is full; it is empty `holds` before that.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    step: Duration,
    holds: Duration,
    full_at: Instant,
}

impl Bucket {
    fn full(rate: NonZeroU32, now: Instant) -> Bucket {
        Bucket { step: SECOND / rate.get(), holds: SECOND, full_at: now }
    }

    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + self.step;
        let retry_after = full_at.saturating_duration_since(now + self.holds);
        if retry_after > Duration::ZERO {
            return Err(retry_after);
        }
        self.full_at = full_at;
        Ok(())
    }

    fn give_back(&mut self) {
        self.full_at = self.full_at.checked_sub(self.step).unwrap_or(self.full_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_holds_as_many_requests_as_the_limit() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut bucket = Bucket::full(NonZeroU32::new(4).expect("positive"), start);
        let accepted =
            |bucket: &mut Bucket, ms| (0..9).filter(|_| bucket.take(at(ms)).is_ok()).count();
        let found = [0, 10, 250, 500, 2000].map(|ms| accepted(&mut bucket, ms));
        assert_eq!(found, [4, 0, 1, 1, 4]);
        assert_eq!(bucket.take(at(2000)), Err(Duration::from_millis(250)));
        bucket.give_back();
        assert_eq!(accepted(&mut bucket, 2000), 1, "what is given back is there again");
    }

    #[test]
    fn a_refusal_says_whose_limit_is_exceeded() {
        for (of, told) in [
            (RefusalReason::PrincipalRate, "your limit of requests"),
            (RefusalReason::GlobalRate, "of all callers together"),
            (RefusalReason::FailedAuthentications, "of your address"),
        ] {
            let text = limited(of, Err(SECOND)).expect_err("refused").to_string();
            assert!(text.contains(told) && text.contains("Retry-After"), "{text}");
        }
    }

    #[test]
    fn an_address_fails_twenty_times_and_then_once_a_second_and_they_are_bounded() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let address = |number: u32| IpAddr::from(number.to_be_bytes());
        let mut failures = Failures::default();
        let failed = |failures: &mut Failures, number, ms| {
            (0..50).filter(|_| failures.take(address(number), at(ms)).is_ok()).count()
        };
        let found = [0, 999, 1000, 4500, 60_000].map(|ms| failed(&mut failures, 1, ms));
        assert_eq!(found, [20, 0, 1, 3, 20]);
        assert_eq!(failed(&mut failures, 2, 60_000), 20, "each address has its own");
        let last = u32::try_from(ADDRESSES_MAX).expect("few") + 3;
        for number in 3..last {
            failed(&mut failures, number, 60_000);
        }
        assert_eq!(failures.0.len(), ADDRESSES_MAX);
        assert_eq!(failed(&mut failures, last, 60_001), 0, "there is no room");
        assert_eq!(failed(&mut failures, last, 90_000), 20, "what is full again is forgotten");
        assert_eq!(failures.0.len(), 1);
    }
}
