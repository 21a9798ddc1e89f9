//! Observer of each request to a backend, so that it can be counted.

use std::time::Duration;

use crate::{Failure, Tokens};

/// One request to one backend, ended.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// Name of the backend.
    pub provider: &'a str,
    /// The service's id of the model.
    pub model: &'a str,
    /// Failure of the request; another may have followed.
    pub failure: Option<&'a Failure>,
    /// Time from the first byte sent.
    pub latency: Duration,
    /// Tokens that the backend counted.
    pub tokens: Tokens,
}

impl Attempt<'_> {
    /// `ok`, or the class of the failure.
    pub fn outcome(&self) -> &'static str {
        self.failure.map_or("ok", Failure::class)
    }
}

/// Counts attempts. Called from the task that asks: must not block.
pub trait Observer: Send + Sync {
    /// An attempt has ended.
    fn attempted(&self, attempt: &Attempt<'_>);
}

/// Counts nothing.
impl Observer for () {
    fn attempted(&self, _: &Attempt<'_>) {}
}
