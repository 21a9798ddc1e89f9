//! Asks models about chunks as they arrive, and records the answers.
//!
//! Holds the pictures of the chunks in progress and of a few that wait for an answer, then applies
//! backpressure. Ends at once when cancelled; requests in progress are dropped.

use std::{future::pending, sync::Arc, time::Instant};

use embed::NoveltyReason;
use gate::SelectionReason;
use infer::{Finding, RequestCost, TwoPassAnswer};
use media::{EventType, Label, RequestId, StreamId};
use timeline::{SemanticChunkGenerated, SemanticChunkInferred, SemanticOutcome};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use worker::FrameChunk;

use super::{
    chunk_dedup::{AnswerCache, ChunkComparer, CompareFuture, DuplicateAction, ReusableAnswer},
    chunk_tracker::{ChunkPrompt, ChunkTracker, FrameRange, PromptConfig, Totals},
    describer::{DescribeError, Describer},
};
use crate::{
    base::{
        labels::TenantLabels,
        metrics::{Metrics, NoveltyDecision},
        telemetry::SPANS,
    },
    record::{gate_replay::ModelOutcome, recording::RunLog},
    runs::registry::{JobToken, RunError},
};
use event_writer::WriteQueue;
pub use record::RAW_BYTES_MAX;

mod event_writer;
mod record;

/// Chunks that may wait for another chunk's answer, besides those in progress.
const WAITING_MAX: usize = 16;
/// Chunks that may wait for the log.
const UNWRITTEN_MAX: usize = 16;

/// Fields that all events of a reasoning share.
#[derive(Clone, Debug)]
pub struct EventContext {
    pub request_id: RequestId,
    pub stream_id: StreamId,
    pub index_name: Option<Label>,
    pub words: TenantLabels,
    pub keeps_output: bool,
}

/// Result of the model stage of a reasoning.
#[derive(Debug, Default)]
pub struct ReasonOutcome {
    /// Outcomes by the frames of each chunk, unordered.
    pub insights: Vec<(FrameRange, Arc<ModelOutcome>)>,
    pub totals: Totals,
    /// Counts of the chunks, and the error of the first unanswered one.
    pub semantic: SemanticOutcome,
    /// True if a cancellation left chunks out.
    pub is_cut: bool,
    /// Error that ended the stage early; earlier answers are on the timeline.
    pub failed: Option<RunError>,
}

pub struct ReasonDriver {
    pub log: RunLog,
    pub metrics: Arc<Metrics>,
    pub describer: Arc<dyn Describer>,
    pub subject: EventContext,
    pub token: JobToken,
}

struct Asking {
    question: ChunkPrompt,
    /// Event type of the chunk by the gate.
    event_type: EventType,
}

struct Done {
    chunk_index: u64,
    event_type: EventType,
    prompt_version: String,
    outcome: Outcome,
}

enum Outcome {
    /// A model answered: its answer, and the finding in it.
    Answered(Box<(TwoPassAnswer, Finding)>),
    Unanswered(DescribeError),
    Reused(Arc<ReusableAnswer>),
}

/// Events and insight of a chunk, ready to be written.
struct Closed {
    span: FrameRange,
    insight: Arc<ModelOutcome>,
    inferred: SemanticChunkInferred,
    generated: SemanticChunkGenerated,
    /// True if a model answered for this chunk itself.
    is_answered: bool,
}

struct Work {
    ledger: ChunkTracker,
    started: Instant,
    insights: Vec<(FrameRange, Arc<ModelOutcome>)>,
    asks: JoinSet<Done>,
    /// True while more chunks may arrive.
    is_open: bool,
    judge: Option<ChunkComparer>,
    judging: Option<CompareFuture>,
    standing: AnswerCache<Asking>,
    unwritten: WriteQueue,
    first_error: Option<String>,
}

