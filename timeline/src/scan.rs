//! Metadata of events from the index without reading the log, and reads of single events.

use media::{RunId, Seq, WallTime};

use crate::{EventMeta, Result, StreamedEvent, Timeline};

/// Most events or numbers per lock, so that a reader does not hold up the writer for long.
const STEP: usize = 4096;

impl Timeline {
    /// Returns the heads of up to `limit` events of `run` from `from` on, in order; at most 4096.
    pub fn heads_of(&self, run: RunId, from: Seq, limit: usize) -> Vec<EventMeta> {
        let mut hits = Vec::new();
        self.0.store.index().collect(run, from, limit.min(STEP), None, &mut hits);
        hits.into_iter().map(|hit| hit.head).collect()
    }

    /// Returns the events, of all runs, among the `count` numbers from `from` on; purged ones are missing.
    pub fn heads(&self, from: Seq, count: usize) -> Vec<EventMeta> {
        let index = self.0.store.index();
        let seqs = (from.0.max(1)..=index.head().0).take(count).map(Seq);
        seqs.filter_map(|seq| index.locate(seq)).map(|hit| hit.head).collect()
    }

    /// Returns the time of the last event that is not purged; `None` without one.
    pub fn last_at(&self) -> Option<WallTime> {
        self.0.store.index().last_at()
    }

    /// Calls `visit` for every event in order, by the index in memory, up to the head at the first step.
    pub fn scan(&self, mut visit: impl FnMut(EventMeta)) {
        let (head, mut from) = (self.head(), Seq(1));
        loop {
            let mut heads = self.0.store.index().heads_from(from, STEP);
            heads.retain(|event| event.seq <= head);
            let Some(last) = heads.last() else { return };
            from = Seq(last.seq.0 + 1);
            heads.into_iter().for_each(&mut visit);
        }
    }

    /// Returns the event at `seq`, with signals left in their column; `None` if there is none.
    pub fn get_parts(&self, seq: Seq) -> Result<Option<StreamedEvent>> {
        let Some(hit) = self.0.store.index().locate(seq) else { return Ok(None) };
        self.0.store.load(&hit, &mut Vec::new())
    }
}
