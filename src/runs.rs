//! Runs: their states, their registry and their stored data. Depends on no media, model or route.

pub(crate) mod idempotency;
pub(crate) mod job_queue;
pub(crate) mod lifecycle;
pub(crate) mod registry;
pub(crate) mod retention;
pub(crate) mod source;
pub(crate) mod summary;
pub(crate) mod tickets;
pub(crate) mod upload;

pub use job_queue::{JobPermit, JobQueue, QueueFull};
