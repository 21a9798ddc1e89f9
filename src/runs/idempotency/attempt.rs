//! A request under its key, from its beginning to its answer.

use std::sync::Arc;

use media::{RequestId, RunId, Seq, WallTime};
use redb::WriteTransaction;
use timeline::{Timeline, TimelineError};

use super::{
    BodyDigest, IdempotencyStore, Interrupted, KeyScope, RecoveredOutcome, StoredResponse,
    records::{self, KeyState},
};
use crate::base::meta_store::MetaStoreError;

/// A request that is being carried out under its key, until dropped.
///
/// Dropped without an answer it stays "begun", as after a crash.
pub struct KeyedRequest {
    pub(super) keys: Arc<IdempotencyStore>,
    pub(super) scope: KeyScope,
    pub(super) request_id: RequestId,
    pub(super) at: WallTime,
    pub(super) after: Seq,
}

impl KeyedRequest {
    /// Says durably that the request begins; what was said of an earlier one is forgotten.
    pub fn write(
        &mut self,
        fingerprint: Option<BodyDigest>,
        head: Seq,
    ) -> Result<(), MetaStoreError> {
        self.after = head;
        let request_id = self.request_id.to_string();
        let begun = KeyState::Begun(Interrupted { fingerprint, request_id, after: head });
        self.keys.ledger.write(|change| records::put(change, &self.scope, self.at, &begun))?;
        self.settle()
    }

    /// Keeps what was answered.
    pub fn answered(
        &self,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), MetaStoreError> {
        self.keys.ledger.write(|change| self.answered_with(change, fingerprint, answer))?;
        self.settle()
    }

    /// Charges its owner for what is kept; see [`KeyedRequest::answered_with`].
    pub fn settle(&self) -> Result<(), MetaStoreError> {
        self.keys.settle(&self.scope.owner)
    }

    /// Does as [`KeyedRequest::answered`], together with other changes: all of them happen or none, and
    /// are charged with the next [`KeyedRequest::settle`].
    pub fn answered_with(
        &self,
        change: &WriteTransaction,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), redb::Error> {
        records::put(change, &self.scope, self.at, &KeyState::Answered(fingerprint, answer))
    }

    /// Forgets a request that did nothing.
    pub fn refused(&self) -> Result<(), MetaStoreError> {
        self.keys.ledger.write(|change| records::remove(change, &self.scope))?;
        self.settle()
    }

    /// Effect of the request as the log tells it, found as [`Interrupted::trace`] does.
    pub fn trace(
        &self,
        timeline: &Timeline,
        run: Option<RunId>,
        reads_max: usize,
    ) -> Result<RecoveredOutcome, TimelineError> {
        let request_id = self.request_id.to_string();
        let begun = Interrupted { fingerprint: None, request_id, after: self.after };
        begun.trace(timeline, run, reads_max)
    }
}

impl Drop for KeyedRequest {
    fn drop(&mut self) {
        self.keys.under_way.lock().remove(&self.scope);
    }
}
