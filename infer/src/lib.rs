//! Pictures and prompts to findings: the model backends, the order they are asked in, admission.
//!
//! Promises that an answer was validated against its schema, that every call ends by its deadline
//! and that keys appear in no message. Knows no route, no run and no timeline.
#![forbid(unsafe_code)]

mod admission;
mod answer;
mod backend;
mod breaker;
mod chain;
mod config;
mod dialect;
mod error;
mod excerpt;
pub mod finding;
mod http;
mod judges;
mod listing;
mod names;
mod observe;
mod probe;
pub mod prompt;
mod purse;
mod request;
mod rest;
pub mod scheduler;
mod schema;
mod tier;
mod turns;

pub use admission::{Admission, OnUse, Permit, Today};
pub use answer::{Answer, FinishReason, Tokens};
pub use chain::Chain;
pub use config::{
    Api, BACKENDS_MAX, BackendConfig, Backends, BaseUrl, ConfigError, OpenaiKind, Problem, Secret,
    TIMEOUT_DEFAULT, TIMEOUT_MAX, UrlProblem,
};
pub use error::{Failed, Failure, InferError};
pub use finding::Finding;
pub use http::{REPLY_BYTES_MAX, SetupError};
pub use observe::{Attempt, Observer};
pub use probe::{Probe, Serving, Standing};
pub use prompt::{Prompt, PromptVersion, Shape};
pub use purse::Purse;
pub use request::{Image, ProviderKind, Request};
pub use schema::{DEPTH_MAX, OutputSchema, SCHEMA_BYTES_MAX, SchemaError, Violations};
pub use tier::{Described, Tier, Tiered};
