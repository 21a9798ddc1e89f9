//! Real and made clips through the whole crate, judged by the ffmpeg tools.

mod clips;
#[path = "../../../tests/support/cuda_shim.rs"]
mod cuda_shim;
mod damage;
#[path = "../../../tests/support/device_shim.rs"]
mod device_shim;
mod devices;
#[path = "../../../tests/support/driver_shim.rs"]
mod driver_shim;
mod live;
mod live_clips;
mod live_loss;
mod programs;
mod sizes;
#[path = "../../../tests/support/skip.rs"]
mod skip;
mod support;