impl Work {
    fn new(ledger: ChunkTracker, judge: Option<ChunkComparer>) -> Work {
        Work {
            ledger,
            started: Instant::now(),
            insights: Vec::new(),
            asks: JoinSet::new(),
            is_open: true,
            judge,
            judging: None,
            standing: AnswerCache::default(),
            unwritten: WriteQueue::default(),
            first_error: None,
        }
    }

    fn goes_on(&self) -> bool {
        let is_at_work = self.judging.is_some() || !self.asks.is_empty();
        self.is_open || is_at_work || self.unwritten.len() > 0
    }

    /// Returns true if answers may be reused: a comparer exists, idle or busy.
    fn reuses(&self) -> bool {
        self.judge.is_some() || self.judging.is_some()
    }

    fn takes_more(&self) -> bool {
        let waiting = self.standing.waiting();
        let has_room = waiting < WAITING_MAX
            && self.unwritten.len() < UNWRITTEN_MAX
            && self.ledger.has_room(waiting);
        self.is_open && self.judging.is_none() && has_room
    }
}

impl Outcome {
    fn cost(&self) -> RequestCost {
        match self {
            Outcome::Answered(answered) => answered.0.answer.cost,
            Outcome::Unanswered(DescribeError { sent: Some(sent), .. }) => sent.cost,
            _ => RequestCost::default(),
        }
    }
}

/// Reason that the model stage ends early.
enum End {
    /// The job was cancelled, or its run has ended.
    Cut,
    /// A request task panicked.
    Lost,
    Failed(RunError),
}

impl From<RunError> for End {
    fn from(error: RunError) -> End {
        match error {
            RunError::Terminal(_) | RunError::NotFound => End::Cut,
            error => End::Failed(error),
        }
    }
}

/// Awaits what is in progress; pending for ever if nothing is.
async fn awaited<F: Future + Unpin>(going_on: &mut Option<F>) -> F::Output {
    match going_on {
        Some(future) => future.await,
        None => pending().await,
    }
}

impl ReasonDriver {
    /// Handles every chunk until the sender is gone and all are done, or until `cancel`. Reuses an
    /// earlier answer for a chunk in which `judge` finds nothing new.
    pub async fn run(
        self,
        inquiry: PromptConfig,
        judge: Option<ChunkComparer>,
        mut chunks: mpsc::Receiver<FrameChunk>,
        cancel: CancellationToken,
    ) -> ReasonOutcome {
        let mut work = Work::new(ChunkTracker::new(inquiry), judge);
        let ended = loop {
            self.write(&mut work, &cancel);
            self.token.tell_chunks(work.ledger.progress());
            if !work.goes_on() {
                break Ok(());
            }
            tokio::select! {
                biased;
                () = cancel.cancelled() => break Err(End::Cut),
                Some(done) = work.asks.join_next() => {
                    // A panic in a request is a bug, and ends the job.
                    let Ok(done) = done else { break Err(End::Lost) };
                    self.settle(&mut work, done);
                }
                written = work.unwritten.written() => {
                    if let Err(error) = self.take_in(&mut work, written) {
                        break Err(error.into());
                    }
                }
                judged = awaited(&mut work.judging) => {
                    work.judging = None;
                    work.judge = Some(judged.judge);
                    self.take(&mut work, judged.chunk, judged.same_as);
                }
                chunk = chunks.recv(), if work.takes_more() => match chunk {
                    Some(chunk) => match work.judge.take() {
                        Some(judge) => work.judging = Some(judge.judging(chunk)),
                        None => self.take(&mut work, chunk, None),
                    },
                    None => work.is_open = false,
                },
            }
        };
        let (is_cut, failed) = match ended {
            Ok(()) => (false, None),
            Err(end) => match self.wind_up(&mut work, end, &cancel).await {
                End::Cut => (true, None),
                End::Lost => (false, Some(RunError::Unfinished)),
                End::Failed(error) => (false, Some(error)),
            },
        };
        let Work { insights, mut ledger, first_error, .. } = work;
        let progress = ledger.progress();
        let semantic = SemanticOutcome {
            requested: true,
            chunks_asked: progress.asked,
            chunks_failed: progress.unanswered,
            error: first_error,
            fallback_used: progress.unanswered > 0,
        };
        ReasonOutcome { insights, totals: ledger.totals(), semantic, is_cut, failed }
    }

