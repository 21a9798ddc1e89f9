//! Real and made clips through the whole crate, judged by the ffmpeg tools.

mod clips;
mod damage;
mod live;
mod live_clips;
mod live_loss;
mod programs;
mod support;
