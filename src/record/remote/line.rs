//! Waiting time of a job for the hosts of its source, and the bytes received in it.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::RemoteError;
use crate::runs::job_queue::Lender;

/// Bytes that each second of waiting after the first [`GRACE`] must bring: as many as speech takes.
pub const RATE_MIN: u64 = 4 << 10;
/// Waiting time that needs no bytes: twice that for the first frame.
pub const GRACE: Duration = Duration::from_secs(60);
/// Longest waiting time of a job for its source, decoding excluded.
pub const WAIT_MAX: Duration = Duration::from_secs(1800);

/// Waiting time of one job; clones share it.
#[derive(Clone)]
pub(super) struct Line {
    lender: Lender,
    /// True of a source without an end, whose total wait is unlimited.
    is_endless: bool,
    pace: Arc<Mutex<Pace>>,
}

/// Time that a job has waited for its source, and bytes received.
#[derive(Debug, Default)]
struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// Returns the waiting time left, and the error after it.
    fn left(&self) -> (Duration, RemoteError) {
        let earned = GRACE + Duration::from_secs(self.bytes / RATE_MIN);
        let (until, error) = if earned < WAIT_MAX {
            (earned, RemoteError::Dripping)
        } else {
            (WAIT_MAX, RemoteError::Late)
        };
        (until.saturating_sub(self.waited), error)
    }
}

impl Line {
    /// Creates the limits of a source that must send bytes for the time that it is waited for.
    pub(super) fn new(lender: Lender) -> Line {
        Line { lender, is_endless: false, pace: Arc::default() }
    }

    /// Creates the limits of a source without an end.
    pub(super) fn endless(lender: Lender) -> Line {
        Line { is_endless: true, ..Line::new(lender) }
    }

    /// Awaits `wait`; fails if the time left is too short. The job's permit is lent meanwhile.
    pub(super) async fn wait<T, E: Into<RemoteError>>(
        &self,
        wait: impl Future<Output = Result<T, E>>,
    ) -> Result<T, RemoteError> {
        let (left, error) =
            if self.is_endless { (WAIT_MAX, RemoteError::Late) } else { self.pace.lock().left() };
        let since = Instant::now();
        let outcome = self.lender.lend_while(timeout(left, wait)).await;
        self.pace.lock().waited += since.elapsed();
        outcome.map_err(|_| error)?.map_err(Into::into)
    }

    pub(super) fn took(&self, bytes: usize) {
        self.pace.lock().bytes += bytes as u64;
    }

    /// Lends the job's permit until the next wait ends.
    pub(super) fn lend(&self) {
        self.lender.lend();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_has_a_least_rate_and_a_deadline() {
        let minute = 60;
        // Bytes so far, seconds waited, seconds left, and the error after that.
        let rows = [
            (0, 0, minute, "less than 4096 bytes a second"),
            (0, minute, 0, "less than 4096 bytes a second"),
            (96 * 1536, 96, 0, "less than 4096 bytes a second"),
            (4096 * 100, 100, minute, "less than 4096 bytes a second"),
            (1 << 30, 1000, 800, "1800 s in all"),
            (u64::MAX, 3600, 0, "1800 s in all"),
        ];
        for (bytes, waited, left, told) in rows {
            let pace = Pace { waited: Duration::from_secs(waited), bytes };
            let (found, error) = pace.left();
            assert_eq!(found, Duration::from_secs(left), "{bytes} bytes in {waited} s");
            assert!(error.to_string().contains(told) && error.is_cut(), "{error}");
        }
    }
}
