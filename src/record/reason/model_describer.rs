//! Describes chunks with the configured backends, with the permits and the priority of a job.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use infer::{
    InferError, InferenceRequest, OutputSchema, Prompt, PromptImage, TokenUsage, TwoPassRequest,
    finding::default_answer, scheduler::AdmissionError,
};
use timeline::Pass;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::chunk_tracker::ChunkPrompt;
use super::describer::{
    ChunkDescription, DescribeError, DescribeFuture, Describer, FailedAttempts,
};
use super::retry_policy::{ChunkAttempt, RetryPolicy};
use crate::{
    base::retry_while_full::retry_while_full,
    record::inference::{Inference, InferenceError, Requester},
};

/// Maximum tokens of a description; a thinking model uses most of them for thinking.
const TOKENS_MAX: u32 = 2048;

/// Settings that all requests of a reasoning share.
#[derive(Clone, Debug)]
pub struct ReasonQuery {
    /// Model that is asked about every chunk.
    pub first: String,
    /// Model for the second pass, asked when the first one is not confident enough.
    pub second: Option<String>,
    /// Lowest confidence of the first model that needs no second pass.
    pub threshold: f64,
    /// Timeout of one request, counted from its permit.
    pub timeout: Duration,
    /// Schema that an answer must match.
    pub schema: Arc<OutputSchema>,
}

/// Describer that asks the configured backends.
pub struct ModelDescriber {
    /// Client of the models.
    pub inference: Arc<Inference>,
    /// Requester on whose behalf the models are asked.
    pub asker: Requester,
    /// Settings that all requests share.
    pub ask: ReasonQuery,
    /// Retry policy of the reasoning.
    pub outage: Arc<RetryPolicy>,
}

/// Cost of the failed requests of a chunk.
#[derive(Default)]
struct Spent {
    tokens: TokenUsage,
    latency: Duration,
    attempts: u32,
}

impl Spent {
    fn add(&mut self, error: &InferError) {
        self.tokens = self.tokens + error.tokens();
        self.latency += error.latency();
        self.attempts += error.attempts();
    }
}

impl Describer for ModelDescriber {
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture {
        let (inference, asker) = (Arc::clone(&self.inference), self.asker.clone());
        let outage = Arc::clone(&self.outage);
        let mut chunk =
            ChunkAttempt { chunk: question.chunk_index, again: 0, since: Instant::now() };
        let tiered = self.ask.tiered(question.prompt, question.images);
        Box::pin(async move {
            let (inference, tiered) = (&*inference, &tiered);
            let attempt = |left| {
                let patience = asker.patience.map(|_| left);
                let asker = Requester { patience, ..asker.clone() };
                async move { inference.describe(&asker, tiered).await }
            };
            let lacks_room = |error: &InferenceError| {
                matches!(error, InferenceError::Refused(AdmissionError::QueueFull { .. }))
            };
            let patience = asker.patience.unwrap_or_default();
            // A caller that gives up drops the future.
            let never = CancellationToken::new();
            let mut spent = Spent::default();
            let described = loop {
                let error = match retry_while_full(patience, &never, lacks_room, attempt).await {
                    Ok(described) => break described,
                    Err(error) => error,
                };
                let failed = match &error {
                    InferenceError::Infer(error) => error.failed(),
                    InferenceError::Refused(_) => &[],
                };
                let pause = outage.pause(failed, chunk, Instant::now());
                if let InferenceError::Infer(error) = &error {
                    spent.add(error);
                }
                let Some(pause) = pause else {
                    return Err(unanswered(&error, &tiered.first.model, spent));
                };
                tracing::info!(chunk.chunk, %error, ?pause, "a chunk is asked about again");
                // Sleeps without a permit, so that others may ask meanwhile.
                sleep(pause).await;
                chunk.again += 1;
            };
            outage.answered(Instant::now());
            let mut answer = described.answer;
            answer.tokens = answer.tokens + spent.tokens;
            answer.latency += spent.latency;
            answer.attempts += spent.attempts;
            let second_failed = described.second_failed.map(|error| {
                let model = tiered.second_model.as_deref();
                tracing::warn!(model, %error, "a second pass has no answer");
                format!("the second pass has no answer: {error}")
            });
            let pass = match described.tier {
                infer::Pass::First => Pass::First,
                infer::Pass::Second => Pass::Second,
            };
            Ok(ChunkDescription {
                provider: answer.provider.to_string(),
                model: answer.model,
                pass,
                provider_fallback_used: answer.fallback_used,
                text: answer.text,
                json: answer.json,
                second_failed,
                tokens: answer.tokens,
                latency: answer.latency,
                attempts: answer.attempts,
            })
        })
    }
}

impl ReasonQuery {
    /// Returns true if the caller gave an output schema.
    pub fn has_own_schema(&self) -> bool {
        !Arc::ptr_eq(&self.schema, &default_answer())
    }

    /// Returns the request about `images`, and its second pass.
    pub fn tiered(&self, prompt: Prompt, images: Vec<PromptImage>) -> TwoPassRequest {
        let first = InferenceRequest {
            model: self.first.clone(),
            prompt: prompt.text,
            images,
            max_tokens: Some(TOKENS_MAX),
            // Temperature 0: the same pictures should give the same answer.
            temperature: Some(0.0),
            timeout: Some(self.timeout),
            schema: Some(Arc::clone(&self.schema)),
            primary: None,
            allow_fallback: true,
        };
        TwoPassRequest { first, second_model: self.second.clone(), threshold: self.threshold }
    }
}

/// Returns the error of a chunk. It is always of the first pass, whose answer is kept if the second fails.
fn unanswered(error: &InferenceError, model: &str, spent: Spent) -> DescribeError {
    let failed = match error {
        InferenceError::Infer(error) => error.failed(),
        InferenceError::Refused(_) => &[],
    };
    let provider = failed.last().map(|one| one.provider.to_string());
    let provider_fallback_used = failed.len() > 1;
    // A request that admission refused was never sent.
    let is_sent = provider.is_some() || spent.attempts > 0;
    let Spent { tokens, latency, attempts } = spent;
    let model = model.to_owned();
    let sent =
        FailedAttempts { provider, provider_fallback_used, model, tokens, latency, attempts };
    let sent = is_sent.then_some(sent);
    DescribeError { reason: error.to_string(), error: error.brief(), sent }
}
