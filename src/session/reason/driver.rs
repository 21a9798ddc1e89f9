//! Asks models about chunks as they come, and records what they say as they say it.
//!
//! Holds the pictures of as many chunks as are asked about and no more: whoever sends the next one
//! waits. Ends at once when it is cancelled; asks under way are dropped with it.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use gate::Reason;
use infer::{Finding, Tokens};
use media::{ErrorKind, EventType, Label, RequestId, StreamId};
use serde_json::Value;
use timeline::{Event, Pass, SemanticChunkGenerated, SemanticChunkInferred};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;
use worker::Chunk;

use super::ledger::{Inquiry, Ledger, Question, Span, Timing, Totals};
use crate::{
    analysis::{Insight, Said},
    labels::Words,
    metrics::Metrics,
    session::{
        patience::patiently,
        registry::{Registry, Run, RunError},
    },
    telemetry::SPANS,
};

/// Bytes of a model's text that an event repeats.
const RAW_BYTES_MAX: usize = 64 << 10;
/// How long the events of a chunk wait for room in the log.
const LOG_PATIENCE: Duration = Duration::from_secs(30);

/// What a model answered.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Name of the backend.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Which pass it was.
    pub pass: Pass,
    /// Another backend than the first answered.
    pub provider_fallback_used: bool,
    /// The text.
    pub text: String,
    /// The text as JSON, valid by the schema.
    pub json: Value,
    /// Why the second pass has no answer, where there was one; in words that the owner may read.
    pub second_failed: Option<String>,
    /// Tokens of all asks that it took.
    pub tokens: Tokens,
    /// Time of all asks that it took.
    pub latency: Duration,
    /// Requests that were sent for it.
    pub attempts: u32,
}

/// Why there is no answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unanswered {
    /// In words that the owner may read.
    pub reason: String,
    /// The asks that came to nothing; `None` where it got no place and nothing was sent.
    pub sent: Option<Sent>,
}

/// Asks that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sent {
    /// Name of the backend that failed last; `None` where none is known.
    pub provider: Option<String>,
    /// The model.
    pub model: String,
    /// Tokens of all of them.
    pub tokens: Tokens,
    /// Time of all of them, without the wait for a place.
    pub latency: Duration,
    /// Requests that were sent.
    pub attempts: u32,
}

/// An answer to come; dropping it gives the ask up.
pub type Describing = Pin<Box<dyn Future<Output = Result<Answered, Unanswered>> + Send>>;

/// Whoever has a model describe pictures; every ask ends by itself.
pub trait Describer: Send + Sync {
    /// Asks.
    fn describe(&self, question: Question) -> Describing;
}

/// What the events of a reasoning share.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The request.
    pub request_id: RequestId,
    /// The stream of the run.
    pub stream_id: StreamId,
    /// The caller's index.
    pub index_name: Option<Label>,
    /// The tenant's words.
    pub words: Words,
}

/// What came of all asks.
#[derive(Debug, Default)]
pub struct Told {
    /// By the frames of each chunk, not in order.
    pub insights: Vec<(Span, Arc<Insight>)>,
    /// The figures.
    pub totals: Totals,
    /// Chunks were left out because it was cancelled.
    pub is_cut: bool,
    /// What ended it before its time; what was said until then is on the timeline.
    pub failed: Option<RunError>,
}

impl Told {
    /// Something of it is on the timeline.
    pub fn has_said(&self) -> bool {
        !self.insights.is_empty()
    }
}

/// The asks of one reasoning.
pub struct Driver {
    /// The log.
    pub registry: Arc<Registry>,
    /// The run.
    pub run: Arc<Run>,
    /// What is counted.
    pub metrics: Arc<Metrics>,
    /// Whom to ask.
    pub describer: Arc<dyn Describer>,
    /// What the events share.
    pub subject: Subject,
}

/// An ask that has ended.
struct Done {
    chunk_index: u64,
    /// What the gate says of the chunk.
    event_type: EventType,
    prompt_version: String,
    outcome: Result<Answered, Unanswered>,
}

