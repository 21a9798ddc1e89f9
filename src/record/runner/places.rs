//! Places of jobs: the queues that a job passes, of which only the first refuses it.

use super::{JobRunner, job_registry::stay};
use crate::{
    base::keys::Principal,
    runs::{
        job_queue::{JobLength, JobPermit, QueueFull},
        registry::{JobKind, JobToken},
    },
};

/// The places of a job that decodes.
pub(super) struct Decoding {
    /// Lent while its source waits for the network.
    pub(super) slot: JobPermit,
    /// Among the jobs with a source behind a URL.
    _remote: Option<JobPermit>,
}

impl JobRunner {
    /// Refuses a job that finds no room in its first queue, before the disk hears of it.
    pub(super) fn check_room(
        &self,
        owner: &Principal,
        kind: JobKind,
        is_remote: bool,
    ) -> Result<(), QueueFull> {
        match (kind, is_remote) {
            (JobKind::Reasoning, _) => self.reasonings.check(owner, JobLength::Short),
            (_, true) => self.remotes.check(owner, JobLength::Short),
            (_, false) => self.admission.check(owner, stay(kind)),
        }
    }

    /// Waits for the places of a job: one to ask in, for a reasoning, and those to decode in. Only the first queue
    /// refuses it: it may have been told that it is taken.
    pub(super) async fn places(
        &self,
        owner: &Principal,
        token: &JobToken,
        is_remote: bool,
    ) -> Result<(Option<JobPermit>, Decoding), QueueFull> {
        let kind = token.order().map_or(JobKind::Ingest, |order| order.kind);
        let entering = async {
            let asks = match kind {
                JobKind::Reasoning => Some(self.reasonings.enter(owner).await?),
                JobKind::Ingest | JobKind::Analysis => None,
            };
            let _remote = match (is_remote, &asks) {
                (true, None) => Some(self.remotes.enter(owner).await?),
                (true, Some(_)) => Some(self.remotes.pass(owner, JobLength::Short).await?),
                (false, _) => None,
            };
            let slot = match (&asks, &_remote) {
                (None, None) => self.admission.enter_for(owner, stay(kind)).await?,
                _ => self.admission.pass(owner, stay(kind)).await?,
            };
            Ok((asks, Decoding { slot, _remote }))
        };
        token.enter(entering).await
    }
}
