//! Runs: their states, their registry, and what is kept for them. Knows no media, models or routes.

pub mod idempotency;
pub mod job_queue;
pub mod lifecycle;
pub mod registry;
pub mod retention;
pub mod source;
pub mod summary;
pub mod tickets;
pub mod upload;
