//! Delivery of events to others once they are in the log.

pub mod export;
pub mod mirror;
pub mod node;
pub mod objects;
pub mod outbox;
pub mod search;
pub mod sse;
pub mod webhook;
