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

/// Reason that a backend is unavailable; names the missing part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum BackendError {
    /// A required library is missing, or is not the expected one.
    #[error("{library} cannot be loaded: {reason}")]
    Library {
        /// Name of the library.
        library: String,
        /// Message of the loader.
        reason: String,
    },
    /// The driver is present without its decoder library, which containers get only on request.
    #[error(
        "libnvcuvid.so.1 cannot be loaded although the NVIDIA driver is there: {reason}; in a \
         container NVIDIA_DRIVER_CAPABILITIES must name video, and it {}",
        .capabilities.as_ref().map_or("is not set".to_owned(), |set| format!("is {set:?}"))
    )]
    NoVideoCapability {
        /// Message of the loader.
        reason: String,
        /// Value of `NVIDIA_DRIVER_CAPABILITIES`; `None` if it is not set.
        capabilities: Option<String>,
    },
    /// The driver is present but has no device, or not the requested one.
    #[error("the NVIDIA driver has no device {device}: {reason}")]
    NoDevice {
        /// Requested device.
        device: String,
        /// Message of the driver.
        reason: String,
    },
    /// The render node is missing, or this user may not open it.
    #[error("the render node cannot be opened: {reason}: {path}")]
    RenderNode {
        /// Error of the system.
        reason: String,
        /// Path of the node.
        path: String,
    },
    /// libav was built without the backend of this name.
    #[error("this libav was built without {0}")]
    NotBuilt(String),
    /// The device is present but libav cannot use it.
    #[error("{call} failed: {detail}")]
    Refused {
        /// Name of the libav function.
        call: String,
        /// Error of libav.
        detail: String,
    },
    /// The program was not found at these paths.
    #[error("no program to run, looked for at {0}")]
    Program(String),
    /// The program is not ffmpeg, or too old for the arguments that it would get.
    #[error(
        "{program} is no ffmpeg of version 5.1 or later: asked for its version it says {said:?}"
    )]
    ProgramVersion {
        /// Path of the program.
        program: String,
        /// Output of the program.
        said: String,
    },
    /// The value of a setting names no device.
    #[error("{device:?} is no device: {expected}")]
    BadDevice {
        /// Value that was given.
        device: String,
        /// Expected form of the value.
        expected: String,
    },
    /// The backend opened but decoded none of the probe clips; with the error of the first.
    #[error("it failed to decode every probe clip: {0}")]
    DecodesNothing(String),
}

impl BackendError {
    /// Returns the error kind, which decides the answer to the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BackendError::BadDevice { .. } => ErrorKind::InvalidInput,
            BackendError::NotBuilt(_)
            | BackendError::DecodesNothing(_)
            | BackendError::ProgramVersion { .. } => ErrorKind::Unsupported,
            _ => ErrorKind::Unavailable,
        }
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
