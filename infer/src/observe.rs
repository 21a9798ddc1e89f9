//! Observer of each request to a backend, so that it can be counted.

use std::time::Duration;

use crate::{FailureKind, TokenUsage};

/// One request to one backend, ended.
#[derive(Clone, Copy, Debug)]
pub struct BackendAttempt<'a> {
    /// Name of the backend.
    pub provider: &'a str,
    /// The service's id of the model.
    pub model: &'a str,
    /// Failure of the request; another may have followed.
    pub failure: Option<&'a FailureKind>,
    /// Time from the first byte sent.
    pub latency: Duration,
    /// Tokens that the backend counted.
    pub tokens: TokenUsage,
}

impl BackendAttempt<'_> {
    /// `ok`, or the class of the failure.
    pub fn outcome(&self) -> &'static str {
        self.failure.map_or("ok", FailureKind::class)
    }
}

/// Counts attempts. Called from the requester's task: must not block.
pub trait Observer: Send + Sync {
    /// An attempt has ended.
    fn attempted(&self, attempt: &BackendAttempt<'_>);
}

/// Counts nothing.
impl Observer for () {
    fn attempted(&self, _: &BackendAttempt<'_>) {}
}
