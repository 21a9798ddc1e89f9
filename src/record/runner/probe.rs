//! Work beside the jobs that a drain ends as it ends them: probes of files, and requests that hold it up.
//!
//! A probe has its own queue: a job may take hours, and an upload holds its permit and its bytes until its file was
//! probed.

use std::{fs::File, pin::pin, sync::Arc};

use decode::StreamInfo;
use tokio_util::{sync::CancellationToken, task::task_tracker::TaskTrackerToken};
use tracing::Instrument;
use worker::{CancelToken, WorkerError};

use super::{IngestError, JobRunner, in_background};
use crate::base::keys::Principal;

impl JobRunner {
    /// Returns a guard that a drain waits for, as it does for jobs, until its deadline.
    pub fn hold(&self) -> DrainGuard {
        DrainGuard { closing: self.closing.clone(), _job: self.jobs.token() }
    }

    /// Describes the media of a file of `owner`; waits for other probes, not for jobs.
    ///
    /// Dropping the future cancels the probe.
    pub async fn probe(
        self: &Arc<Self>,
        owner: &Principal,
        file: File,
    ) -> Result<StreamInfo, IngestError> {
        let ended = self.closing.child_token();
        let _end = ended.clone().drop_guard();
        let (runner, owner) = (Arc::clone(self), owner.clone());
        let probed = async move {
            let entering = ended.run_until_cancelled(runner.looks.enter(&owner)).await;
            let place = entering.ok_or(IngestError::Shutdown)??;
            let supervisor = runner.parts.supervisor.clone();
            let probing = until_ended(&ended, move |cancel| {
                let _place = place;
                supervisor.probe(file, cancel)
            });
            match probing.await {
                Ok(Err(WorkerError::Cancelled)) => Err(IngestError::Shutdown),
                probed => probed?.map_err(IngestError::Worker),
            }
        };
        let task = self.jobs.spawn(probed.in_current_span());
        task.await.map_err(|_| IngestError::Lost)?
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
