//! Builds the two events of a chunk, and the insight for its frames.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use infer::{Finding, RequestCost, TokenUsage, TwoPassAnswer};
use media::EventType;
use timeline::{JsonText, Pass, SemanticChunkGenerated, SemanticChunkInferred};

use super::{
    super::{
        chunk_tracker::{FrameRange, Timing},
        describer::DescribeError,
    },
    Closed, Done, EventContext, Outcome, ReasonDriver, Work,
};
use crate::{
    base::metrics::ChunkEnd,
    record::gate_replay::{ModelFinding, ModelOutcome},
};

/// Maximum bytes of a model's text in an event.
pub const RAW_BYTES_MAX: usize = 64 << 10;

impl ReasonDriver {
    /// Closes a chunk: puts its outcome into its two events.
    pub(super) fn close(&self, work: &mut Work, done: Done) -> Option<Closed> {
        let Done { chunk_index, event_type, prompt_version, outcome } = done;
        let said = match &outcome {
            Outcome::Answered(answered) => Some(answered.1.description.as_str()),
            Outcome::Reused(answer) => Some(answer.said.description.as_str()),
            Outcome::Unanswered(_) => None,
        };
        let RequestCost { tokens, latency, .. } = outcome.cost();
        let now = work.started.elapsed();
        let (span, timing) = work.ledger.complete(chunk_index, said, tokens, latency, now)?;
        let generated = self.generated(span, timing, counted(tokens), latency);
        let mut inferred = self.inferred(span, self.subject.words.event_type(event_type), latency);
        inferred.tokens = counted(tokens);
        let is_answered = matches!(outcome, Outcome::Answered(_));
        self.metrics.reason_chunks.of(ChunkEnd::of(&outcome)).inc();
        if !matches!(outcome, Outcome::Unanswered(_)) {
            let work = self.metrics.owners.of(&self.log.run.origin().principal);
            work.descriptions.fetch_add(1, Relaxed);
        }
        let insight = match outcome {
            Outcome::Reused(answer) => answer.stand_for(&mut inferred),
            Outcome::Answered(answered) => {
                inferred.prompt_version = Some(prompt_version);
                let (described, found) = *answered;
                Arc::new(ModelOutcome::Said(self.answered(&mut inferred, described, found)))
            }
            Outcome::Unanswered(DescribeError { reason, error, sent }) => {
                self.note_failure(work, chunk_index, error);
                if let Some(sent) = sent {
                    inferred.prompt_version = Some(prompt_version);
                    inferred.provider = sent.provider;
                    inferred.provider_fallback_used = sent.provider_fallback_used;
                    inferred.tier = Some(Pass::First);
                    inferred.model = Some(sent.model);
                    inferred.attempts = Some(sent.cost.attempts);
                }
                inferred.semantic_fallback_used = true;
                inferred.semantic_error = Some(reason.clone());
                Arc::new(ModelOutcome::Unsaid(reason))
            }
        };
        Some(Closed { span, insight, inferred, generated, is_answered })
    }

    /// Counts an unanswered chunk, and logs the first one of the run.
    fn note_failure(&self, work: &mut Work, chunk_index: u64, error: String) {
        if work.first_error.is_none() {
            let (run, request_id) = (self.log.run.id(), self.subject.request_id);
            tracing::warn!(%run, %request_id, chunk_index, error, "no model answers for a chunk of the run: the gate decides for it");
            work.first_error = Some(error);
        }
    }

    /// Copies a model's answer into the chunk's event.
    fn answered(
        &self,
        inferred: &mut SemanticChunkInferred,
        described: TwoPassAnswer,
        found: Finding,
    ) -> ModelFinding {
        let TwoPassAnswer { answer, tier, second_failed } = described;
        let said = ModelFinding { model: Some(answer.model.clone()), ..self.subject.said(&found) };
        inferred.provider = Some(answer.provider.to_string());
        inferred.semantic_error =
            second_failed.map(|error| format!("the second pass has no answer: {error}"));
        inferred.provider_fallback_used = answer.fallback_used;
        if let Some(spoken) = &said.event_type {
            inferred.event_type = spoken.clone();
        }
        inferred.object_label = said.object_label.clone();
        inferred.summary = found.summary;
        inferred.description = found.description;
        inferred.confidence = said.confidence;
        let json = answer.json.filter(|json| self.subject.keeps_output && json.is_object());
        let output = json.map(|json| json.to_string()).filter(|text| text.len() <= RAW_BYTES_MAX);
        inferred.output = output.and_then(JsonText::parse);
        let said_bytes = answer.text.len();
        inferred.raw_output = cut(answer.text);
        inferred.truncated = found.truncated || inferred.raw_output.len() < said_bytes;
        inferred.tier = Some(match tier {
            infer::Pass::First => Pass::First,
            infer::Pass::Second => Pass::Second,
        });
        inferred.model = Some(answer.model);
        inferred.attempts = Some(answer.cost.attempts);
        said
    }

    fn inferred(
        &self,
        span: FrameRange,
        event_type: EventType,
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
            output: None,
            tokens: timeline::TokenCounts::default(),
            inference_latency_ms: latency.as_millis() as u64,
            tier: None,
            model: None,
            attempts: None,
            prompt_version: None,
            start_pts_ms: Some(span.start_pts_ms),
            end_pts_ms: Some(span.end_pts_ms),
            reused_from_seq: None,
            index_name: self.subject.index_name.clone(),
            truncated: false,
        }
    }

    fn generated(
        &self,
        span: FrameRange,
        timing: Timing,
        tokens: timeline::TokenCounts,
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

impl ChunkEnd {
    fn of(outcome: &Outcome) -> ChunkEnd {
        match outcome {
            Outcome::Answered(answered) if answered.0.answer.json.is_none() => ChunkEnd::PlainText,
            Outcome::Answered(_) => ChunkEnd::Answered,
            Outcome::Reused(_) => ChunkEnd::Repeated,
            Outcome::Unanswered(_) => ChunkEnd::Failed,
        }
    }
}

impl EventContext {
    fn said(&self, found: &Finding) -> ModelFinding {
        let event_type = found.event_type.clone();
        ModelFinding {
            is_scene_cut: event_type == Some(EventType::SceneCut),
            event_type: event_type.map(|event_type| self.words.event_type(event_type)),
            confidence: found.confidence,
            object_label: found.object_label.as_deref().map(|label| self.words.object_label(label)),
            summary: found.summary.clone(),
            model: None,
        }
    }
}

fn counted(tokens: TokenUsage) -> timeline::TokenCounts {
    timeline::TokenCounts {
        prompt_tokens: tokens.prompt,
        completion_tokens: tokens.completion,
        thinking_tokens: tokens.thinking,
        total_tokens: tokens.total,
    }
}

/// Returns the start of a model's text, as much as an event may hold.
pub(super) fn cut(mut text: String) -> String {
    text.truncate(text.floor_char_boundary(RAW_BYTES_MAX));
    text
}
