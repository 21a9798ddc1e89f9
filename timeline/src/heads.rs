//! Looking ahead in a run without reading it, and reading single events.

use media::{RunId, Seq};

use crate::{EventHead, EventParts, Result, Timeline};

/// Events looked at in one step: keeps a reader from holding up the writer for long.
const STEP: usize = 4096;

impl Timeline {
    /// Heads of up to `limit` events of `run` from `from` on, in order; at most 4096.
    pub fn heads_of(&self, run: RunId, from: Seq, limit: usize) -> Vec<EventHead> {
        let mut hits = Vec::new();
        self.0.store.index().collect(run, from, limit.min(STEP), None, &mut hits);
        hits.into_iter().map(|hit| hit.head).collect()
    }

    /// The event at `seq`, signals left in their column; `None` when there is none.
    pub fn get_parts(&self, seq: Seq) -> Result<Option<EventParts>> {
        let hit = self.0.store.index().locate(seq);
        hit.map(|hit| self.0.store.load(&hit, &mut Vec::new())).transpose()
    }
}
