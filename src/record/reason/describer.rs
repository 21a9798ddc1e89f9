//! Models that describe a chunk: the configured backends, asked with the permits and the priority of a job.

use std::{
    pin::Pin,
    sync::Arc,
    time::{Duration, Instant},
};

use infer::{
    Completion, InferenceRequest, OutputSchema, Prompt, PromptImage, RequestCost, TwoPassAnswer,
    TwoPassRequest, finding::default_answer, scheduler::AdmissionError,
};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::{
    chunk_tracker::ChunkPrompt,
    retry_policy::{ChunkAttempt, RetryPolicy},
};
use crate::{
    base::retry_while_full::retry_while_full,
    record::inference::{Inference, InferenceError, Requester},
};

/// Maximum tokens of a description; a thinking model uses most of them for thinking.
const TOKENS_MAX: u32 = 2048;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeError {
    /// Error message for the owner.
    pub reason: String,
    /// Class of the first failure, with brief details.
    pub error: String,
    /// Failed requests; `None` if admission refused, so that none was sent.
    pub sent: Option<FailedAttempts>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Backend that failed last; `None` if unknown.
    pub provider: Option<String>,
    /// True if another backend had failed before.
    pub provider_fallback_used: bool,
    pub model: String,
    /// Cost of all failed requests, without waits for permits.
    pub cost: RequestCost,
}

/// Future answer; dropping it cancels the request.
pub type DescribeFuture =
    Pin<Box<dyn Future<Output = Result<TwoPassAnswer, DescribeError>> + Send>>;

/// Model that describes images; every call must end by itself.
pub trait Describer: Send + Sync {
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture;
}

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
    pub schema: Arc<OutputSchema>,
}

/// Describer that asks the configured backends; cheap to clone.
#[derive(Clone)]
pub struct ModelDescriber {
    pub inference: Arc<Inference>,
    pub asker: Requester,
    pub ask: ReasonQuery,
    pub outage: Arc<RetryPolicy>,
}

impl Describer for ModelDescriber {
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture {
        let describer = self.clone();
        Box::pin(async move { describer.answer(question).await })
    }
}

impl ModelDescriber {
    /// Asks about a chunk, and asks again while the retry policy allows it.
    async fn answer(&self, question: ChunkPrompt) -> Result<TwoPassAnswer, DescribeError> {
        let ChunkPrompt { chunk_index, prompt, images } = question;
        let mut chunk = ChunkAttempt { chunk: chunk_index, again: 0, since: Instant::now() };
        let tiered = self.ask.tiered(prompt, images);
        let (inference, asker, tiered) = (&*self.inference, &self.asker, &tiered);
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
        let mut cost = RequestCost::default();
        let described = loop {
            let error = match retry_while_full(patience, &never, lacks_room, attempt).await {
                Ok(described) => break described,
                Err(error) => error,
            };
            let pause = self.outage.pause(error.failed(), chunk, Instant::now());
            cost = cost + error.cost();
            let Some(pause) = pause else {
                return Err(unanswered(&error, &tiered.first.model, cost));
            };
            tracing::info!(chunk.chunk, %error, ?pause, "a chunk is asked about again");
            // Sleeps without a permit, so that others may ask meanwhile.
            sleep(pause).await;
            chunk.again += 1;
        };
        self.outage.answered(Instant::now());
        if let Some(error) = &described.second_failed {
            let model = tiered.second_model.as_deref();
            tracing::warn!(model, %error, "a second pass has no answer");
        }
        let answer = Completion { cost: cost + described.answer.cost, ..described.answer };
        Ok(TwoPassAnswer { answer, ..described })
    }
}

impl ReasonQuery {
    pub fn has_own_schema(&self) -> bool {
        !Arc::ptr_eq(&self.schema, &default_answer())
    }

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
fn unanswered(error: &InferenceError, model: &str, cost: RequestCost) -> DescribeError {
    let failed = error.failed();
    let provider = failed.last().map(|one| one.provider.to_string());
    let provider_fallback_used = failed.len() > 1;
    // A request that admission refused was never sent.
    let is_sent = provider.is_some() || cost.attempts > 0;
    let model = model.to_owned();
    let sent = is_sent.then_some(FailedAttempts { provider, provider_fallback_used, model, cost });
    DescribeError { reason: error.to_string(), error: error.brief(), sent }
}
