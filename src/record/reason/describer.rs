//! Interface to models that describe a chunk's images.

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
    /// Model that answered.
    pub model: String,
    /// Pass that gave the answer.
    pub pass: Pass,
    /// True if the first backend failed and another one answered.
    pub provider_fallback_used: bool,
    /// Text of the answer.
    pub text: String,
    /// The text as JSON that matches the schema; `None` if the model gave plain text.
    pub json: Option<Value>,
    /// Error of a failed second pass, for the owner.
    pub second_failed: Option<String>,
    /// Tokens of all requests for this answer.
    pub tokens: TokenUsage,
    /// Duration of all requests for this answer.
    pub latency: Duration,
    /// Number of requests for this answer.
    pub attempts: u32,
}

/// Reason that a chunk has no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribeError {
    /// Error message for the owner.
    pub reason: String,
    /// Class of the first failure, with brief details.
    pub error: String,
    /// Failed requests; `None` if admission refused, so that none was sent.
    pub sent: Option<FailedAttempts>,
}

/// Failed requests about a chunk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailedAttempts {
    /// Backend that failed last; `None` if unknown.
    pub provider: Option<String>,
    /// True if another backend had failed before.
    pub provider_fallback_used: bool,
    /// Model that was asked.
    pub model: String,
    /// Tokens of all failed requests.
    pub tokens: TokenUsage,
    /// Duration of all failed requests, without waits for permits.
    pub latency: Duration,
    /// Number of requests sent.
    pub attempts: u32,
}

/// Future answer; dropping it cancels the request.
pub type DescribeFuture =
    Pin<Box<dyn Future<Output = Result<ChunkDescription, DescribeError>> + Send>>;

/// Model that describes images; every call must end by itself.
pub trait Describer: Send + Sync {
    /// Asks the model about a chunk.
    fn describe(&self, question: ChunkPrompt) -> DescribeFuture;
}
