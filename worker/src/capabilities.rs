//! What a worker can do here: every decoder is really opened, inside the sandbox.

use decode::{LiveOptions, open_decoder};
use gate::{CpuMeasurer, Measurer};
use media::Codec;

/// What a sandboxed worker of this machine can do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// One entry a codec.
    pub codecs: Vec<CodecSupport>,
    /// What measures frames, such as `cpu-avx2`.
    pub measurer: String,
}

/// Whether a codec is decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodecSupport {
    /// The codec.
    pub codec: Codec,
    /// The decoder that opened, such as `software:h264`; `None` when none does.
    pub decoder: Option<String>,
}

/// Tries every codec.
pub(crate) fn look() -> Capabilities {
    let open = |codec| {
        // Why one does not open is libav's own affair; that it does not is the answer.
        let decoder = open_decoder(codec, LiveOptions::default()).ok();
        CodecSupport { codec, decoder: decoder.map(|decoder| decoder.name().to_owned()) }
    };
    let measurer = CpuMeasurer::new().name().to_owned();
    Capabilities { codecs: Codec::ALL.map(open).into(), measurer }
}
