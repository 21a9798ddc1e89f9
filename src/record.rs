//! Recordings: frames in, a column of signals, stills and events out; the same for every source.
//!
//! [`recorder`] decides and is pure, [`recording`] writes. Neither knows which source it serves.

pub mod frames;
pub mod recorder;
pub mod recording;
