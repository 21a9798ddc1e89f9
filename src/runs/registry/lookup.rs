//! Look-ups of runs by id and by owner.

use std::{collections::HashSet, sync::Arc};

use media::{RunId, Seq};
use timeline::{Event, StreamedEvent};

use super::{Run, RunRegistry};
use crate::{base::keys::Principal, runs::lifecycle::RunState};

/// Runs looked at in one hold of the tables.
pub(super) const LIST_SLICE: usize = 1024;

/// Reads a stored event; one that is damaged or odd is told in the log and gives nothing.
pub fn readable(stored: &StreamedEvent) -> Option<Event> {
    let seq = stored.head.seq;
    let read = stored.decode();
    read.inspect_err(|error| tracing::error!(%seq, %error, "an event cannot be read")).ok()
}

impl RunRegistry {
    /// The run `id` of `owner`, deleted ones too; `None` also when it is another principal's.
    pub fn find_any(&self, id: RunId, owner: &Principal) -> Option<Arc<Run>> {
        let run = self.tables.lock().runs.get(&id).cloned()?;
        (run.origin().principal == *owner && run.lifecycle() != RunState::Unborn).then_some(run)
    }

    /// The visible run `id` of `owner`.
    pub fn find(&self, id: RunId, owner: &Principal) -> Option<Arc<Run>> {
        self.find_any(id, owner).filter(|run| run.lifecycle().is_visible())
    }

    /// The run `id`, whoever owns it and whatever its state: for what serves every owner.
    pub fn run(&self, id: RunId) -> Option<Arc<Run>> {
        self.tables.lock().runs.get(&id).cloned()
    }

    /// The active runs that live sessions made.
    pub fn active_sessions(&self) -> Vec<Arc<Run>> {
        let tables = self.tables.lock();
        let runs = tables.runs.values().filter(|run| run.origin().session.is_some());
        runs.filter(|run| run.lifecycle().is_active()).cloned().collect()
    }

    /// The visible runs of `owner`.
    pub fn visible(&self, owner: &Principal) -> HashSet<RunId> {
        let (mut visible, mut before) = (HashSet::new(), Seq(u64::MAX));
        loop {
            let slice = self.slice(owner, before);
            let Some((last, _)) = slice.last() else { return visible };
            before = *last;
            visible.extend(slice.iter().map(|(_, run)| run.id()));
        }
    }

    /// Visible runs of `owner` created before `before`, newest first, and where the next page is.
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

    /// The next visible runs of `owner`: the log's writer waits for the tables, so not all.
    fn slice(&self, owner: &Principal, before: Seq) -> Vec<(Seq, Arc<Run>)> {
        let tables = self.tables.lock();
        let Some(owner) = tables.owners.get(owner) else { return Vec::new() };
        let runs = owner.runs.range(..before).rev().take(LIST_SLICE);
        runs.map(|(seq, run)| (*seq, Arc::clone(run))).collect()
    }

    /// Number of runs in each of the states that a record can show.
    pub fn count_by_state(&self) -> impl Iterator<Item = (RunState, usize)> {
        let counts = self.tables.lock().by_state;
        RunState::SHOWN.into_iter().zip(counts)
    }
}
