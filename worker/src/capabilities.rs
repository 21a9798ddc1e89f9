//! What a worker can do, found out by doing it inside the sandbox.

use decode::{Decoders, try_clips};

use crate::measuring::Measuring;

/// What a sandboxed worker of this machine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// What came of a clip of every codec, and of those of ten bits where there are any.
    pub codecs: Vec<decode::Tried>,
    /// What measures frames, such as `cpu-avx2`, or a backend and its device.
    pub measurer: String,
}

/// Tries every codec.
pub(crate) fn look(decoders: &Decoders, measuring: &Measuring) -> Capabilities {
    Capabilities { codecs: try_clips(decoders), measurer: measuring.name() }
}
