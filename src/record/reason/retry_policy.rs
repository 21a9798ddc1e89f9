//! Retry policy for chunks whose backends are unavailable for a while.
//!
//! Pure: callers pass `now`. Recorded footage can wait, so a restart of a model server or a rate limit costs
//! a reasoning time but no chunk. Once no answer has come for the whole patience, nothing is retried until
//! one comes.

use std::time::{Duration, Instant};

use infer::{BackendError, FailureKind};
use parking_lot::Mutex;

use crate::base::backoff::Backoff;

/// Longest time for which one chunk is retried.
const CHUNK_PATIENCE: Duration = Duration::from_secs(600);
/// Delays before a chunk is retried.
const PAUSES: Backoff =
    Backoff { first: Duration::from_millis(250), factor: 2, longest: Duration::from_secs(5) };
/// Maximum retries if the request itself may be what makes the backend fail.
const SUSPECT_MAX: u32 = 2;

/// Retry policy of one reasoning, or of another series of requests.
pub struct RetryPolicy {
    patience: Duration,
    /// Time of the last answer, or of the first request.
    answered: Mutex<Option<Instant>>,
}

/// Chunk, or other request, without an answer.
#[derive(Clone, Copy, Debug)]
pub struct ChunkAttempt {
    pub chunk: u64,
    /// Number of retries so far.
    pub again: u32,
    /// Time of the first request.
    pub since: Instant,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Prospect {
    None,
    /// The request itself may make the backend fail.
    Suspect,
    /// The backend is unavailable or busy.
    Good,
}

impl RetryPolicy {
    /// Creates a policy that waits out outages of up to `patience`.
    pub fn new(patience: Duration) -> RetryPolicy {
        RetryPolicy { patience, answered: Mutex::new(None) }
    }

    pub fn answered(&self, now: Instant) {
        *self.answered.lock() = Some(now);
    }

    /// Returns the delay before `chunk` is retried after the failures `failed`; `None` to give it
    /// up.
    pub fn pause(
        &self,
        failed: &[BackendError],
        chunk: ChunkAttempt,
        now: Instant,
    ) -> Option<Duration> {
        let prospect = failed.iter().map(|one| prospect(&one.failure)).max()?;
        let answered = *self.answered.lock().get_or_insert(chunk.since);
        let tries_on = match prospect {
            Prospect::None => false,
            Prospect::Suspect => chunk.again < SUSPECT_MAX,
            Prospect::Good => true,
        };
        let rest = failed.iter().filter_map(|one| rest(&one.failure)).min().unwrap_or_default();
        let pause = PAUSES.exact(chunk.again.saturating_add(1)).max(rest);
        // Spreads the retries of chunks that failed together; multiples of the golden ratio lie apart.
        let spread = (chunk.chunk as f64 * 0.618_033_988_75).fract() / 2.0;
        let pause = pause + pause.mul_f64(spread);
        let ends = (answered + self.patience).min(chunk.since + CHUNK_PATIENCE);
        (tries_on && now + pause < ends).then_some(pause)
    }
}

fn prospect(failure: &FailureKind) -> Prospect {
    match failure {
        FailureKind::Refused
        | FailureKind::Open { .. }
        | FailureKind::RateLimited { .. }
        | FailureKind::Http { status: 502..=504, .. } => Prospect::Good,
        FailureKind::Closed | FailureKind::Http { status: 500..=599, .. } => Prospect::Suspect,
        _ => Prospect::None,
    }
}

fn rest(failure: &FailureKind) -> Option<Duration> {
    match failure {
        FailureKind::RateLimited { retry_after } => *retry_after,
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use infer::RequestCost;

    use super::*;

    const MS: fn(u64) -> Duration = Duration::from_millis;

    fn failed(failure: FailureKind) -> BackendError {
        BackendError { provider: "a".into(), failure, cost: RequestCost::default() }
    }

    #[test]
    fn what_passes_is_waited_out_and_what_does_not_is_given_up() {
        let limited = |after| FailureKind::RateLimited { retry_after: after };
        let rows: [(&str, Vec<FailureKind>, u32, Option<u64>); 15] = [
            ("away", vec![FailureKind::Refused], 0, Some(250)),
            ("for longer", vec![FailureKind::Refused], 3, Some(2000)),
            ("no longer than this", vec![FailureKind::Refused], 40, Some(5000)),
            ("left alone", vec![FailureKind::Open { again_in: None }], 0, Some(250)),
            ("overloaded", vec![FailureKind::http(503)], 0, Some(250)),
            ("busy, and does not say until when", vec![limited(None)], 0, Some(250)),
            ("busy, and says so", vec![limited(Some(MS(9000)))], 0, Some(9000)),
            ("busy for longer than there is time", vec![limited(Some(MS(90_000)))], 0, None),
            ("closed", vec![FailureKind::Closed], 1, Some(500)),
            ("closed on this question", vec![FailureKind::Closed], 2, None),
            ("an error on this question", vec![FailureKind::http(500)], 2, None),
            ("a refused question", vec![FailureKind::http(400)], 0, None),
            ("too slow", vec![FailureKind::Timeout { after: MS(1) }], 0, None),
            ("one of two is away", vec![FailureKind::Empty, FailureKind::Refused], 0, Some(250)),
            ("nobody was asked", vec![], 0, None),
        ];
        for (name, failures, again, expected) in rows {
            let now = Instant::now();
            let outage = RetryPolicy::new(MS(60_000));
            let failures: Vec<BackendError> = failures.into_iter().map(failed).collect();
            let chunk = ChunkAttempt { chunk: 0, again, since: now };
            assert_eq!(outage.pause(&failures, chunk, now), expected.map(MS), "{name}");
        }
    }

    #[test]
    fn patience_counts_from_the_last_answer_and_ends_for_each_chunk() {
        let start = Instant::now();
        let outage = RetryPolicy::new(MS(60_000));
        let away = [failed(FailureKind::Refused)];
        let pause = |since: u64, now: u64| {
            let chunk = ChunkAttempt { chunk: 0, again: 0, since: start + MS(since) };
            outage.pause(&away, chunk, start + MS(now)).is_some()
        };
        assert!(pause(0, 59_000));
        assert!(!pause(0, 60_000), "nothing was answered for a minute");
        assert!(!pause(90_000, 90_000), "nor is anything waited for that comes later");
        outage.answered(start + MS(100_000));
        assert!(pause(90_000, 150_000));
        for answered in (100_000..700_000).step_by(10_000) {
            outage.answered(start + MS(answered));
        }
        assert!(!pause(90_000, 690_000), "a chunk that the others do not stand for");
        let none = RetryPolicy::new(Duration::ZERO);
        let chunk = ChunkAttempt { chunk: 0, again: 0, since: start };
        assert_eq!(none.pause(&away, chunk, start), None, "without patience nothing is");
    }

    #[test]
    fn chunks_that_failed_together_come_back_apart() {
        let now = Instant::now();
        let outage = RetryPolicy::new(MS(60_000));
        let limited = [failed(FailureKind::RateLimited { retry_after: Some(MS(1000)) })];
        let mut pauses: Vec<Duration> = (0..8)
            .map(|chunk| outage.pause(&limited, ChunkAttempt { chunk, again: 0, since: now }, now))
            .map(|pause| pause.expect("waits"))
            .collect();
        pauses.sort_unstable();
        assert!(pauses.iter().all(|pause| (MS(1000)..MS(1500)).contains(pause)), "{pauses:?}");
        assert!(pauses.windows(2).all(|pair| pair[1] - pair[0] > MS(20)), "{pauses:?}");
    }
}
