//! Closed chunks on their way to the timeline: written together, while others are asked about, each
//! right behind the stills of its frames.

use std::{future::pending, pin::Pin, sync::Arc, time::Duration};

use media::ErrorKind;
use timeline::{Appended, Event, SemanticChunkInferred};
use tokio_util::sync::CancellationToken;

use super::{Closed, Driver, Span, Work};
use crate::{
    analysis::Insight,
    session::{patience::patiently, reason::reuse::Answer, registry::RunError, runner::Stored},
};

/// How long the events of chunks wait for room in the log.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// Chunks whose events are not on the timeline.
#[derive(Default)]
pub(super) struct Unwritten {
    waiting: Vec<Closed>,
    writing: Option<Writing>,
    /// Of those that are being written.
    chunks: Vec<u64>,
}

/// A write under way, which nothing but a dead log keeps from its end.
type Writing = Pin<Box<dyn Future<Output = Written> + Send>>;

/// Chunks and what the log said to them.
pub(super) struct Written {
    leaves: Vec<Leaf>,
    outcome: Result<Vec<Appended>, RunError>,
}

/// What is left of a chunk once it is written.
struct Leaf {
    span: Span,
    /// Events of its stills, which come before its own.
    stills: usize,
    insight: Arc<Insight>,
    /// What other chunks may repeat.
    said: Option<SemanticChunkInferred>,
}

impl Unwritten {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.waiting.len() + self.chunks.len()
    }

    /// The chunk is one of them.
    pub fn contains(&self, chunk: u64) -> bool {
        let waits = |closed: &Closed| closed.span.chunk_index == chunk;
        self.chunks.contains(&chunk) || self.waiting.iter().any(waits)
    }

    pub fn push(&mut self, closed: Closed) {
        self.waiting.push(closed);
    }

    /// What comes of the write under way; never where there is none.
    pub async fn written(&mut self) -> Written {
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

impl Driver {
    /// Begins to write what waits, unless a write is under way.
    pub(super) fn write(&self, work: &mut Work, cancel: &CancellationToken) {
        if work.unwritten.writing.is_some() || work.unwritten.waiting.is_empty() {
            return;
        }
        let reuses = work.reuses();
        let (mut events, mut leaves) = (Vec::new(), Vec::new());
        for closed in work.unwritten.waiting.drain(..) {
            let Closed { span, insight, inferred, generated, is_answered } = closed;
            let said = (is_answered && reuses).then(|| inferred.clone());
            let stills = self.stills(work.stills.get(&span.chunk_index));
            let before = events.len();
            events.extend(stills);
            let stills = events.len() - before;
            events.push(Event::SemanticChunkInferred(inferred));
            events.push(Event::SemanticChunkGenerated(generated));
            leaves.push(Leaf { span, stills, insight, said });
        }
        work.unwritten.chunks = leaves.iter().map(|leaf| leaf.span.chunk_index).collect();
        let (registry, run) = (Arc::clone(&self.registry), Arc::clone(&self.run));
        let cancel = cancel.clone();
        work.unwritten.writing = Some(Box::pin(async move {
            let lacks_room = |error: &RunError| error.kind() == ErrorKind::Exhausted;
            let attempt = |_| registry.commit(&run, events.clone());
            let outcome = patiently(LOG_PATIENCE, &cancel, lacks_room, attempt).await;
            Written { leaves, outcome }
        }));
    }

    /// The events of these stills, in the tenant's words.
    fn stills(&self, stored: Option<&Vec<Stored>>) -> impl Iterator<Item = Event> {
        let run = self.run.id();
        stored.into_iter().flatten().map(move |still| {
            let event_type = self.subject.words.event_type(still.event_type.clone());
            Stored { event_type, ..still.clone() }.event(run)
        })
    }

    /// Takes in what was written, and has the chunks that waited for it go on.
    pub(super) fn take_in(&self, work: &mut Work, written: Written) -> Result<(), RunError> {
        let Written { leaves, outcome } = written;
        // What a log said that failed may be there all the same.
        if !matches!(outcome, Err(RunError::Terminal(_) | RunError::NotFound)) {
            let chunks = leaves.iter().filter_map(|leaf| work.stills.get(&leaf.span.chunk_index));
            work.stills_bytes += chunks.flatten().map(|still| still.bytes).sum::<u64>();
        }
        let mut appended = outcome?.into_iter();
        for Leaf { span, stills, insight, said } in leaves {
            work.stills.remove(&span.chunk_index);
            work.insights.push((span, Arc::clone(&insight)));
            // Behind its stills a chunk has two events, and the first of them tells what was said.
            let seq = appended.by_ref().nth(stills).map(|appended| appended.seq);
            appended.next();
            let answer = said.zip(seq).map(|(said, seq)| Answer { seq, said, insight });
            for (asking, answer) in work.standing.close(span.chunk_index, answer) {
                self.stand(work, asking, answer);
            }
        }
        Ok(())
    }

    /// Writes what is left once nothing is asked any more.
    pub(super) async fn write_rest(
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
