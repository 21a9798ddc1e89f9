//! Two-pass inference: a small model answers, and a larger one is called if the small one is unsure.

use crate::{BackendChain, Completion, InferError, InferenceRequest, TokenBudget};

/// Request with an optional second pass.
#[derive(Clone, Debug)]
pub struct TwoPassRequest {
    /// Request to the first model.
    pub first: InferenceRequest,
    /// Model of the second pass; `None` for one pass.
    pub second_model: Option<String>,
    /// Confidence of the first pass below which the second pass runs.
    pub threshold: f64,
}

/// Pass that gave the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// The first pass.
    First,
    /// The second pass.
    Second,
}

/// Answer of one or two passes.
#[derive(Clone, Debug, PartialEq)]
pub struct TwoPassAnswer {
    /// The answer; its cost is the sum over both passes.
    pub answer: Completion,
    /// Pass that gave the answer.
    pub tier: Pass,
    /// Error of a second pass that failed.
    pub second_failed: Option<InferError>,
}

impl BackendChain {
    /// Runs one pass, and a second one if the answer's `confidence` is below the threshold. An answer without
    /// a confidence is accepted. If the second pass fails or exceeds `budget`, the first answer stands.
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
        second.timeout = second.timeout.map(|all| all.saturating_sub(first.cost.latency));
        Ok(match self.run(&second, budget, &mut may_correct).await {
            Ok(second) => {
                let answer = Completion {
                    cost: first.cost + second.cost,
                    fallback_used: first.fallback_used || second.fallback_used,
                    ..second
                };
                TwoPassAnswer { answer, tier: Pass::Second, second_failed: None }
            }
            Err(error) => {
                let answer = Completion { cost: first.cost + error.cost(), ..first };
                TwoPassAnswer { answer, tier: Pass::First, second_failed: Some(error) }
            }
        })
    }
}
