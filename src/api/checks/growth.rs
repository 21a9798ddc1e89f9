//! Growth of stored bytes, from samples of the last day.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
const DAY: Duration = Duration::from_secs(86_400);
/// Interval between samples.
const STEP: Duration = Duration::from_secs(900);
/// Shortest time span from which a rate is computed.
const LEAST: Duration = Duration::from_secs(60);
const SAMPLES_MAX: usize = 96;

/// Stored bytes, sampled every 15 minutes.
#[derive(Debug, Default)]
pub struct Growth(Mutex<VecDeque<(Instant, u64)>>);

impl Growth {
    /// Adds a sample if the last one is at least `STEP` old.
    pub fn note(&self, now: Instant, stored: u64) {
        let mut samples = self.0.lock();
        if samples.back().is_some_and(|(at, _)| now.duration_since(*at) < STEP) {
            return;
        }
        if samples.len() == SAMPLES_MAX {
            samples.pop_front();
        }
        samples.push_back((now, stored));
    }

    /// Returns the growth in bytes per day and the time span that it is based on: the last day, or the time
    /// since the start. `None` if that is shorter than `LEAST`.
    pub fn a_day(&self, now: Instant, stored: u64) -> Option<(i64, Duration)> {
        let samples = self.0.lock();
        let (at, then) = *samples.front()?;
        let span = now.duration_since(at);
        let more = i128::from(stored) - i128::from(then);
        let a_day = more * DAY.as_millis() as i128 / (span.as_millis() as i128).max(1);
        (span >= LEAST).then(|| (i64::try_from(a_day).unwrap_or(i64::MAX), span))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_that_of_the_last_day_and_none_without_time() {
        let (growth, start) = (Growth::default(), Instant::now());
        assert_eq!(growth.a_day(start, 5), None, "no sample");
        growth.note(start, 1000);
        assert_eq!(growth.a_day(start + Duration::from_secs(59), 2000), None);
        let hour = Duration::from_secs(3600);
        assert_eq!(growth.a_day(start + hour, 1100), Some((2400, hour)));
        assert_eq!(growth.a_day(start + hour, 900), Some((-2400, hour)));
        // Two days at one rate and a third at another: the first samples have been dropped.
        for quarter in 1..=3 * 96_u32 {
            let stored = 1000 + u64::from(quarter.saturating_sub(2 * 96));
            growth.note(start + STEP * quarter, stored);
            growth.note(start + STEP * quarter + hour / 8, 0);
        }
        let now = start + STEP * 3 * 96;
        let (a_day, span) = growth.a_day(now, 1096).expect("a rate");
        assert!((95..=97).contains(&a_day) && span <= DAY, "{a_day} in {span:?}");
    }
}
