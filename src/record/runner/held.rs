//! Work that a drain waits for besides jobs.

use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use super::{IngestError, JobRunner};

impl JobRunner {
    /// Returns a guard that a drain waits for, as it does for jobs, until its deadline.
    pub fn hold(&self) -> DrainGuard {
        DrainGuard { closing: self.closing.clone(), _job: self.jobs.token() }
    }
}

/// Guard of a request that a drain waits for; see [`JobRunner::hold`].
pub struct DrainGuard {
    closing: CancellationToken,
    _job: TaskTrackerToken,
}

impl DrainGuard {
    /// Awaits `work`; fails if the drain's deadline passes first.
    pub async fn finish<T>(&self, work: impl Future<Output = T>) -> Result<T, IngestError> {
        self.closing.run_until_cancelled(work).await.ok_or(IngestError::Shutdown)
    }
}
