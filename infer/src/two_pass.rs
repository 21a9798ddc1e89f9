//! Two passes: a small model describes, a larger one is called where the small one is unsure.

use crate::{BackendChain, Completion, InferError, InferenceRequest, TokenBudget};

/// A request with a second pass.
#[derive(Clone, Debug)]
pub struct TwoPassRequest {
    /// Request to the first model.
    pub first: InferenceRequest,
    /// The model of the second pass; `None` is one pass.
    pub second_model: Option<String>,
    /// The second pass follows a first one that is less confident than this.
    pub threshold: f64,
}

/// Pass that gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The first pass's.
    First,
    /// The second pass's.
    Second,
}

/// The answer of one or two passes.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoPassAnswer {
    /// The answer; tokens, latency and attempts are those of both passes.
    pub answer: Completion,
    /// Pass that gave it.
    pub tier: Pass,
    /// Reason that a second pass was made but has no answer.
    pub second_failed: Option<InferError>,
}

impl BackendChain {
    /// Runs one pass, and a second one where the answer's `confidence` is below the threshold. An answer that
    /// states no confidence is taken as it is. A second pass that fails, or that `budget` has no room
    /// for, leaves the first answer.
    pub async fn describe(
        &self,
        request: &TwoPassRequest,
        budget: &dyn TokenBudget,
    ) -> Result<TwoPassAnswer, InferError> {
        let mut may_correct = true;
        let first = self.run(&request.first, budget, &mut may_correct).await?;
        let confidence = first.json.as_ref().and_then(|json| json.get("confidence")?.as_f64());
        let unsure = confidence.is_some_and(|confidence| confidence < request.threshold);
        let Some(model) = request.second_model.as_ref().filter(|_| unsure) else {
            return Ok(TwoPassAnswer { answer: first, tier: Pass::First, second_failed: None });
        };
        let mut second = request.first.clone();
        second.model.clone_from(model);
        second.timeout = second.timeout.map(|all| all.saturating_sub(first.latency));
        Ok(match self.run(&second, budget, &mut may_correct).await {
            Ok(second) => {
                let answer = Completion {
                    tokens: first.tokens + second.tokens,
                    latency: first.latency + second.latency,
                    attempts: first.attempts.saturating_add(second.attempts),
                    fallback_used: first.fallback_used || second.fallback_used,
                    ..second
                };
                TwoPassAnswer { answer, tier: Pass::Second, second_failed: None }
            }
            Err(error) => {
                let tokens = first.tokens + error.tokens();
                let attempts = first.attempts.saturating_add(error.attempts());
                let latency = first.latency + error.latency();
                let answer = Completion { tokens, attempts, latency, ..first };
                TwoPassAnswer { answer, tier: Pass::First, second_failed: Some(error) }
            }
        })
    }
}
