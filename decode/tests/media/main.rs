//! Real and made clips through the whole crate, compared with the ffmpeg tools.

mod clips;
#[path = "../../../tests/support/cuda_shim.rs"]
mod cuda_shim;
mod damage;
#[path = "../../../tests/support/damaged.rs"]
mod damaged;
mod endless;
mod live;
mod live_clips;
mod live_loss;
mod nvdec;
#[path = "../../../tests/support/nvdec_shim.rs"]
mod nvdec_shim;
mod open_gops;
mod parts;
mod programs;
mod sizes;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod support;
