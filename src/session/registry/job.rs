//! The handle on a run's job: how far it has come, and what ends it.

use std::sync::{Arc, Mutex};

use tokio_util::sync::CancellationToken;

use super::run::lock;

/// How far a job has come; not durable, and gone with the job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JobProgress {
    /// Frames analysed.
    pub frames: u64,
    /// Presentation time of the last of them, ms.
    pub pts_ms: i64,
}

/// Ends a job, whether it waits in the queue or runs in a worker, and shows its progress.
#[derive(Clone, Debug, Default)]
pub struct JobToken {
    /// For whoever waits asynchronously.
    pub waiting: CancellationToken,
    /// For the worker.
    pub running: worker::CancelToken,
    progress: Arc<Mutex<JobProgress>>,
}

impl JobToken {
    /// Tells how far the job has come.
    pub fn advance(&self, progress: JobProgress) {
        *lock(&self.progress) = progress;
    }

    pub(super) fn progress(&self) -> JobProgress {
        *lock(&self.progress)
    }

    pub(super) fn cancel(&self) {
        self.waiting.cancel();
        self.running.cancel();
    }
}
