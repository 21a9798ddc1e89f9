//! Reasons that inference cannot begin, or that there is no answer.

use std::time::Duration;

use infer::{InferError, SetupError, TokenUsage, scheduler::AdmissionError};
use media::ErrorKind;
use transport::tls::TrustError;

use super::until_midnight;
use crate::base::{
    clock::wall_now,
    meta_store::MetaStoreError,
    metrics::{Label, RefusalLabel},
};

/// Reason that inference cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum InferenceStartError {
    /// No client can be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The trusted certificates cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The tokens used of the day cannot be read.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
}

/// Reason that there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// Refusal of admission.
    #[error("{0}")]
    Refused(#[from] AdmissionError),
    /// Failure of the backends, or none to ask.
    #[error("{0}")]
    Infer(#[from] InferError),
}

impl InferenceError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            InferenceError::Refused(refused) => refused.kind(),
            InferenceError::Infer(error) => error.kind(),
        }
    }

    /// Kind of the failure, in a word that is the same each time.
    pub fn class(&self) -> &'static str {
        match self {
            InferenceError::Refused(refused) => RefusalLabel::of(refused).value(),
            InferenceError::Infer(error) => class(error),
        }
    }

    /// The class and, in one line, what is known beyond it; of several backends of the first.
    pub fn brief(&self) -> String {
        match self {
            InferenceError::Infer(InferError::Failed(failed)) => {
                failed.first().map_or_else(String::new, |one| one.failure.brief())
            }
            InferenceError::Infer(error) => error.to_string(),
            InferenceError::Refused(refused) => format!("{}: {refused}", self.class()),
        }
    }

    /// Tokens that it took all the same.
    pub fn tokens(&self) -> TokenUsage {
        match self {
            InferenceError::Refused(_) => TokenUsage::default(),
            InferenceError::Infer(error) => error.tokens(),
        }
    }

    /// Time until it may be otherwise, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            InferenceError::Refused(AdmissionError::DaySpent { .. }) => {
                Some(until_midnight(wall_now()))
            }
            _ => None,
        }
    }
}

/// The kind of `error`, in a word that is the same each time.
pub(super) fn class(error: &InferError) -> &'static str {
    match error {
        InferError::Failed(failed) => failed.last().map_or("failed", |one| one.failure.class()),
        InferError::NoBackend => "no backend",
        InferError::NotServed { .. } => "not served",
        InferError::NoProvider { .. } => "no provider",
        InferError::NoBudget => "no budget",
    }
}
