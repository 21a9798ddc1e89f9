//! Model inference: backends, the order in which they are tried, prompts, findings, and admission.
//!
//! Promises that an answer was validated against its schema, that every call ends by its deadline and that
//! keys appear in no message. Knows no route, no run and no timeline.
#![forbid(unsafe_code)]

mod admission;
mod backend;
mod chain;
mod circuit_breaker;
mod completion;
mod config;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
mod error;
mod excerpt;
pub mod finding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod http;
mod model_list;
mod probe;
pub mod prompt;
mod provider_api;
mod request;
mod request_retries;
mod retry_after;
pub mod scheduler;
mod schema;
mod two_pass;
mod validation_pool;

pub use admission::{InferenceAdmission, InferencePermit, TokenBudget, UsageCallback, UtcDayFn};
pub use chain::BackendChain;
pub use completion::{BackendAttempt, Completion, FinishReason, RequestCost, TokenUsage};
pub use config::{
    ApiKey, ApiProtocol, BACKENDS_MAX, BackendConfig, BaseUrl, ConfigError, OpenaiKind,
    TIMEOUT_DEFAULT, TIMEOUT_MAX,
};
pub use error::{BackendError, FailureKind, InferError};
pub use finding::Finding;
pub use http::{REPLY_BYTES_MAX, SetupError};
pub use probe::{ProbeResult, Serving, Standing};
pub use prompt::{Prompt, PromptKind, PromptVersion};
pub use request::{InferenceRequest, PromptImage, ProviderKind};
pub use schema::{DEPTH_MAX, OutputSchema, SCHEMA_BYTES_MAX, SchemaError, Violations};
pub use two_pass::{Pass, TwoPassAnswer, TwoPassRequest};
