//! Interface to models that describe a chunk's images.

use std::pin::Pin;

use infer::{RequestCost, TwoPassAnswer};

use super::chunk_tracker::ChunkPrompt;

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
