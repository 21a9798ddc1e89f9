//! Runs: their states, their registry and their stored data. Depends on no media, model or route.

pub mod idempotency;
pub mod job_queue;
pub mod lifecycle;
pub mod registry;
pub mod retention;
pub mod source;
pub mod summary;
pub mod tickets;
pub mod upload;
