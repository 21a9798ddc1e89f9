//! Rate limits: token buckets that hold one second of requests.

use std::{
    collections::HashMap,
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::error::ApiError;
use crate::{config::Principal, metrics::Refusal};

/// The limits of the server; a limit that is `None` is off.
pub struct Rates {
    global: Option<Mutex<Bucket>>,
    per_second: Option<NonZeroU32>,
    principals: Mutex<HashMap<Principal, Bucket>>,
}

impl Rates {
    /// Limits on all requests and on those of each principal, a second.
    pub fn new(global: Option<NonZeroU32>, principal: Option<NonZeroU32>) -> Rates {
        let now = Instant::now();
        Rates {
            global: global.map(|rate| Mutex::new(Bucket::full(rate, now))),
            per_second: principal,
            principals: Mutex::default(),
        }
    }

    /// Counts a request of anybody.
    pub(super) fn of_all(&self) -> Result<(), ApiError> {
        let Some(bucket) = &self.global else { return Ok(()) };
        let taken = bucket.lock().unwrap_or_else(PoisonError::into_inner).take(Instant::now());
        limited(Refusal::GlobalRate, taken)
    }

    /// Counts a request of `principal`; there are no more of them than keys.
    pub(super) fn of_principal(&self, principal: &Principal) -> Result<(), ApiError> {
        let Some(rate) = self.per_second else { return Ok(()) };
        let now = Instant::now();
        let mut principals = self.principals.lock().unwrap_or_else(PoisonError::into_inner);
        let bucket = principals.entry(principal.clone()).or_insert(Bucket::full(rate, now));
        limited(Refusal::PrincipalRate, bucket.take(now))
    }
}

/// What `taken` from a bucket means for a request: an error is the time until there is more.
fn limited(of: Refusal, taken: Result<(), Duration>) -> Result<(), ApiError> {
    taken.map_err(|retry_after| ApiError::RateLimited { of, retry_after })
}

/// A bucket as the time at which it would be full again; it is empty one second before that.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    step: Duration,
    full_at: Instant,
}

impl Bucket {
    fn full(rate: NonZeroU32, now: Instant) -> Bucket {
        Bucket { step: Duration::from_secs(1) / rate.get(), full_at: now }
    }

    fn take(&mut self, now: Instant) -> Result<(), Duration> {
        let full_at = self.full_at.max(now) + self.step;
        let retry_after = full_at.saturating_duration_since(now + Duration::from_secs(1));
        if retry_after > Duration::ZERO {
            return Err(retry_after);
        }
        self.full_at = full_at;
        Ok(())
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
    }
}
