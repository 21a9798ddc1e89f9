//! Permits of jobs: the queues that a job passes; only the first can refuse it, before it is recorded.

use super::{JobRunner, job_registry::stay};
use crate::{
    base::keys::Principal,
    runs::{
        job_queue::{JobLength, JobPermit, QueueFull, Reservation},
        registry::{JobKind, JobToken},
    },
};

pub(super) struct Decoding {
    /// Permit to decode; lent while the source waits for the network.
    pub(super) slot: JobPermit,
    _remote: Option<JobPermit>,
}

impl JobRunner {
    /// Reserves room in the first queue of a job; fails before anything is written to disk.
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

    /// Waits for the permits of a job with a reservation: one to reason, for a reasoning, and those to
    /// decode. No queue refuses the job here, as its request may have been accepted already.
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
