//! Failures of backends and of requests; messages hold no key and no address.

use std::{sync::Arc, time::Duration};

use media::ErrorKind;

use crate::{ProviderKind, RequestCost, excerpt::cleaned};

/// Failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum FailureKind {
    /// The TCP connection or the TLS handshake failed.
    #[error("refused the connection")]
    Refused,
    #[error("closed the connection before the response was complete")]
    Closed,
    #[error("ran into the timeout: no complete response within {after:?}")]
    Timeout { after: Duration },
    #[error("answered {}: status {status}{}", self.class(), after_colon(.message))]
    Http {
        status: u16,
        /// Error message, shortened and cleaned; empty if there was none or if the failure is reported to
        /// callers other than the requester.
        message: String,
    },
    #[error("is rate limited")]
    RateLimited { retry_after: Option<Duration> },
    #[error("gave a malformed answer: {problem}")]
    Malformed { problem: &'static str },
    #[error("gave an answer that is too large: over {bytes_max} bytes")]
    TooLarge { bytes_max: usize },
    #[error("gave a truncated answer: the model ran out of tokens")]
    Truncated,
    #[error("gave an empty answer")]
    Empty,
    #[error("filtered the answer")]
    Filtered,
    /// The answer does not match the schema, even after a repair prompt.
    #[error("gave an answer that does not match output_schema{}", after_colon(.problem))]
    Schema {
        /// The first violations; empty if the failure is reported to callers other than the requester.
        problem: String,
    },
    #[error("is behind an open circuit breaker after repeated failures")]
    Open {
        /// Time until a probe request is admitted; `None` while one is in flight.
        again_in: Option<Duration>,
    },
}

fn after_colon(problem: &str) -> String {
    if problem.is_empty() { String::new() } else { format!(": {problem}") }
}

impl FailureKind {
    /// Creates the failure of an error status without a message.
    pub const fn http(status: u16) -> FailureKind {
        FailureKind::Http { status, message: String::new() }
    }

    /// Returns the class and the details in one line: `http 404: The model x does not exist`.
    pub fn brief(&self) -> String {
        let more = match self {
            FailureKind::Http { status, message } => {
                return format!("http {status}{}", after_colon(message));
            }
            FailureKind::Timeout { after } => format!("no complete response within {after:?}"),
            FailureKind::Malformed { problem } => (*problem).to_owned(),
            FailureKind::Schema { problem } => cleaned(problem, None),
            _ => String::new(),
        };
        self.class().to_owned() + &after_colon(&more)
    }

    /// Returns the failure without content of the request or the answer, for other callers.
    pub(crate) fn without_content(&self) -> FailureKind {
        match self {
            FailureKind::Schema { .. } => FailureKind::Schema { problem: String::new() },
            FailureKind::Http { status, .. } => FailureKind::http(*status),
            other => other.clone(),
        }
    }

    /// Returns true if no tokens are charged: providers charge for answers, not for an error status.
    pub(crate) const fn is_free(&self) -> bool {
        matches!(
            self,
            FailureKind::Refused
                | FailureKind::Http { .. }
                | FailureKind::RateLimited { .. }
                | FailureKind::Open { .. }
        )
    }

    /// Returns the name of the class, for messages and metrics.
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

    /// All classes, for metrics that start at zero.
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

/// Failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct BackendError {
    pub provider: Arc<str>,
    pub failure: FailureKind,
    pub cost: RequestCost,
}

/// Reason that there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum InferError {
    #[error("no inference backend is configured")]
    NoBackend,
    #[error("no configured backend serves the model {model}")]
    NotServed { model: String },
    #[error("no configured {} backend serves this model", .kind.as_str())]
    NoProvider { kind: ProviderKind },
    /// The budget is too low for the first request.
    #[error("daily token budget too low for this request")]
    NoBudget,
    /// All backends that were tried failed.
    #[error("{}", listed(.0))]
    Failed(Vec<BackendError>),
}

fn listed(failed: &[BackendError]) -> String {
    let each = failed.iter().map(|one| format!("the backend {} {}", one.provider, one.failure));
    each.collect::<Vec<_>>().join("; ")
}

impl InferError {
    /// Returns the error kind that decides the caller's response.
    pub fn kind(&self) -> ErrorKind {
        match self {
            InferError::NoBackend | InferError::Failed(_) => ErrorKind::Internal,
            InferError::NotServed { .. } | InferError::NoProvider { .. } => ErrorKind::InvalidInput,
            InferError::NoBudget => ErrorKind::Exhausted,
        }
    }

    /// Returns the cost of all requests, despite the failure.
    pub fn cost(&self) -> RequestCost {
        self.failed().iter().fold(RequestCost::default(), |sum, one| sum + one.cost)
    }

    /// Returns the failures of the backends in the order of the attempts.
    pub fn failed(&self) -> &[BackendError] {
        match self {
            InferError::Failed(failed) => failed,
            _ => &[],
        }
    }

    /// Returns true if another caller's probe request is in flight to one of the backends.
    pub fn awaits_half_open(&self) -> bool {
        let half_open = FailureKind::Open { again_in: None };
        self.failed().iter().any(|one| one.failure == half_open)
    }

    /// Returns the shortest retry-after above zero; `None` if no backend gave one.
    pub fn retry_after(&self) -> Option<Duration> {
        let rests = self.failed().iter().filter_map(|one| match one.failure {
            FailureKind::RateLimited { retry_after } => retry_after,
            _ => None,
        });
        rests.filter(|rest| !rest.is_zero()).min()
    }
}
