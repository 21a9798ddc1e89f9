//! Probe of a file: the smallest job, cancelled as the others are.
//!
//! Has its own queue: a job may take hours, and an upload holds its permit and its bytes until its file was
//! probed.

use std::{fs::File, sync::Arc};

use decode::StreamInfo;
use tracing::Instrument;
use worker::WorkerError;

use super::{IngestError, JobRunner, held::until_ended};
use crate::base::keys::Principal;

impl JobRunner {
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
