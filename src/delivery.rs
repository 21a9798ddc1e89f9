//! Delivery of events to others once they are in the log.

pub mod node;
pub mod outbox;
pub mod sse;
pub mod webhook;
