//! Limit of the bytes that a worker may send.

use std::time::{Duration, Instant};

use super::WorkerLifetime;
use crate::WorkerError;

/// Time span in which a paced worker may send its `output_bytes`.
const OUTPUT_SPAN: Duration = Duration::from_secs(60);

/// Byte budget of a worker: one for a whole job, or one for every [`OUTPUT_SPAN`] of a paced worker.
pub(crate) struct OutputBudget {
    limit_bytes: u64,
    life: WorkerLifetime,
    /// Start of the current span, and the bytes sent before it.
    since: Instant,
    before: u64,
}

impl OutputBudget {
    pub fn new(limit_bytes: u64, life: WorkerLifetime) -> OutputBudget {
        OutputBudget { limit_bytes, life, since: Instant::now(), before: 0 }
    }

    /// Checks `total`, all bytes sent so far, against the budget.
    pub fn check(&mut self, total: u64, now: Instant) -> Result<(), WorkerError> {
        let limit_bytes = self.limit_bytes;
        if total - self.before > limit_bytes {
            return Err(WorkerError::OutputBudget { limit_bytes });
        }
        if self.life.is_paced() && now.duration_since(self.since) > OUTPUT_SPAN {
            (self.since, self.before) = (now, total);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_has_one_output_budget_and_a_paced_life_one_for_every_span() {
        let job = |is_endless| WorkerLifetime::Job { threads: 1, cpu_seconds: 1, is_endless };
        // Rows: life, bytes sent per second, and the second in which they exceed the budget of 600.
        for (name, life, rate, over) in [
            ("job", job(false), 6, Some(101)),
            ("modest endless job", job(true), 6, None),
            ("flooding endless job", job(true), 60, Some(11)),
            ("modest live worker", WorkerLifetime::Open, 6, None),
            ("flooding live worker", WorkerLifetime::Open, 60, Some(11)),
        ] {
            let mut budget = OutputBudget::new(600, life);
            let start = budget.since;
            let second_over = (1..100_000).find(|&second| {
                budget.check(second * rate, start + Duration::from_secs(second)).is_err()
            });
            assert_eq!(second_over, over, "{name}");
        }
    }
}
