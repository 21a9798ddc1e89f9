//! Places of jobs: the queues that a job passes, of which the first refuses it before it is recorded.

use super::{JobRunner, job_registry::stay};
use crate::{
    base::keys::Principal,
    runs::{
        job_queue::{JobLength, JobPermit, QueueFull, Reservation},
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
    /// Room in the first queue of a job, or its refusal, before the disk hears of it.
    pub(super) fn reserve(
        &self,
        owner: &Principal,
        kind: JobKind,
        is_remote: bool,
    ) -> Result<Reservation, QueueFull> {
        match (kind, is_remote) {
            (JobKind::Reasoning, _) => self.reasonings.reserve(owner, JobLength::Short),
            (_, true) => self.remotes.reserve(owner, JobLength::Short),
            (_, false) => self.admission.reserve(owner, stay(kind)),
        }
    }

    /// Waits for the places of a job that has room: one to ask in, for a reasoning, and those to decode in. None of
    /// the queues refuses it: it may have been told that it is taken.
    pub(super) async fn places(
        &self,
        owner: &Principal,
        token: &JobToken,
        is_remote: bool,
        room: Reservation,
    ) -> (Option<JobPermit>, Decoding) {
        let kind = token.order().map_or(JobKind::Ingest, |order| order.kind);
        token.accept();
        drop(room);
        let (mut asks, mut _remote) = (None, None);
        if kind == JobKind::Reasoning {
            asks = Some(self.reasonings.pass(owner, JobLength::Short).await);
        }
        if is_remote {
            _remote = Some(self.remotes.pass(owner, JobLength::Short).await);
        }
        let slot = self.admission.pass(owner, stay(kind)).await;
        (asks, Decoding { slot, _remote })
    }
}
