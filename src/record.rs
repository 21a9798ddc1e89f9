//! Recordings: turn frames into a column of signals, stills and events, the same for every source.
//!
//! [`recorder`] decides and is pure, [`recording`] writes. Neither depends on the kind of source.

pub mod frames;
pub mod gate_replay;
pub mod image_embedder;
pub mod inference;
pub mod live;
pub mod reason;
pub mod recorder;
pub mod recording;
pub mod remote;
pub mod runner;
pub mod small_stills;
pub mod worker_backends;
