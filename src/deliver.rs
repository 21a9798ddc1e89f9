//! Delivery of logged events to other systems and to clients.

pub mod export;
pub mod mirror;
pub mod node;
pub mod objects;
pub mod outbox;
pub mod search;
pub mod sse;
pub mod webhook;
