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

impl Run {
    /// Chunks that a model answered for, as the events that tell of them, in the order of the
    /// chunks; from the event `from` on where one is given. Reads only events that are new to it.
    pub fn said_of_chunks(
        &self,
        timeline: &Timeline,
        from: Option<Seq>,
    ) -> Result<Vec<Seq>, TimelineError> {
        let mut chunks = lock(&self.chunks);
        chunks.follow(timeline, self.id())?;
        Ok(chunks.from(from))
    }
}

impl ChunkOrder {
    /// Takes in what `run` has been told since.
    fn follow(&mut self, timeline: &Timeline, run: RunId) -> Result<(), TimelineError> {
        loop {
            let kind = Some(EventKind::SemanticChunkInferred);
            let page = timeline.read(run, self.next, READ, kind)?;
            let Some(last) = page.last() else { return Ok(()) };
            let next = Seq(last.head.seq.0 + 1);
            for stored in page {
                let Event::SemanticChunkInferred(chunk) = stored.decode()? else { continue };
                // Of a chunk without an answer nobody said anything.
                if !chunk.semantic_fallback_used {
                    self.order.insert((chunk.chunk_index, stored.head.seq));
                }
            }
            self.next = next;
        }
    }

    /// The events in the order of their chunks, from the event `from` on where one is given.
    fn from(&self, from: Option<Seq>) -> Vec<Seq> {
        let events = self.order.iter().map(|(_, seq)| *seq);
        events.skip_while(|seq| from.is_some_and(|from| from != *seq)).collect()
    }
}
