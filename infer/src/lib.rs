//! Pictures and prompts to findings: the model backends, the order they are asked in, admission.
//!
//! Promises that an answer was validated against its schema, that every call ends by its deadline
//! and that keys appear in no message. Knows no route, no run and no timeline.
#![forbid(unsafe_code)]

mod answer;
mod error;
mod request;

pub use answer::{Answer, FinishReason, Tokens};
pub use error::{Failed, Failure, InferError};
pub use request::{Image, ProviderKind, Request};
