//! Events on their way out: what is told to others after it is in the log.

pub mod node;
pub mod outbox;
pub mod sse;
pub mod webhook;
