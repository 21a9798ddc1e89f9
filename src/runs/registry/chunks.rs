//! The chunks of a run, or the looks of a live session, that a model answered for, in their order: answers come in any.
//!
//! Holds two numbers a chunk, and reads each event once.

use std::collections::BTreeSet;

use media::{RunId, Seq};
use timeline::{Event, EventKind, Timeline, TimelineError};

use super::{readable, run::Run};

/// Events read from the log at a time; a payload is at most a MiB.
const READ: usize = 16;

/// The kinds of events that tell what a model said of pictures.
const KINDS: [EventKind; 5] = [
    EventKind::SemanticChunkInferred,
    EventKind::Vlm,
    EventKind::VlmTiered,
    EventKind::ClipVlm,
    EventKind::ClipVlmTiered,
];

/// Positions of chunks (of a live session, frames) and of the events that tell of them, among the events of each kind
/// before its `next`.
#[derive(Default)]
pub(super) struct ChunkOrder {
    next: [Seq; KINDS.len()],
    order: BTreeSet<(u64, Seq)>,
}

/// A cursor that is none: it names no chunk of the run that a model answered for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoSuchChunk;

impl Run {
    /// Chunks that a model answered for, as the events that tell of them, in the order of the
    /// chunks; from the event `from` on where one is given. Reads only events that are new to it.
    pub fn said_of_chunks(
        &self,
        timeline: &Timeline,
        from: Option<Seq>,
    ) -> Result<Result<Vec<Seq>, NoSuchChunk>, TimelineError> {
        // Others get at what is known between two steps.
        while self.chunks.lock().follow(timeline, self.id())? {}
        Ok(self.chunks.lock().from(from))
    }
}

impl ChunkOrder {
    /// Takes in some of what `run` has been told since; false once that is all.
    fn follow(&mut self, timeline: &Timeline, run: RunId) -> Result<bool, TimelineError> {
        let mut is_news = false;
        for (kind, next) in KINDS.into_iter().zip(&mut self.next) {
            for stored in timeline.read_parts(run, *next, READ, Some(kind))? {
                is_news = true;
                *next = Seq(stored.head.seq.0 + 1);
                // Of what is without an answer nobody said anything.
                let place = match readable(&stored) {
                    Some(Event::SemanticChunkInferred(chunk)) if !chunk.semantic_fallback_used => {
                        chunk.chunk_index
                    }
                    Some(Event::Found(_, finding)) if finding.summary.is_some() => {
                        finding.frame_index
                    }
                    _ => continue,
                };
                self.order.insert((place, stored.head.seq));
            }
        }
        Ok(is_news)
    }

    /// The events in the order of their chunks, from the event `from` on where one is given.
    fn from(&self, from: Option<Seq>) -> Result<Vec<Seq>, NoSuchChunk> {
        let events = self.order.iter().map(|(_, seq)| *seq);
        let Some(from) = from else { return Ok(events.collect()) };
        let left = events.skip_while(|seq| *seq != from).collect::<Vec<_>>();
        if left.is_empty() { Err(NoSuchChunk) } else { Ok(left) }
    }
}
