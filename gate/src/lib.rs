//! Turns frames into decisions: measures pixels as integers, derives signals, decides.
//!
//! All values that decide are integers, so every backend and machine gives the same result, and a decision is
//! a function of the [`media::Signal`]s alone. The crate reads no clock, environment or file and starts no
//! thread.
#![deny(unsafe_code)]

mod activity;
mod artifact_scores;
mod cells;
#[cfg(any(test, feature = "conformance"))]
pub mod conformance;
mod continued;
mod cpu;
mod decision;
#[cfg(any(test, feature = "device"))]
pub mod device_batch;
mod episodes;
mod fallback;
mod global_motion;
mod loops;
mod measure;
mod perceptual_hash;
mod relit_cut;
mod scene;
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "AVX2 loads and stores")]
mod simd;
mod thumbnail;
mod window;

pub use activity::{ActivityState, Change, ZoneMask};
pub use cells::{CHROMA_COLUMNS, CHROMA_ROWS, LUMA_COLUMNS, LUMA_ROWS, cell_span};
pub use cpu::{CpuBackend, ReferenceBackend};
pub use decision::{Decision, Gate, GateState, SelectionReason};
pub use episodes::{Episode, EpisodeChange, Episodes};
pub use fallback::FallbackBackend;
pub use loops::{LoopEntered, Loops};
pub use measure::{FrameMeasurements, MAX_SIDE, MeasureBackend, MeasureError};
pub use media::GateConfig;
pub use window::{AHEAD, BACK, FrameMeta, Past, SignalWindow};
