//! Capabilities of a worker, found by trying them inside the sandbox.

use decode::{DecoderChain, try_clips};

use crate::{
    gate_device::GateMeasurement,
    wire::{LIST_MAX, list},
};

/// Capabilities of a sandboxed worker of this machine.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capabilities {
    /// Results of decoding one clip per codec, and the 10-bit clips.
    #[serde(deserialize_with = "list::<_, _, LIST_MAX>")]
    pub codecs: Vec<decode::CodecProbeResult>,
    /// Name of the gate backend, such as `cpu-avx2`, or a backend and its device.
    pub measurer: String,
}

/// Tries to decode the clips of every codec.
pub(crate) fn look(decoders: &DecoderChain, measuring: &GateMeasurement) -> Capabilities {
    Capabilities { codecs: try_clips(decoders), measurer: measuring.name() }
}
