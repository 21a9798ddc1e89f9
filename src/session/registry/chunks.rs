//! The chunks of a run that a model answered for, in their order: answers come in any.
//!
//! Holds two numbers a chunk, and reads each event once.

use std::collections::BTreeSet;

use media::{RunId, Seq};
use timeline::{Event, EventKind, Timeline, TimelineError};

use super::run::{Run, lock};

/// Events read from the log at a time; a payload is at most a MiB.
const READ: usize = 16;

/// Positions of chunks and of the events that tell of them, among the events before `next`.
#[derive(Default)]
pub(super) struct ChunkOrder {
    next: Seq,
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
        while lock(&self.chunks).follow(timeline, self.id())? {}
        Ok(lock(&self.chunks).from(from))
    }
}

impl ChunkOrder {
    /// Takes in some of what `run` has been told since; false once that is all.
    fn follow(&mut self, timeline: &Timeline, run: RunId) -> Result<bool, TimelineError> {
        let kind = Some(EventKind::SemanticChunkInferred);
        let page = timeline.read(run, self.next, READ, kind)?;
        let Some(last) = page.last() else { return Ok(false) };
        let next = Seq(last.head.seq.0 + 1);
        for stored in page {
            let Event::SemanticChunkInferred(chunk) = stored.decode()? else { continue };
            // Of a chunk without an answer nobody said anything.
            if !chunk.semantic_fallback_used {
                self.order.insert((chunk.chunk_index, stored.head.seq));
            }
        }
        self.next = next;
        Ok(true)
    }

    /// The events in the order of their chunks, from the event `from` on where one is given.
    fn from(&self, from: Option<Seq>) -> Result<Vec<Seq>, NoSuchChunk> {
        let events = self.order.iter().map(|(_, seq)| *seq);
        let Some(from) = from else { return Ok(events.collect()) };
        let left = events.skip_while(|seq| *seq != from).collect::<Vec<_>>();
        if left.is_empty() { Err(NoSuchChunk) } else { Ok(left) }
    }
}
