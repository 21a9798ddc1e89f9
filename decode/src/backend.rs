//! Decoding backends, and the reasons that one is unavailable.
//!
//! libav's own decoders are the reference: every other backend must produce the same bits, and leaves to them
//! the streams that it cannot decode. Starts no process and reads no setting.

use media::ErrorKind;

media::named! {
    /// Backend that turns coded pictures into frames.
    ///
    /// The variants of [`DecodeBackend::AUTOMATIC`] come first, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub enum DecodeBackend {
        /// NVIDIA's decoder, through libav.
        Nvdec = "nvdec",
        /// The decoder behind a render node, through libav and libva.
        Vaapi = "vaapi",
        /// libav's decoders on the CPU; always available.
        Software = "software",
        /// An external ffmpeg program beside the worker; used only when named.
        FfmpegCli = "ffmpeg-cli",
    }
}

impl DecodeBackend {
    /// Backends tried in this order if none is named.
    pub const AUTOMATIC: [DecodeBackend; 3] =
        [DecodeBackend::Nvdec, DecodeBackend::Vaapi, DecodeBackend::Software];
}

/// Reason that a backend is unavailable; the text names the part at fault.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[error("{reason}")]
pub struct BackendError {
    kind: ErrorKind,
    reason: String,
}

impl BackendError {
    /// Makes the error of a library, a driver, a device or a program that is missing or fails.
    pub fn unavailable(reason: impl Into<String>) -> BackendError {
        BackendError { kind: ErrorKind::Unavailable, reason: reason.into() }
    }

    /// Makes the error of a libav, a device or a program that works but lacks what is needed.
    pub fn unsupported(reason: impl Into<String>) -> BackendError {
        BackendError { kind: ErrorKind::Unsupported, reason: reason.into() }
    }

    /// Makes the error of a setting that names no device; `expected` is the form of one that does.
    pub(crate) fn bad_device(device: &str, expected: &str) -> BackendError {
        let reason = format!("{device:?} is no device: {expected}");
        BackendError { kind: ErrorKind::InvalidInput, reason }
    }

    /// Returns the error kind, which decides the answer to the caller.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_their_backends() {
        for backend in DecodeBackend::ALL {
            assert_eq!(DecodeBackend::from_name(backend.as_str()), Some(backend));
        }
        for other in ["", "auto", "NVDEC", "cuda"] {
            assert_eq!(DecodeBackend::from_name(other), None, "{other}");
        }
    }
}
