//! Two passes: a small model describes, a larger one is asked where the small one is unsure.

use crate::{Answer, Chain, InferError, Purse, Request};

/// A question with a second opinion.
#[derive(Clone, Debug)]
pub struct Tiered {
    /// Request to the first model.
    pub first: Request,
    /// The model of the second pass; `None` is one pass.
    pub second_model: Option<String>,
    /// The second pass follows a first one that is less confident than this.
    pub threshold: f64,
}

/// Pass that gave an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// The first pass's.
    First,
    /// The second pass's.
    Second,
}

/// The answer of one or two passes.
#[derive(Clone, Debug, PartialEq)]
pub struct Described {
    /// The answer; tokens, latency and attempts are those of both passes.
    pub answer: Answer,
    /// Pass that gave it.
    pub tier: Tier,
    /// Reason that a second pass was made but has no answer.
    pub second_failed: Option<InferError>,
}

impl Chain {
    /// Asks once, and once more where the answer's `confidence` is below the threshold. An answer that
    /// states no confidence is taken as it is. A second pass that fails, or that `purse` has no room
    /// for, leaves the first answer.
    pub async fn describe(
        &self,
        tiered: &Tiered,
        purse: &dyn Purse,
    ) -> Result<Described, InferError> {
        let mut may_correct = true;
        let first = self.put(&tiered.first, purse, &mut may_correct).await?;
        let confidence = first.json.as_ref().and_then(|json| json.get("confidence")?.as_f64());
        let unsure = confidence.is_some_and(|confidence| confidence < tiered.threshold);
        let Some(model) = tiered.second_model.as_ref().filter(|_| unsure) else {
            return Ok(Described { answer: first, tier: Tier::First, second_failed: None });
        };
        let mut request = tiered.first.clone();
        request.model.clone_from(model);
        request.timeout = request.timeout.map(|all| all.saturating_sub(first.latency));
        Ok(match self.put(&request, purse, &mut may_correct).await {
            Ok(second) => {
                let answer = Answer {
                    tokens: first.tokens + second.tokens,
                    latency: first.latency + second.latency,
                    attempts: first.attempts.saturating_add(second.attempts),
                    fallback_used: first.fallback_used || second.fallback_used,
                    ..second
                };
                Described { answer, tier: Tier::Second, second_failed: None }
            }
            Err(error) => {
                let tokens = first.tokens + error.tokens();
                let attempts = first.attempts.saturating_add(error.attempts());
                let latency = first.latency + error.latency();
                let answer = Answer { tokens, attempts, latency, ..first };
                Described { answer, tier: Tier::First, second_failed: Some(error) }
            }
        })
    }
}
