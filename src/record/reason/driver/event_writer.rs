//! Writes closed chunks to the timeline in batches, while other chunks are asked about.

use std::{pin::Pin, sync::Arc};

use timeline::{Event, EventMeta, SemanticChunkInferred};
use tokio_util::sync::CancellationToken;

use super::{Closed, End, FrameRange, ReasonDriver, Work, awaited};
use crate::{
    record::{
        gate_replay::ModelOutcome,
        reason::chunk_dedup::{AnswerCache, ReusableAnswer},
    },
    runs::registry::{Part, RunError},
};

/// Closed chunks whose events are not on the timeline.
#[derive(Default)]
pub(super) struct WriteQueue {
    waiting: Vec<Closed>,
    writing: Option<Writing>,
    /// Index of each chunk being written, and true if a model answered for it.
    chunks: Vec<(u64, bool)>,
}

/// Write in progress; only a dead log keeps it from ending.
type Writing = Pin<Box<dyn Future<Output = WriteOutcome> + Send>>;

pub(super) struct WriteOutcome {
    leaves: Vec<Leaf>,
    outcome: Result<Vec<EventMeta>, RunError>,
}

/// Part of a chunk that is kept until its write has ended.
struct Leaf {
    span: FrameRange,
    insight: Arc<ModelOutcome>,
    /// Answer that other chunks may reuse.
    said: Option<SemanticChunkInferred>,
}

impl WriteQueue {
    /// Number of chunks that are not written yet.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.chunks.len()
    }

    /// Returns true if `chunk` is in the queue with an answer that others may reuse once it is written.
    pub fn answers(&self, chunk: u64) -> bool {
        let waits = |closed: &Closed| closed.is_answered && closed.span.chunk_index == chunk;
        self.chunks.contains(&(chunk, true)) || self.waiting.iter().any(waits)
    }

    pub fn push(&mut self, closed: Closed) {
        self.waiting.push(closed);
    }

    /// Awaits the write in progress; pending for ever if there is none.
    pub async fn written(&mut self) -> WriteOutcome {
        let written = awaited(&mut self.writing).await;
        self.writing = None;
        self.chunks.clear();
        written
    }
}

impl ReasonDriver {
    /// Starts to write the waiting chunks, unless a write is in progress.
    pub(super) fn write(&self, work: &mut Work, cancel: &CancellationToken) {
        if work.unwritten.writing.is_some() || work.unwritten.waiting.is_empty() {
            return;
        }
        let reuses = work.reuses();
        let (mut events, mut leaves) = (Vec::new(), Vec::new());
        for closed in std::mem::take(&mut work.unwritten.waiting) {
            let Closed { span, insight, inferred, generated, is_answered } = closed;
            work.unwritten.chunks.push((span.chunk_index, is_answered));
            let said = (is_answered && reuses).then(|| inferred.clone());
            events.push(Event::SemanticChunkInferred(inferred));
            events.push(Event::SemanticChunkGenerated(generated));
            leaves.push(Leaf { span, insight, said });
        }
        let (log, cancel) = (self.log.clone(), cancel.clone());
        work.unwritten.writing = Some(Box::pin(async move {
            // A stopped run takes the events too: its job had come so far.
            let outcome = log.wind_up(Part::Middle, events, None, &cancel).await;
            WriteOutcome { leaves, outcome }
        }));
    }

    /// Takes the result of a write; chunks that waited for a written answer continue.
    pub(super) fn take_in(&self, work: &mut Work, written: WriteOutcome) -> Result<(), RunError> {
        let WriteOutcome { leaves, outcome } = written;
        let mut appended = outcome?.into_iter();
        for Leaf { span, insight, said } in leaves {
            work.insights.push((span, Arc::clone(&insight)));
            // The first of a chunk's two events holds the answer.
            let seq = appended.next().map(|appended| appended.seq);
            appended.next();
            let Some(said) = said else { continue };
            let answer = seq.map(|seq| ReusableAnswer { seq, said, insight });
            for (asking, answer) in work.standing.close(span.chunk_index, answer) {
                self.reuse_answer(work, asking, answer);
            }
        }
        Ok(())
    }

    /// Drops the requests in progress, and writes the answers received so far if the run takes
    /// them. Returns the final reason of the end.
    pub(super) async fn wind_up(
        &self,
        work: &mut Work,
        end: End,
        cancel: &CancellationToken,
    ) -> End {
        work.standing = AnswerCache::default();
        while let Some(done) = work.asks.try_join_next() {
            if let Ok(done) = done {
                self.settle(work, done);
            }
        }
        // After this, the permits of the dropped requests are released.
        work.asks.shutdown().await;
        match end {
            // The log itself has failed.
            End::Failed(_) => end,
            End::Cut | End::Lost => {
                let rest = self.write_rest(work, cancel).await;
                match rest.err().map(End::from) {
                    Some(failed @ End::Failed(_)) => failed,
                    _ => end,
                }
            }
        }
    }

    /// Writes the remaining chunks when no request is in progress.
    async fn write_rest(
        &self,
        work: &mut Work,
        cancel: &CancellationToken,
    ) -> Result<(), RunError> {
        self.write(work, cancel);
        while work.unwritten.len() > 0 {
            let written = work.unwritten.written().await;
            self.take_in(work, written)?;
            self.write(work, cancel);
        }
        Ok(())
    }
}
