//! Answered chunks of a run, or frames of a live session, in order: answers arrive in any order.
//!
//! Holds two numbers per chunk, and reads each event once.

use std::collections::BTreeSet;

use media::{RunId, Seq};
use timeline::{Event, EventKind, Timeline, TimelineError};

use super::{readable, run::Run};

/// Events read from the log at a time; a payload has at most 1 MiB.
const READ: usize = 16;

/// Kinds of events with a model's description of pictures.
const KINDS: [EventKind; 5] = [
    EventKind::SemanticChunkInferred,
    EventKind::Vlm,
    EventKind::VlmTiered,
    EventKind::ClipVlm,
    EventKind::ClipVlmTiered,
];

/// Indices of chunks (frames, for a live session) with their events, from the events of each kind
/// before its `next`.
#[derive(Default)]
pub(super) struct ChunkOrder {
    next: [Seq; KINDS.len()],
    order: BTreeSet<(u64, Seq)>,
    /// Number of events that cannot be read.
    damaged: u64,
}

/// Error of a cursor that is no event of an answered chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchChunk;

impl Run {
    /// Returns the events of answered chunks in the order of the chunks, from the event `from` on
    /// if given. Reads new events only.
    pub fn said_of_chunks(
        &self,
        timeline: &Timeline,
        from: Option<Seq>,
    ) -> Result<Result<Vec<Seq>, NoSuchChunk>, TimelineError> {
        // The lock is released between steps, so that other readers can use the known part.
        while self.chunks.lock().follow(timeline, self.id())? {}
        Ok(self.chunks.lock().from(from))
    }

    /// Returns the number of descriptions that cannot be read, by the events read so far.
    pub fn damaged_chunks(&self) -> u64 {
        self.chunks.lock().damaged
    }
}

impl ChunkOrder {
    /// Reads some new events of `run`; returns false if there were none.
    fn follow(&mut self, timeline: &Timeline, run: RunId) -> Result<bool, TimelineError> {
        let mut is_news = false;
        for (kind, next) in KINDS.into_iter().zip(&mut self.next) {
            for stored in timeline.read_parts(run, *next, READ, Some(kind))? {
                is_news = true;
                *next = Seq(stored.head.seq.0 + 1);
                // An event without an answer describes nothing.
                let place = match readable(&stored) {
                    Some(Event::SemanticChunkInferred(chunk)) if !chunk.semantic_fallback_used => {
                        chunk.chunk_index
                    }
                    Some(Event::Found(_, finding)) if finding.summary.is_some() => {
                        finding.frame_index
                    }
                    Some(_) => continue,
                    None => {
                        self.damaged += 1;
                        continue;
                    }
                };
                self.order.insert((place, stored.head.seq));
            }
        }
        Ok(is_news)
    }

    /// Returns the events in the order of their chunks, from the event `from` on if given.
    fn from(&self, from: Option<Seq>) -> Result<Vec<Seq>, NoSuchChunk> {
        let events = self.order.iter().map(|(_, seq)| *seq);
        let Some(from) = from else { return Ok(events.collect()) };
        let left = events.skip_while(|seq| *seq != from).collect::<Vec<_>>();
        if left.is_empty() { Err(NoSuchChunk) } else { Ok(left) }
    }
}
