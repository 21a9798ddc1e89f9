//! A request under an idempotency key, from its beginning to its response, and its effect by the log where it has none.

use std::collections::HashSet;

use media::{RequestId, RunId, Seq, WallTime};
use redb::WriteTransaction;
use timeline::{Event, EventKind, EventMeta, Timeline, TimelineError};

use super::{
    BodyDigest, Interrupted, KeyInUse, STEP, StoredResponse,
    records::{self, KeyState},
};
use crate::base::meta_store::MetaStoreError;

/// Request in progress under its key, until dropped.
///
/// If dropped without a response, its record stays "begun", as after a crash.
pub struct KeyedRequest {
    pub(super) held: KeyInUse,
    pub(super) request_id: RequestId,
    pub(super) at: WallTime,
    pub(super) after: Seq,
}

impl KeyedRequest {
    /// Records durably that the request begins, unless its owner's table is full: then returns the time of the
    /// owner's oldest record since `oldest`.
    pub(super) fn write_new(
        &self,
        fingerprint: Option<BodyDigest>,
        oldest: WallTime,
    ) -> Result<Option<WallTime>, MetaStoreError> {
        let KeyInUse { keys, scope } = &self.held;
        let begun = KeyState::Begun(self.begun(fingerprint));
        let full =
            keys.ledger.write(|change| records::put_new(change, scope, self.at, &begun, oldest))?;
        self.settle()?;
        Ok(full)
    }

    fn begun(&self, fingerprint: Option<BodyDigest>) -> Interrupted {
        let request_id = self.request_id.to_string();
        Interrupted { fingerprint, request_id, after: self.after }
    }

    /// Records durably that the request begins; replaces an earlier record of the key.
    pub fn write(
        &mut self,
        fingerprint: Option<BodyDigest>,
        head: Seq,
    ) -> Result<(), MetaStoreError> {
        self.after = head;
        let KeyInUse { keys, scope } = &self.held;
        let begun = KeyState::Begun(self.begun(fingerprint));
        keys.ledger.write(|change| records::put(change, scope, self.at, &begun))?;
        self.settle()
    }

    pub fn answered(
        &self,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), MetaStoreError> {
        self.held.keys.ledger.write(|change| self.answered_with(change, fingerprint, answer))?;
        self.settle()
    }

    /// Charges the owner for its records; see [`KeyedRequest::answered_with`].
    pub fn settle(&self) -> Result<(), MetaStoreError> {
        self.held.keys.settle(&self.held.scope.owner)
    }

    /// Stores the response as [`KeyedRequest::answered`] does, in the transaction `change`. The
    /// caller must then call [`KeyedRequest::settle`] to charge it.
    pub fn answered_with(
        &self,
        change: &WriteTransaction,
        fingerprint: BodyDigest,
        answer: StoredResponse,
    ) -> Result<(), redb::Error> {
        records::put(change, &self.held.scope, self.at, &KeyState::Answered(fingerprint, answer))
    }

    /// Removes the record of a request that had no effect.
    pub fn refused(&self) -> Result<(), MetaStoreError> {
        self.held.keys.ledger.write(|change| records::remove(change, &self.held.scope))?;
        self.settle()
    }

    /// Returns the effect of the request by the log; see [`Interrupted::trace`].
    pub fn trace(
        &self,
        timeline: &Timeline,
        run: Option<RunId>,
        reads_max: usize,
    ) -> Result<RecoveredOutcome, TimelineError> {
        self.begun(None).trace(timeline, run, reads_max)
    }
}

/// Effect of a request, by the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveredOutcome {
    Nothing,
    Run(RunId),
    /// Unknown: the log has too many events since.
    Unknown,
}

impl Interrupted {
    /// Returns the effect of the request by its events: only those of `run` if given, and at most
    /// `reads_max` events.
    pub fn trace(
        &self,
        timeline: &Timeline,
        run: Option<RunId>,
        reads_max: usize,
    ) -> Result<RecoveredOutcome, TimelineError> {
        let (mut from, last, mut reads) = (Seq(self.after.0 + 1), timeline.head(), 0);
        while from <= last {
            let (heads, next) = match run {
                Some(run) => {
                    let heads = timeline.heads_of(run, from, STEP);
                    let next = heads.last().map_or(last, |head| head.seq).0 + 1;
                    (heads, next)
                }
                None => (timeline.heads(from, STEP), from.0 + STEP as u64),
            };
            for head in heads.iter().filter(|head| tells(head.kind, run.is_some())) {
                if reads == reads_max {
                    return Ok(RecoveredOutcome::Unknown);
                }
                reads += 1;
                let Some(event) = read(timeline, head)? else { continue };
                if request_of(&event).is_some_and(|id| id == self.request_id) {
                    return Ok(RecoveredOutcome::Run(head.run));
                }
            }
            from = Seq(next);
        }
        Ok(RecoveredOutcome::Nothing)
    }
}

/// Returns those of `begun` that had no effect, by one pass backwards over the log. Reads at most
/// `reads_max` events; requests begun before the part read count as having an effect.
pub(super) fn idle<T>(
    mut begun: Vec<(T, Interrupted)>,
    timeline: &Timeline,
    reads_max: usize,
) -> Result<Vec<(T, Interrupted)>, TimelineError> {
    let Some(after) = begun.iter().map(|(_, past)| past.after.0).min() else { return Ok(begun) };
    let head = timeline.head().0;
    let (mut busy, mut reads, mut seen_from) = (HashSet::new(), 0, after + 1);
    let steps = (after + 1..=head).step_by(STEP).collect::<Vec<_>>();
    'back: for first in steps.into_iter().rev() {
        let heads = timeline.heads(Seq(first), STEP.min((head + 1 - first) as usize));
        for head in heads.iter().rev().filter(|head| tells(head.kind, false)) {
            if reads == reads_max {
                seen_from = head.seq.0 + 1;
                break 'back;
            }
            reads += 1;
            if let Some(id) = read(timeline, head)?.as_ref().and_then(request_of) {
                busy.insert(id);
            }
        }
    }
    begun.retain(|(_, past)| past.after.0 + 1 >= seen_from && !busy.contains(&past.request_id));
    Ok(begun)
}

/// Returns true for event kinds that show an effect of a request; with `in_its_run` also those
/// that follow an accepted job.
fn tells(kind: EventKind, in_its_run: bool) -> bool {
    use EventKind::{
        AnalysisGenerated, FramesDecoded, InferenceCompleted, IngestReceived, RunCreated,
        RunFailed, SemanticChunkInferred,
    };
    matches!(kind, RunCreated | IngestReceived | AnalysisGenerated | InferenceCompleted | RunFailed)
        || in_its_run && matches!(kind, SemanticChunkInferred | FramesDecoded)
}

fn read(timeline: &Timeline, head: &EventMeta) -> Result<Option<Event>, TimelineError> {
    timeline.get_parts(head.seq)?.map(|parts| parts.decode()).transpose()
}

fn request_of(event: &Event) -> Option<String> {
    let id: Option<RequestId> = match event {
        Event::RunCreated(event) => Some(event.request_id),
        Event::IngestReceived(event) => Some(event.request_id),
        Event::FramesDecoded(event) => Some(event.request_id),
        Event::SemanticChunkInferred(event) => Some(event.request_id),
        Event::AnalysisGenerated(event) => Some(event.request_id),
        Event::InferenceCompleted(event) => Some(event.request_id),
        Event::RunFailed(event) => event.request_id,
        _ => None,
    };
    id.map(|id| id.to_string())
}
