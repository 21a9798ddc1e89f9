//! A request under an idempotency key, from its beginning to its response.

use std::sync::Arc;

use media::{RequestId, RunId, Seq, WallTime};
use redb::WriteTransaction;
use timeline::{Timeline, TimelineError};

use super::{
    BodyDigest, IdempotencyStore, Interrupted, KeyScope, RecoveredOutcome, StoredResponse,
    records::{self, KeyState},
};
use crate::base::meta_store::MetaStoreError;

/// Request in progress under its key, until dropped.
///
/// If dropped without a response, its record stays "begun", as after a crash.
pub struct KeyedRequest {
    pub(super) keys: Arc<IdempotencyStore>,
    pub(super) scope: KeyScope,
    pub(super) request_id: RequestId,
    pub(super) at: WallTime,
    pub(super) after: Seq,
}

impl KeyedRequest {
    /// Records durably that the request begins; replaces an earlier record of the key.
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

    pub fn answered(
        &self,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), MetaStoreError> {
        self.keys.ledger.write(|change| self.answered_with(change, fingerprint, answer))?;
        self.settle()
    }

    /// Charges the owner for its records; see [`KeyedRequest::answered_with`].
    pub fn settle(&self) -> Result<(), MetaStoreError> {
        self.keys.settle(&self.scope.owner)
    }

    /// Stores the response as [`KeyedRequest::answered`] does, in the transaction `change`. The
    /// caller must then call [`KeyedRequest::settle`] to charge it.
    pub fn answered_with(
        &self,
        change: &WriteTransaction,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), redb::Error> {
        records::put(change, &self.scope, self.at, &KeyState::Answered(fingerprint, answer))
    }

    /// Removes the record of a request that had no effect.
    pub fn refused(&self) -> Result<(), MetaStoreError> {
        self.keys.ledger.write(|change| records::remove(change, &self.scope))?;
        self.settle()
    }

    /// Returns the effect of the request by the log; see [`Interrupted::trace`].
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
