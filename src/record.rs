//! Recordings: turn frames into a column of signals, stills and events, the same for every source.
//!
//! `recorder` decides and is pure, `recording` writes. Neither depends on the kind of source.

pub(crate) mod frames;
pub(crate) mod gate_replay;
pub(crate) mod image_embedder;
pub(crate) mod inference;
pub(crate) mod live;
mod memory_budget;
pub(crate) mod reason;
pub(crate) mod recorder;
pub(crate) mod recording;
pub(crate) mod remote;
pub(crate) mod runner;
pub(crate) mod small_stills;
pub(crate) mod worker_backends;

pub use live::LOST_AFTER;
pub use memory_budget::{MemoryBudget, MemoryExhausted, MemoryReservation, SESSION_BYTES};
pub use runner::QUEUE_MAX;
