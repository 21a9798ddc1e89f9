//! Observer of each request to a backend, for metrics.

use std::time::Duration;

use crate::{FailureKind, TokenUsage};

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

/// Observer of attempts. Called from the requester's task: must not block.
pub trait Observer: Send + Sync {
    /// Receives one completed attempt.
    fn attempted(&self, attempt: &BackendAttempt<'_>);
}

/// Observer that does nothing.
impl Observer for () {
    fn attempted(&self, _: &BackendAttempt<'_>) {}
}