impl Driver {
    /// Asks about every chunk until the sender is gone and all is answered, or until `cancel`.
    pub async fn run(
        self,
        inquiry: Inquiry,
        mut chunks: mpsc::Receiver<Chunk>,
        cancel: CancellationToken,
    ) -> Told {
        let started = Instant::now();
        let mut ledger = Ledger::new(inquiry);
        let (mut insights, mut asks, mut is_open) = (Vec::new(), JoinSet::new(), true);
        let (mut is_cut, mut failed) = (false, None);
        while is_open || !asks.is_empty() {
            tokio::select! {
                biased;
                () = cancel.cancelled() => {
                    is_cut = true;
                    break;
                }
                Some(done) = asks.join_next() => {
                    // A panic in an ask is our bug, and the job's end.
                    let Ok(done) = done else {
                        failed = Some(RunError::Unfinished);
                        break;
                    };
                    let Some((span, insight, events)) = self.close(&mut ledger, done, started)
                    else { continue };
                    match self.commit(events, &cancel).await {
                        Ok(()) => insights.push((span, insight)),
                        Err(RunError::Terminal(_) | RunError::NotFound) => {
                            is_cut = true;
                            break;
                        }
                        Err(error) => {
                            failed = Some(error);
                            break;
                        }
                    }
                }
                chunk = chunks.recv(), if is_open && ledger.has_room() => match chunk {
                    Some(chunk) => self.ask(&mut ledger, chunk, started, &mut asks),
                    None => is_open = false,
                },
            }
        }
        // The permits of asks that were given up are back once this returns.
        asks.shutdown().await;
        Told { insights, totals: ledger.totals(), is_cut, failed }
    }

    /// Appends the events of a chunk; waits a while where the log has no room for them.
    async fn commit(&self, events: Vec<Event>, cancel: &CancellationToken) -> Result<(), RunError> {
        let lacks_room = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let attempt = |_| self.registry.commit(&self.run, events.clone());
        patiently(LOG_PATIENCE, cancel, lacks_room, attempt).await.map(drop)
    }

    fn ask(&self, ledger: &mut Ledger, chunk: Chunk, started: Instant, asks: &mut JoinSet<Done>) {
        let chosen = chunk.views.iter().filter(|view| view.reason.is_some()).count();
        self.metrics.keyframes.inc_by(chosen as u64);
        let strongest = chunk.views.iter().filter_map(|view| view.reason).min_by_key(priority);
        let event_type = strongest.map_or(EventType::ContextObservation, Reason::event_type);
        let question = ledger.ask(chunk, started.elapsed());
        let chunk_index = question.chunk_index;
        let prompt_version = question.prompt.version.to_string();
        let span = tracing::info_span!(target: SPANS, "chunk", chunk_index);
        let asking = self.describer.describe(question);
        let asking =
            async move { Done { chunk_index, event_type, prompt_version, outcome: asking.await } };
        asks.spawn(asking.instrument(span));
    }

