//! Completion of a model.

use std::{ops::Add, sync::Arc, time::Duration};

use serde_json::Value;

/// Tokens spent, as the backends count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt, pictures included.
    pub prompt: u64,
    /// Tokens of the answer, hidden reasoning left out.
    pub completion: u64,
    /// Tokens of hidden reasoning.
    pub thinking: u64,
    /// Sum of all tokens.
    pub total: u64,
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

media::named! {
    /// Reason that a model stopped.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FinishReason {
        /// It was done.
        Stop = "stop",
        /// No room was left.
        Length = "length",
        /// A filter of the backend's.
        ContentFilter = "content_filter",
        /// Something else.
        Other = "other",
    }
}

/// An answer that can be used.
#[derive(Clone, Debug, PartialEq)]
pub struct Completion {
    /// Name of the backend.
    pub provider: Arc<str>,
    /// The service's id of the requested model. Backends name one model differently, and some programs
    /// repeat any name that is sent.
    pub model: String,
    /// True if another backend than the first answered.
    pub fallback_used: bool,
    /// The text, hidden reasoning left out.
    pub text: String,
    /// The text as JSON, valid by the request's schema; `None` without a schema, and where the schema's
    /// reader takes plain text and the model gave no JSON.
    pub json: Option<Value>,
    /// Reason that the model stopped.
    pub finish: FinishReason,
    /// Time from the first byte sent to the whole answer, failed attempts included.
    pub latency: Duration,
    /// Tokens of every attempt that a backend counted.
    pub tokens: TokenUsage,
    /// Requests sent, failed ones included.
    pub attempts: u32,
}
