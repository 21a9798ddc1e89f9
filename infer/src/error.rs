//! Failures of backends and of requests, in words that hold no key and no address.

use std::{sync::Arc, time::Duration};

use media::ErrorKind;

use crate::{ProviderKind, Tokens, excerpt::cleaned};

/// Failure of one backend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No connection, or TLS did not come about.
    #[error("refused the connection")]
    Refused,
    /// The connection ended before the answer did.
    #[error("closed the connection in mid-answer")]
    Closed,
    /// No whole answer in time.
    #[error("ran into the timeout: no whole answer within {after:?}")]
    Timeout {
        /// The time it had.
        after: Duration,
    },
    /// An error status.
    #[error("answered {}: status {status}{}", self.class(), after_colon(.said))]
    Http {
        /// The status.
        status: u16,
        /// Its message, short and cleaned; empty where it gave none, and where others than the
        /// caller are told.
        said: String,
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
    /// The answer has no words in it.
    #[error("gave an empty answer")]
    Empty,
    /// A filter took the answer.
    #[error("filtered the answer")]
    Filtered,
    /// The answer does not match the schema, also after the model was told so.
    #[error("gave an answer that does not match output_schema{}", after_colon(.problem))]
    Schema {
        /// The first violations; empty where others than the caller are told.
        problem: String,
    },
    /// It failed so often that it is left alone for a while.
    #[error("failed repeatedly and is not asked for now")]
    Open {
        /// Time until it is asked again; `None` while another's probe request is in flight.
        again_in: Option<Duration>,
    },
}

fn after_colon(problem: &str) -> String {
    if problem.is_empty() { String::new() } else { format!(": {problem}") }
}

impl Failure {
    /// An error status about which nothing is said.
    pub const fn http(status: u16) -> Failure {
        Failure::Http { status, said: String::new() }
    }

    /// The class and, in one line, what is known beyond it: `http 404: The model x does not exist`.
    pub fn brief(&self) -> String {
        let (class, more) = match self {
            Failure::Http { status, said } => (format!("http {status}"), said.clone()),
            Failure::Timeout { after } => {
                (self.class().to_owned(), format!("no whole answer within {after:?}"))
            }
            Failure::Malformed { problem } => (self.class().to_owned(), (*problem).to_owned()),
            Failure::Schema { problem } => (self.class().to_owned(), cleaned(problem, None)),
            _ => (self.class().to_owned(), String::new()),
        };
        class + &after_colon(&more)
    }

    /// The same without anything of the question or the answer: for those who did not ask.
    pub(crate) fn without_content(&self) -> Failure {
        match self {
            Failure::Schema { .. } => Failure::Schema { problem: String::new() },
            Failure::Http { status, .. } => Failure::http(*status),
            other => other.clone(),
        }
    }

    /// The backend did no work: whoever bills by the token bills answers, and no error status.
    pub(crate) const fn is_free(&self) -> bool {
        matches!(
            self,
            Failure::Refused
                | Failure::Http { .. }
                | Failure::RateLimited { .. }
                | Failure::Open { .. }
        )
    }

    /// Name of the class, for messages and metrics.
    pub const fn class(&self) -> &'static str {
        match self {
            Failure::Refused => "refused",
            Failure::Closed => "closed",
            Failure::Timeout { .. } => "timeout",
            Failure::Http { status: 500..=599, .. } => "http 5xx",
            Failure::Http { status: 400..=499, .. } => "http 4xx",
            Failure::Http { .. } => "http other",
            Failure::RateLimited { .. } => "rate limited",
            Failure::Malformed { .. } => "malformed",
            Failure::TooLarge { .. } => "too large",
            Failure::Truncated => "truncated",
            Failure::Empty => "empty",
            Failure::Filtered => "filtered",
            Failure::Schema { .. } => "schema",
            Failure::Open { .. } => "open",
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
pub struct Failed {
    /// Name of the backend.
    pub provider: Arc<str>,
    /// Failure of it.
    pub failure: Failure,
    /// Tokens that it counted before it failed.
    pub tokens: Tokens,
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
        /// The model asked for.
        model: String,
    },
    /// None of the backends is of the kind asked for.
    #[error("no configured backend is a {} backend that serves the model", .kind.as_str())]
    NoProvider {
        /// The kind asked for.
        kind: ProviderKind,
    },
    /// The first request has no room in what it is paid from.
    #[error("too few tokens are left for the request")]
    NoBudget,
    /// Every backend that was asked failed.
    #[error("{}", listed(.0))]
    Failed(Vec<Failed>),
}

fn listed(failed: &[Failed]) -> String {
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
    pub fn tokens(&self) -> Tokens {
        self.failed().iter().fold(Tokens::default(), |sum, one| sum + one.tokens)
    }

    /// Every backend that was asked, in that order.
    pub fn failed(&self) -> &[Failed] {
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

    /// Another's ask is to show whether one of the backends is back.
    pub fn is_on_trial(&self) -> bool {
        let failed = self.failed().iter();
        failed.into_iter().any(|one| one.failure == Failure::Open { again_in: None })
    }

    /// The shortest rest that a backend asked for; `None` where none did, or none that takes time.
    pub fn rest(&self) -> Option<Duration> {
        let rests = self.failed().iter().filter_map(|one| match one.failure {
            Failure::RateLimited { retry_after } => retry_after,
            _ => None,
        });
        rests.filter(|rest| !rest.is_zero()).min()
    }
}