    /// Closes a chunk with an outcome. If it is unanswered, the next chunk that waits for its
    /// answer is asked about at once, before a new chunk takes its permit.
    fn settle(&self, work: &mut Work, done: Done) {
        let Some(closed) = self.close(work, done) else { return };
        if !closed.is_answered {
            for (asking, answer) in work.standing.close(closed.span.chunk_index, None) {
                self.reuse_answer(work, asking, answer);
            }
        }
        work.unwritten.push(closed);
    }

    /// Takes a chunk; `same_as` is the chunk that shows all that this one does.
    fn take(&self, work: &mut Work, chunk: FrameChunk, same_as: Option<u64>) {
        let chosen = chunk.views.iter().filter(|view| view.reason.is_some()).count();
        self.metrics.keyframes.inc_by(chosen as u64);
        let strongest = chunk.views.iter().filter_map(|view| view.reason).min_by_key(priority);
        let event_type =
            strongest.map_or(EventType::ContextObservation, SelectionReason::event_type);
        let chunk_index = chunk.index;
        let turn = same_as.map(|other| {
            let is_asked = work.ledger.is_asked(other) || work.unwritten.answers(other);
            (other, work.standing.turn(chunk_index, other, is_asked))
        });
        let question = work.ledger.ask(chunk, work.started.elapsed());
        let asking = Asking { question, event_type };
        match turn {
            None => self.begin(work, asking, None),
            Some((_, DuplicateAction::Answered(answer))) => {
                self.reuse_answer(work, asking, Some(answer))
            }
            Some((other, DuplicateAction::Waits)) => work.standing.wait(chunk_index, other, asking),
            Some((_, DuplicateAction::Deputy)) => self.reuse_answer(work, asking, None),
        }
    }

    /// Reuses `answer` for a chunk, or asks about the chunk if there is none.
    fn reuse_answer(&self, work: &mut Work, asking: Asking, answer: Option<Arc<ReusableAnswer>>) {
        let decision = match answer {
            Some(_) => NoveltyDecision::Reuse,
            // No description exists of the chunk's content.
            None => NoveltyDecision::of_newness(NoveltyReason::First),
        };
        self.metrics.novelty_decisions.of(decision).inc();
        self.begin(work, asking, answer);
    }

    fn begin(&self, work: &mut Work, asking: Asking, answer: Option<Arc<ReusableAnswer>>) {
        let Asking { question, event_type } = asking;
        let chunk_index = question.chunk_index;
        let prompt_version = question.prompt.version.to_string();
        let span = tracing::info_span!(target: SPANS, "chunk", chunk_index);
        let described = match answer {
            Some(answer) => Err(answer),
            None => Ok(self.describer.describe(question)),
        };
        let ask = async move {
            let outcome = match described {
                Ok(describing) => match describing.await {
                    Ok(described) => {
                        let answer = &described.answer;
                        let words = || Finding::of_text(&answer.text);
                        let found = answer.json.as_ref().map_or_else(words, Finding::read);
                        Outcome::Answered(Box::new((described, found)))
                    }
                    Err(unanswered) => Outcome::Unanswered(unanswered),
                },
                Err(answer) => Outcome::Reused(answer),
            };
            Done { chunk_index, event_type, prompt_version, outcome }
        };
        work.asks.spawn(ask.instrument(span));
    }
}

/// Returns the rank of a reason; the strongest is 0.
fn priority(reason: &SelectionReason) -> usize {
    SelectionReason::ALL.iter().position(|known| known == reason).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
