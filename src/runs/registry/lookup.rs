//! Look-ups of runs by id and by owner.

use std::{collections::HashSet, sync::Arc};

use media::{RunId, Seq};
use timeline::{Event, EventKind, PayloadChunks, StreamedEvent, Timeline, TimelineError};

use super::{Run, RunRegistry};
use crate::{base::keys::Principal, runs::lifecycle::RunState};

/// Events of a kind read at a time.
const PAGE: usize = 1000;
/// Runs visited per lock of the tables.
pub(super) const LIST_SLICE: usize = 1024;

/// Decodes a stored event; logs an unreadable one and returns `None`.
pub fn readable(stored: &StreamedEvent) -> Option<Event> {
    let seq = stored.head.seq;
    let read = stored.decode();
    read.inspect_err(|error| tracing::error!(%seq, %error, "an event cannot be read")).ok()
}

/// Calls `look` with every event of a kind in `run`, from `next` on, which then is after the last; with `None`
/// for a damaged one.
pub fn each_of_kind(
    timeline: &Timeline,
    run: RunId,
    kind: EventKind,
    next: &mut Seq,
    mut look: impl FnMut(Seq, Option<Event>),
) -> Result<(), TimelineError> {
    loop {
        let page = timeline.read_parts(run, *next, PAGE, Some(kind))?;
        let Some(last) = page.last() else { return Ok(()) };
        *next = Seq(last.head.seq.0 + 1);
        page.iter().for_each(|parts| look(parts.head.seq, readable(parts)));
    }
}

/// Returns the next piece of a payload. Damage is logged and ends the text with `damaged`: a retry would find
/// it too.
pub fn next_piece(payload: &mut PayloadChunks) -> Option<Result<String, TimelineError>> {
    match payload.next()? {
        Err(error) if error.is_lasting() => {
            tracing::error!(%error, "signals of an event cannot be read");
            Some(Ok(payload.closing()))
        }
        piece => Some(piece),
    }
}

impl RunRegistry {
    /// Returns the run `id` of `owner`, even if deleted; `None` for another principal's.
    pub fn find_any(&self, id: RunId, owner: &Principal) -> Option<Arc<Run>> {
        let run = self.run(id)?;
        (run.origin().principal == *owner && run.lifecycle() != RunState::Unborn).then_some(run)
    }

    /// Returns the visible run `id` of `owner`.
    pub fn find(&self, id: RunId, owner: &Principal) -> Option<Arc<Run>> {
        self.find_any(id, owner).filter(|run| run.lifecycle().is_visible())
    }

    /// Returns the run `id` of any owner and in any state, for the server's own work.
    pub fn run(&self, id: RunId) -> Option<Arc<Run>> {
        self.tables.lock().runs.get(&id).cloned()
    }

    pub fn active_sessions(&self) -> Vec<Arc<Run>> {
        let tables = self.tables.lock();
        let runs = tables.runs.values().filter(|run| run.origin().session.is_some());
        runs.filter(|run| run.lifecycle().is_active()).cloned().collect()
    }

    pub fn visible(&self, owner: &Principal) -> HashSet<RunId> {
        let (mut visible, mut before) = (HashSet::new(), Seq(u64::MAX));
        loop {
            let slice = self.slice(owner, before);
            let Some((last, _)) = slice.last() else { return visible };
            before = *last;
            visible.extend(slice.iter().map(|(_, run)| run.id()));
        }
    }

    /// Returns visible runs of `owner` created before `before`, newest first, and the next page's cursor.
    pub fn list(
        &self,
        owner: &Principal,
        status: Option<RunState>,
        before: Seq,
        limit: usize,
    ) -> (Vec<Arc<Run>>, Option<Seq>) {
        let (mut page, mut before) = (Vec::new(), before);
        loop {
            let slice = self.slice(owner, before);
            let Some((last, _)) = slice.last() else { return (page, None) };
            before = *last;
            for (_, run) in slice {
                if !status.is_none_or(|status| run.lifecycle() == status) {
                    continue;
                }
                if page.len() == limit {
                    let next = page.last().map(|run: &Arc<Run>| run.created_seq());
                    return (page, next);
                }
                page.push(run);
            }
        }
    }

    /// Returns the next visible runs of `owner`, a slice only, as the log's writer waits for the lock.
    fn slice(&self, owner: &Principal, before: Seq) -> Vec<(Seq, Arc<Run>)> {
        let tables = self.tables.lock();
        let Some(owner) = tables.owners.get(owner) else { return Vec::new() };
        let runs = owner.runs.range(..before).rev().take(LIST_SLICE);
        runs.map(|(seq, run)| (*seq, Arc::clone(run))).collect()
    }

    pub fn count_by_state(&self) -> impl Iterator<Item = (RunState, usize)> {
        let counts = self.tables.lock().by_state;
        RunState::SHOWN.into_iter().zip(counts)
    }
}
