//! Reads: events by run, kind and number, and their metadata from the index without reading the log.

use std::collections::HashSet;

use media::{RunId, Seq, StreamId, WallTime};

use crate::{
    Event, EventKind, EventMeta, FramesDecoded, Result, StoredEvent, StreamedEvent, Timeline,
};

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

    /// Returns the runs with an event for which `is_wanted` is true, by the index in memory.
    pub fn runs_of(&self, is_wanted: impl Fn(&EventMeta) -> bool) -> HashSet<RunId> {
        let mut runs = HashSet::new();
        self.scan(|head| runs.extend(is_wanted(&head).then_some(head.run)));
        runs
    }

    /// Returns up to `limit` events of `run` from `from` on, in order, and only of `kind` if given.
    pub fn read(
        &self,
        run: RunId,
        from: Seq,
        limit: usize,
        kind: Option<EventKind>,
    ) -> Result<Vec<StoredEvent>> {
        let parts = self.read_parts(run, from, limit, kind)?;
        parts.into_iter().map(StreamedEvent::whole).collect()
    }

    /// As [`Timeline::read`], for readers that write the events' text in pieces.
    pub fn read_parts(
        &self,
        run: RunId,
        from: Seq,
        limit: usize,
        kind: Option<EventKind>,
    ) -> Result<Vec<StreamedEvent>> {
        let (store, mut hits, mut from) = (&self.0.store, Vec::new(), Some(from));
        while let Some(next) = from {
            from = store.index().collect(run, next, limit, kind, &mut hits);
        }
        let mut buffer = Vec::new();
        hits.iter().filter_map(|hit| store.load(hit, &mut buffer).transpose()).collect()
    }

    /// Returns the event at `seq`; `None` if there is none or it was purged.
    pub fn get(&self, seq: Seq) -> Result<Option<StoredEvent>> {
        self.get_parts(seq)?.map(StreamedEvent::whole).transpose()
    }

    /// Returns the last event of `run` of this kind.
    pub fn latest(&self, run: RunId, kind: EventKind) -> Option<EventMeta> {
        self.0.store.last_of(run, Seq(u64::MAX), kind).map(|hit| hit.head)
    }

    /// Returns the newest `frames_decoded` of `run` (and `stream`, if given), with its signals as stored.
    pub fn latest_frames(
        &self,
        run: RunId,
        stream: Option<&StreamId>,
    ) -> Result<Option<(EventMeta, FramesDecoded)>> {
        let (store, mut before, mut buffer) = (&self.0.store, Seq(u64::MAX), Vec::new());
        while let Some(hit) = store.last_of(run, before, EventKind::FramesDecoded) {
            let decoded = store.with_record(&hit, &mut buffer, |record| record.decode())?;
            if let Some(Event::FramesDecoded(frames)) = decoded
                && stream.is_none_or(|stream| *stream == frames.stream_id)
            {
                return Ok(Some((hit.head, frames)));
            }
            before = hit.head.seq;
        }
        Ok(None)
    }

    /// Returns the event at `seq`, with signals left in their column; `None` if there is none.
    pub fn get_parts(&self, seq: Seq) -> Result<Option<StreamedEvent>> {
        let Some(hit) = self.0.store.index().locate(seq) else { return Ok(None) };
        self.0.store.load(&hit, &mut Vec::new())
    }
}
