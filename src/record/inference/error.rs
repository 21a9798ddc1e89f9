//! Errors of starting inference and of requests to models.

use std::time::Duration;

use infer::{BackendError, InferError, RequestCost, SetupError, scheduler::AdmissionError};
use media::ErrorKind;
use transport::tls::TrustError;

use super::until_midnight;
use crate::base::{
    clock::wall_now,
    meta_store::MetaStoreError,
    metrics::{Label, RefusalLabel},
};

#[derive(Debug, thiserror::Error)]
pub enum InferenceStartError {
    /// The client of a backend cannot be created.
    #[error(transparent)]
    Setup(#[from] SetupError),
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// The daily token usage cannot be read.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
}

#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    #[error("{0}")]
    Refused(#[from] AdmissionError),
    /// The backends failed, or none is configured.
    #[error("{0}")]
    Infer(#[from] InferError),
}

impl InferenceError {
    pub fn kind(&self) -> ErrorKind {
        match self {
            InferenceError::Refused(refused) => refused.kind(),
            InferenceError::Infer(error) => error.kind(),
        }
    }

    /// Returns a stable name for the kind of failure.
    pub fn class(&self) -> &'static str {
        match self {
            InferenceError::Refused(refused) => RefusalLabel::of(refused).value(),
            InferenceError::Infer(error) => class(error),
        }
    }

    /// Returns the failure's class and details in one line; of several backends the first one's.
    pub fn brief(&self) -> String {
        match self {
            InferenceError::Infer(InferError::Failed(failed)) => {
                failed.first().map_or_else(String::new, |one| one.failure.brief())
            }
            InferenceError::Infer(error) => error.to_string(),
            InferenceError::Refused(refused) => format!("{}: {refused}", self.class()),
        }
    }

    /// Failures of the backends, in the order of the attempts.
    pub fn failed(&self) -> &[BackendError] {
        match self {
            InferenceError::Refused(_) => &[],
            InferenceError::Infer(error) => error.failed(),
        }
    }

    pub fn cost(&self) -> RequestCost {
        match self {
            InferenceError::Refused(_) => RequestCost::default(),
            InferenceError::Infer(error) => error.cost(),
        }
    }

    /// Time after which a retry may succeed, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            InferenceError::Refused(AdmissionError::DaySpent { .. }) => {
                Some(until_midnight(wall_now()))
            }
            _ => None,
        }
    }
}

pub(super) fn class(error: &InferError) -> &'static str {
    match error {
        InferError::Failed(failed) => failed.last().map_or("failed", |one| one.failure.class()),
        InferError::NoBackend => "no backend",
        InferError::NotServed { .. } => "not served",
        InferError::NoProvider { .. } => "no provider",
        InferError::NoBudget => "no budget",
    }
}
