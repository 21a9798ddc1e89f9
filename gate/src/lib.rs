//! Frames to decisions: measure pixels as integers, derive signals, decide.
//!
//! Everything that decides is an integer, so every backend and every machine gives the same
//! result, and a decision is a function of the [`media::Signal`]s alone.
//! Reads no clock, no environment, no file; starts no thread.
#![deny(unsafe_code)]

mod cells;
mod config;
mod cpu;
mod decision;
mod loops;
mod measure;
mod window;

pub use cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, Span, cell_span};
pub use config::GateConfig;
pub use cpu::{CpuMeasurer, ReferenceMeasurer};
pub use decision::{Decision, Gate, Reason};
pub use measure::{MAX_SIDE, MeasureError, Measurements, Measurer};
pub use window::{AHEAD, BACK, FrameStamp, SignalWindow};
