//! Completion returned by a model.

use std::{ops::Add, sync::Arc, time::Duration};

use serde_json::Value;

use crate::FailureKind;

/// Tokens spent, as counted by the backends.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt, pictures included.
    pub prompt: u64,
    /// Tokens of the answer without hidden reasoning.
    pub completion: u64,
    /// Tokens of hidden reasoning.
    pub thinking: u64,
    /// Sum of all tokens.
    pub total: u64,
}

impl TokenUsage {
    /// Returns these counts, with their sum as the total if there is no other.
    pub(crate) fn of(
        prompt: u64,
        completion: u64,
        thinking: u64,
        total: Option<u64>,
    ) -> TokenUsage {
        let sum = prompt.saturating_add(completion).saturating_add(thinking);
        TokenUsage { prompt, completion, thinking, total: total.unwrap_or(sum) }
    }
}

impl Add for TokenUsage {
    type Output = TokenUsage;

    fn add(self, other: TokenUsage) -> TokenUsage {
        TokenUsage {
            prompt: self.prompt.saturating_add(other.prompt),
            completion: self.completion.saturating_add(other.completion),
            thinking: self.thinking.saturating_add(other.thinking),
            total: self.total.saturating_add(other.total),
        }
    }
}

/// Cost of requests to backends, failed ones included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestCost {
    /// Tokens, as counted by the backends.
    pub tokens: TokenUsage,
    /// Time spent.
    pub latency: Duration,
    /// Number of requests sent.
    pub attempts: u32,
}

impl Add for RequestCost {
    type Output = RequestCost;

    fn add(self, other: RequestCost) -> RequestCost {
        RequestCost {
            tokens: self.tokens + other.tokens,
            latency: self.latency + other.latency,
            attempts: self.attempts.saturating_add(other.attempts),
        }
    }
}

/// One completed request to one backend.
#[derive(Clone, Copy, Debug)]
pub struct BackendAttempt<'a> {
    /// Name of the backend.
    pub provider: &'a str,
    /// The service's id of the model.
    pub model: &'a str,
    /// Failure of the request; another attempt may have followed.
    pub failure: Option<&'a FailureKind>,
    /// Time from the start of the request.
    pub latency: Duration,
    /// Tokens counted by the backend.
    pub tokens: TokenUsage,
}

impl BackendAttempt<'_> {
    /// Returns `ok` or the class of the failure.
    pub fn outcome(&self) -> &'static str {
        self.failure.map_or("ok", FailureKind::class)
    }
}

media::named! {
    /// Reason that a model stopped writing.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FinishReason {
        /// The model finished its answer.
        Stop = "stop",
        /// The token limit was reached.
        Length = "length",
        /// The backend's content filter intervened.
        ContentFilter = "content_filter",
        /// Another or unknown reason.
        Other = "other",
    }
}

/// Usable answer.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Name of the backend.
    pub provider: Arc<str>,
    /// The service's id of the requested model. The backend's own name is not used: backends name one model
    /// differently, and some programs echo any name.
    pub model: String,
    /// True if a backend other than the first choice answered.
    pub fallback_used: bool,
    /// Answer text without hidden reasoning.
    pub text: String,
    /// Answer as JSON, valid by the request's schema; `None` without a schema, or if the schema accepts plain
    /// text and the model returned no JSON.
    pub json: Option<Value>,
    /// Reason that the model stopped.
    pub finish: FinishReason,
    /// Cost of all attempts, from the start of the call to the complete answer.
    pub cost: RequestCost,
}