    /// What the frames of the chunk get, and its two events.
    fn close(
        &self,
        ledger: &mut Ledger,
        done: Done,
        started: Instant,
    ) -> Option<(Span, Arc<Insight>, Vec<Event>)> {
        let Done { chunk_index, event_type, prompt_version, outcome } = done;
        let found = outcome.as_ref().map(|answer| Finding::read(&answer.json)).ok();
        let said = found.as_ref().map(|found| found.description.as_str());
        let (tokens, latency) = match &outcome {
            Ok(answer) => (answer.tokens, answer.latency),
            Err(Unanswered { sent: Some(sent), .. }) => (sent.tokens, sent.latency),
            Err(Unanswered { sent: None, .. }) => (Tokens::default(), Duration::ZERO),
        };
        let now = started.elapsed();
        let (span, timing) = ledger.close(chunk_index, said, tokens, latency, now)?;
        let of_gate = self.subject.words.event_type(event_type);
        let is_unsent = outcome.as_ref().is_err_and(|unanswered| unanswered.sent.is_none());
        let prompt_version = (!is_unsent).then_some(prompt_version);
        let mut inferred = self.inferred(span, of_gate, prompt_version, latency);
        inferred.tokens = counted(tokens);
        let insight = match (outcome, found) {
            (Ok(answer), Some(found)) => {
                let said = self.subject.said(&found);
                let spoken = said.event_type.clone();
                inferred.provider = Some(answer.provider);
                inferred.semantic_error = answer.second_failed;
                inferred.provider_fallback_used = answer.provider_fallback_used;
                inferred.event_type = spoken.unwrap_or(inferred.event_type);
                inferred.object_label = said.object_label.clone();
                inferred.summary = found.summary;
                inferred.description = found.description;
                inferred.confidence = said.confidence;
                inferred.raw_output = cut(answer.text);
                inferred.tier = Some(answer.pass);
                inferred.model = Some(answer.model);
                inferred.attempts = Some(answer.attempts);
                Insight::Said(said)
            }
            (outcome, _) => {
                let Unanswered { reason, sent } = outcome.err().unwrap_or_default();
                if let Some(sent) = sent {
                    inferred.provider = sent.provider;
                    inferred.tier = Some(Pass::First);
                    inferred.model = Some(sent.model);
                    inferred.attempts = Some(sent.attempts);
                }
                inferred.semantic_fallback_used = true;
                inferred.semantic_error = Some(reason.clone());
                Insight::Unsaid(reason)
            }
        };
        let generated = self.generated(span, timing, counted(tokens), latency);
        let events =
            vec![Event::SemanticChunkInferred(inferred), Event::SemanticChunkGenerated(generated)];
        Some((span, Arc::new(insight), events))
    }

    /// As no model answered.
    fn inferred(
        &self,
        span: Span,
        event_type: EventType,
        prompt_version: Option<String>,
        latency: Duration,
    ) -> SemanticChunkInferred {
        SemanticChunkInferred {
            request_id: self.subject.request_id,
            stream_id: self.subject.stream_id.clone(),
            chunk_index: span.chunk_index,
            provider: None,
            provider_fallback_used: false,
            semantic_fallback_used: false,
            semantic_error: None,
            event_type,
            object_label: None,
            summary: String::new(),
            description: String::new(),
            confidence: None,
            raw_output: String::new(),
            tokens: timeline::Tokens::default(),
            inference_latency_ms: latency.as_millis() as u64,
            tier: None,
            model: None,
            attempts: None,
            prompt_version,
            start_pts_ms: Some(span.start_pts_ms),
            end_pts_ms: Some(span.end_pts_ms),
            index_name: self.subject.index_name.clone(),
        }
    }

    fn generated(
        &self,
        span: Span,
        timing: Timing,
        tokens: timeline::Tokens,
        latency: Duration,
    ) -> SemanticChunkGenerated {
        SemanticChunkGenerated {
            request_id: self.subject.request_id,
            stream_id: self.subject.stream_id.clone(),
            chunk_index: span.chunk_index,
            chunk_frames: span.frames,
            process_ms: timing.process_ms,
            source_span_ms: span.end_pts_ms.saturating_sub(span.start_pts_ms).max(0) as u64,
            lag_ms: timing.lag_ms,
            index_name: self.subject.index_name.clone(),
            tokens,
            inference_latency_ms: latency.as_millis() as u64,
        }
    }
}

impl Subject {
    /// What a model found, in the tenant's words.
    fn said(&self, found: &Finding) -> Said {
        let event_type = found.event_type.clone();
        Said {
            is_scene_cut: event_type == Some(EventType::SceneCut),
            event_type: event_type.map(|event_type| self.words.event_type(event_type)),
            confidence: found.confidence,
            object_label: found.object_label.as_deref().map(|label| self.words.object_label(label)),
            summary: found.summary.clone(),
        }
    }
}

fn counted(tokens: Tokens) -> timeline::Tokens {
    timeline::Tokens {
        prompt_tokens: tokens.prompt,
        completion_tokens: tokens.completion,
        thinking_tokens: tokens.thinking,
        total_tokens: tokens.total,
    }
}

/// The start of a model's text, as much as an event holds beside everything else.
fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(RAW_BYTES_MAX));
    text
}

/// Strongest first.
fn priority(reason: &Reason) -> usize {
    Reason::ALL.iter().position(|known| known == reason).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
