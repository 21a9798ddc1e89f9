//! Description of a chunk's images by a model, and its outcome.

use std::{pin::Pin, time::Duration};

use infer::TokenUsage;
use serde_json::Value;
use timeline::Pass;

use super::chunk_tracker::ChunkPrompt;

/// Answer of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct ChunkDescription {
    /// Name of the backend.
    pub provider: String,
    /// The model.
    pub model: String,
    /// Pass that gave the answer.
    pub pass: Pass,
    /// True if another backend than the first answered.
    pub provider_fallback_used: bool,
    /// The text.
    pub text: String,
    /// The text as JSON, valid by the schema; `None` where the model gave plain words.
    pub json: Option<Value>,
    /// Error of a second pass that failed; in words that the owner may read.
    pub second_failed: Option<String>,
    /// Tokens of all asks that it took.
    pub tokens: TokenUsage,
    /// Time of all asks that it took.
    pub latency: Duration,
    /// Requests that were sent for it.
    pub attempts: u32,
}

/// Reason that there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeError {
    /// Error in words that the owner may read.
    pub reason: String,
    /// The class of the first failure, and shortly what was said of it.
    pub error: String,
    /// The asks that came to nothing; `None` where it got no place and nothing was sent.
    pub sent: Option<FailedAttempts>,
}

/// Asks that came to nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Name of the backend that failed last; `None` where none is known.
    pub provider: Option<String>,
    /// True if another had failed before it.
    pub provider_fallback_used: bool,
    /// The model.
    pub model: String,
    /// Tokens of all of them.
    pub tokens: TokenUsage,
    /// Time of all of them, without the wait for a place.
    pub latency: Duration,
    /// Requests that were sent.
    pub attempts: u32,
}

/// An answer to come; dropping it gives the ask up.
pub type DescribeFuture =
    Pin<Box<dyn Future<Output = Result<ChunkDescription, DescribeError>> + Send>>;

/// Interface to models that describe images; every call ends by itself.
pub trait Describer: Send + Sync {
    /// Asks.
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture;
}
