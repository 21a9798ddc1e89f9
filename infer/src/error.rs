//! Failures of backends and of requests, in words that hold no key and no address.

use std::{sync::Arc, time::Duration};

use media::ErrorKind;

use crate::{ProviderKind, TokenUsage, excerpt::cleaned};

/// Failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FailureKind {
    /// No connection, or TLS did not come about.
    #[error("refused the connection")]
    Refused,
    /// The connection ended before the answer did.
    #[error("closed the connection before the response was complete")]
    Closed,
    /// No whole answer in time.
    #[error("ran into the timeout: no complete response within {after:?}")]
    Timeout {
        /// The time it had.
        after: Duration,
    },
    /// An error status.
    #[error("answered {}: status {status}{}", self.class(), after_colon(.message))]
    Http {
        /// The status.
        status: u16,
        /// Its message, short and cleaned; empty where it gave none, and where others than the
        /// caller are told.
        message: String,
    },
    /// It wants fewer requests.
    #[error("is rate limited")]
    RateLimited {
        /// Delay after which it accepts a retry.
        retry_after: Option<Duration>,
    },
    /// The answer is not what the protocol says.
    #[error("gave a malformed answer: {problem}")]
    Malformed {
        /// Fault of the response.
        problem: &'static str,
    },
    /// The answer is longer than is read.
    #[error("gave an answer that is too large: over {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The model ran out of room.
    #[error("gave a truncated answer: the model ran out of tokens")]
    Truncated,
    /// The answer has no text.
    #[error("gave an empty answer")]
    Empty,
    /// A filter took the answer.
    #[error("filtered the answer")]
    Filtered,
    /// The answer does not match the schema, also after a repair prompt.
    #[error("gave an answer that does not match output_schema{}", after_colon(.problem))]
    Schema {
        /// The first violations; empty where others than the caller are told.
        problem: String,
    },
    /// Its circuit breaker is open.
    #[error("is behind an open circuit breaker after repeated failures")]
    Open {
        /// Time until a probe request; `None` while one is in flight.
        again_in: Option<Duration>,
    },
}

fn after_colon(problem: &str) -> String {
    if problem.is_empty() { String::new() } else { format!(": {problem}") }
}

impl FailureKind {
    /// An error status about which nothing is said.
    pub const fn http(status: u16) -> FailureKind {
        FailureKind::Http { status, message: String::new() }
    }

    /// The class and, in one line, what is known beyond it: `http 404: The model x does not exist`.
    pub fn brief(&self) -> String {
        let (class, more) = match self {
            FailureKind::Http { status, message: said } => (format!("http {status}"), said.clone()),
            FailureKind::Timeout { after } => {
                (self.class().to_owned(), format!("no complete response within {after:?}"))
            }
            FailureKind::Malformed { problem } => (self.class().to_owned(), (*problem).to_owned()),
            FailureKind::Schema { problem } => (self.class().to_owned(), cleaned(problem, None)),
            _ => (self.class().to_owned(), String::new()),
        };
        class + &after_colon(&more)
    }

    /// The same without content of the request or the answer, for other callers.
    pub(crate) fn without_content(&self) -> FailureKind {
        match self {
            FailureKind::Schema { .. } => FailureKind::Schema { problem: String::new() },
            FailureKind::Http { status, .. } => FailureKind::http(*status),
            other => other.clone(),
        }
    }

    /// The backend did no work: providers charge tokens for answers, and none for an error status.
    pub(crate) const fn is_free(&self) -> bool {
        matches!(
            self,
            FailureKind::Refused
                | FailureKind::Http { .. }
                | FailureKind::RateLimited { .. }
                | FailureKind::Open { .. }
        )
    }

