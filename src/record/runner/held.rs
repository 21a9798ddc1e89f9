//! Work that a drain waits for besides jobs.

use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};

use super::{IngestError, JobRunner};

impl JobRunner {
    /// Makes a drain wait for the caller, who gives up when it is over.
    pub fn hold(&self) -> DrainGuard {
        DrainGuard { closing: self.closing.clone(), _job: self.jobs.token() }
    }
}

/// A request that a drain waits for, as it does for jobs; see [`JobRunner::hold`].
pub struct DrainGuard {
    closing: CancellationToken,
    _job: TaskTrackerToken,
}

impl DrainGuard {
    /// Awaits `work`, and fails if the drain is over before.
    pub async fn finish<T>(&self, work: impl Future<Output = T>) -> Result<T, IngestError> {
        self.closing.run_until_cancelled(work).await.ok_or(IngestError::Shutdown)
    }
}
