//! The line of a job to the hosts of its source: what is waited for it, and what that brings.

use std::{sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::RemoteError;
use crate::runs::job_queue::Lender;

/// Bytes that a second of waiting must bring, past the first [`GRACE`] of it: a voice takes as many.
pub const RATE_MIN: u64 = 4 << 10;
/// Waiting that need not bring anything: twice as long as that for the first frame.
pub const GRACE: Duration = Duration::from_secs(60);
/// Longest that a job waits for its source in all, the time that it decodes left out.
pub const WAIT_MAX: Duration = Duration::from_secs(1800);

/// The line of one job; clones share it.
#[derive(Clone)]
pub(super) struct Line {
    lender: Lender,
    /// It may be waited for as long as it goes on.
    is_endless: bool,
    pace: Arc<Mutex<Pace>>,
}

/// Time that a job has waited for its source, and bytes that came.
#[derive(Debug, Default)]
struct Pace {
    waited: Duration,
    bytes: u64,
}

impl Pace {
    /// Longest that it may wait now, and what it is told after that.
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
    /// A line that must bring something for what is waited.
    pub(super) fn new(lender: Lender) -> Line {
        Line { lender, is_endless: false, pace: Arc::default() }
    }

    /// A line of a source that is waited for as long as it is wanted.
    pub(super) fn endless(lender: Lender) -> Line {
        Line { is_endless: true, ..Line::new(lender) }
    }

    /// Awaits `wait` and fails where it is not ready in time; others decode meanwhile.
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

    /// Counts bytes that came.
    pub(super) fn took(&self, bytes: usize) {
        self.pace.lock().bytes += bytes as u64;
    }

    /// Lets others decode until there is something to wait for again.
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
        // Bytes so far, seconds waited for them, seconds that are left, and what ends them.
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