    /// Name of the class, for messages and metrics.
    pub const fn class(&self) -> &'static str {
        match self {
            FailureKind::Refused => "refused",
            FailureKind::Closed => "closed",
            FailureKind::Timeout { .. } => "timeout",
            FailureKind::Http { status: 500..=599, .. } => "http 5xx",
            FailureKind::Http { status: 400..=499, .. } => "http 4xx",
            FailureKind::Http { .. } => "http other",
            FailureKind::RateLimited { .. } => "rate limited",
            FailureKind::Malformed { .. } => "malformed",
            FailureKind::TooLarge { .. } => "too large",
            FailureKind::Truncated => "truncated",
            FailureKind::Empty => "empty",
            FailureKind::Filtered => "filtered",
            FailureKind::Schema { .. } => "schema",
            FailureKind::Open { .. } => "open",
        }
    }

    /// Every class, for metrics that begin at zero.
    pub const CLASSES: [&'static str; 14] = [
        "refused",
        "closed",
        "timeout",
        "http 5xx",
        "http 4xx",
        "http other",
        "rate limited",
        "malformed",
        "too large",
        "truncated",
        "empty",
        "filtered",
        "schema",
        "open",
    ];
}

/// One backend's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendError {
    /// Name of the backend.
    pub provider: Arc<str>,
    /// Failure of it.
    pub failure: FailureKind,
    /// Tokens that it counted before it failed.
    pub tokens: TokenUsage,
    /// Requests that it was sent.
    pub attempts: u32,
    /// Time that it took.
    pub latency: Duration,
}

/// Reason that there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// No backend is configured.
    #[error("no inference backend is configured")]
    NoBackend,
    /// None of the backends runs the model.
    #[error("no configured backend serves the model {model}")]
    NotServed {
        /// The requested model.
        model: String,
    },
    /// None of the backends is of the requested kind.
    #[error("no configured {} backend serves this model", .kind.as_str())]
    NoProvider {
        /// The requested kind.
        kind: ProviderKind,
    },
    /// The budget has no room for the first request.
    #[error("daily token budget too low for this request")]
    NoBudget,
    /// Every backend that was tried failed.
    #[error("{}", listed(.0))]
    Failed(Vec<BackendError>),
}

fn listed(failed: &[BackendError]) -> String {
    let each = failed.iter().map(|one| format!("the backend {} {}", one.provider, one.failure));
    each.collect::<Vec<_>>().join("; ")
}

impl InferError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            InferError::NoBackend | InferError::Failed(_) => ErrorKind::Internal,
            InferError::NotServed { .. } | InferError::NoProvider { .. } => ErrorKind::InvalidInput,
            InferError::NoBudget => ErrorKind::Exhausted,
        }
    }

    /// Tokens that the backends counted although there is no answer.
    pub fn tokens(&self) -> TokenUsage {
        self.failed().iter().fold(TokenUsage::default(), |sum, one| sum + one.tokens)
    }

    /// Every backend that was tried, in that order.
    pub fn failed(&self) -> &[BackendError] {
        match self {
            InferError::Failed(failed) => failed,
            _ => &[],
        }
    }

    /// Requests that were sent although there is no answer.
    pub fn attempts(&self) -> u32 {
        self.failed().iter().fold(0, |sum, one| sum.saturating_add(one.attempts))
    }

    /// Time that the backends took although there is no answer.
    pub fn latency(&self) -> Duration {
        self.failed().iter().map(|one| one.latency).sum()
    }

    /// A probe request of another caller is in flight to one of the backends.
    pub fn awaits_half_open(&self) -> bool {
        let failed = self.failed().iter();
        failed.into_iter().any(|one| one.failure == FailureKind::Open { again_in: None })
    }

    /// The shortest retry-after of a backend; `None` where none gave one above zero.
    pub fn retry_after(&self) -> Option<Duration> {
        let rests = self.failed().iter().filter_map(|one| match one.failure {
            FailureKind::RateLimited { retry_after } => retry_after,
            _ => None,
        });
        rests.filter(|rest| !rest.is_zero()).min()
    }
}
