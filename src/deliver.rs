//! Delivery of logged events to other systems and to clients.

pub(crate) mod export;
pub mod mirror;
pub(crate) mod node;
pub(crate) mod objects;
pub mod outbox;
pub(crate) mod search;
pub(crate) mod sse;
pub(crate) mod webhook;
