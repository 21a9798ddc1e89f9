//! Work that a drain waits for besides jobs.

use std::pin::pin;

use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};
use worker::CancelToken;

use super::{IngestError, JobRunner, in_background};

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

/// Runs `work` of a media worker on a blocking thread; cancels it once `ended` is cancelled.
pub(super) async fn until_ended<T: Send + 'static>(
    ended: &CancellationToken,
    work: impl FnOnce(&CancelToken) -> T + Send + 'static,
) -> Result<T, IngestError> {
    let cancel = CancelToken::new();
    let token = cancel.clone();
    let mut working = pin!(in_background(move || work(&token)));
    tokio::select! {
        done = &mut working => done,
        () = ended.cancelled() => {
            cancel.cancel();
            working.await
        }
    }
}
