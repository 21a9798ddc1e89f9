//! Capabilities of a worker, found out by trying them inside the sandbox.

use decode::{DecoderChain, try_clips};

use crate::{
    gate_device::GateMeasurement,
    wire::{LIST_MAX, list},
};

/// Capabilities of a sandboxed worker of this machine.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Capabilities {
    /// Results of a clip of every codec, and of those of ten bits where there are any.
    #[serde(deserialize_with = "list::<_, _, LIST_MAX>")]
    pub codecs: Vec<decode::CodecProbeResult>,
    /// Name of the gate backend of frames, such as `cpu-avx2`, or a backend and its device.
    pub measurer: String,
}

/// Tries every codec.
pub(crate) fn look(decoders: &DecoderChain, measuring: &GateMeasurement) -> Capabilities {
    Capabilities { codecs: try_clips(decoders), measurer: measuring.name() }
}
