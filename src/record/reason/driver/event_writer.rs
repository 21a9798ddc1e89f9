//! Closed chunks on their way to the timeline: written together, while others are asked about.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use media::ErrorKind;
use timeline::{AppendResult, Event, SemanticChunkInferred};
use tokio_util::sync::CancellationToken;

use super::{Closed, End, FrameRange, ReasonDriver, Work};
use crate::{
    base::retry_while_full::retry_while_full,
    record::{
        gate_replay::ModelOutcome,
        reason::chunk_dedup::{AnswerCache, ReusableAnswer},
    },
    runs::registry::{Part, RunError},
};

/// Longest wait of the events of chunks for room in the log.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// Chunks whose events are not on the timeline.
#[derive(Default)]
pub(super) struct WriteQueue {
    waiting: Vec<Closed>,
    writing: Option<Writing>,
    /// Chunks that are being written, and whether a model answered.
    chunks: Vec<(u64, bool)>,
}

/// A write under way, which nothing but a dead log keeps from its end.
type Writing = Pin<Box<dyn Future<Output = WriteOutcome> + Send>>;

/// Chunks and what the log said to them.
pub(super) struct WriteOutcome {
    leaves: Vec<Leaf>,
    outcome: Result<Vec<AppendResult>, RunError>,
}

/// Part of a chunk that is kept until its write has ended.
struct Leaf {
    span: FrameRange,
    insight: Arc<ModelOutcome>,
    /// Answer that other chunks may repeat.
    said: Option<SemanticChunkInferred>,
}

impl WriteQueue {
    /// Number of chunks that are not written yet.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.chunks.len()
    }

    /// The chunk is one of them, and has an answer that others may repeat once it is written.
    pub fn answers(&self, chunk: u64) -> bool {
        let waits = |closed: &Closed| closed.is_answered && closed.span.chunk_index == chunk;
        self.chunks.contains(&(chunk, true)) || self.waiting.iter().any(waits)
    }

    pub fn push(&mut self, closed: Closed) {
        self.waiting.push(closed);
    }

    /// Awaits the write under way; never returns where there is none.
    pub async fn written(&mut self) -> WriteOutcome {
        match &mut self.writing {
            Some(writing) => {
                let written = writing.await;
                self.writing = None;
                self.chunks.clear();
                written
            }
            None => pending().await,
        }
    }
}

impl ReasonDriver {
    /// Begins to write what waits, unless a write is under way.
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
        let (registry, run) = (Arc::clone(&self.registry), Arc::clone(&self.run));
        let cancel = cancel.clone();
        work.unwritten.writing = Some(Box::pin(async move {
            let lacks_room = |error: &RunError| error.kind() == ErrorKind::Exhausted;
            // Also of a run that was stopped: it is what its job had come to.
            let attempt = |_| registry.wind_up(&run, Part::Middle, events.clone(), None);
            let outcome = retry_while_full(LOG_PATIENCE, &cancel, lacks_room, attempt).await;
            WriteOutcome { leaves, outcome }
        }));
    }

    /// Takes in what was written, and has the chunks that waited for it go on.
    pub(super) fn take_in(&self, work: &mut Work, written: WriteOutcome) -> Result<(), RunError> {
        let WriteOutcome { leaves, outcome } = written;
        let mut appended = outcome?.into_iter();
        for Leaf { span, insight, said } in leaves {
            work.insights.push((span, Arc::clone(&insight)));
            // The first of its two events tells what was said.
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

    /// Gives up what is asked and keeps what was answered by now, where the run still takes it; what it
    /// all ends with.
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
        // The permits of asks that were given up are back once this is done.
        work.asks.shutdown().await;
        match end {
            // The log itself takes no more.
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

    /// Writes what is left once nothing is asked any more.
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
