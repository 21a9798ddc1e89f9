//! Why there is no answer, in words that hold no key and no address.

use std::{sync::Arc, time::Duration};

use media::ErrorKind;

use crate::ProviderKind;

/// How one backend failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// No connection, or TLS did not come about.
    #[error("refused the connection")]
    Refused,
    /// The connection ended before the answer did.
    #[error("closed the connection in mid-answer")]
    Closed,
    /// No whole answer in time.
    #[error("gave no answer within {after:?}")]
    Timeout {
        /// The time it had.
        after: Duration,
    },
    /// An error status.
    #[error("answered HTTP {status}")]
    Http {
        /// The status.
        status: u16,
    },
    /// It wants fewer requests.
    #[error("is rate limited")]
    RateLimited {
        /// When it wants to be asked again.
        retry_after: Option<Duration>,
    },
    /// The answer is not what the protocol says.
    #[error("gave a malformed answer: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The answer is longer than is read.
    #[error("gave an answer over {bytes_max} bytes")]
    TooLarge {
        /// The limit.
        bytes_max: usize,
    },
    /// The model ran out of room.
    #[error("gave a truncated answer: the model ran out of tokens")]
    Truncated,
    /// A filter took the answer.
    #[error("filtered the answer")]
    Filtered,
    /// The answer does not match the schema, also after the model was told so.
    #[error("gave an answer that does not match output_schema: {problem}")]
    Schema {
        /// The first violations.
        problem: String,
    },
    /// It failed so often that it is left alone for a while.
    #[error("failed repeatedly and is not asked for now")]
    Open,
}

/// One backend's failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Name of the backend.
    pub provider: Arc<str>,
    /// How it failed.
    pub failure: Failure,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InferError {
    /// Nothing is configured.
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
    /// The schema cannot be used.
    #[error("output_schema {0}")]
    Schema(String),
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
            InferError::NotServed { .. }
            | InferError::NoProvider { .. }
            | InferError::Schema(_) => ErrorKind::InvalidInput,
        }
    }
}
