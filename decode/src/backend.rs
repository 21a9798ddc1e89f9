//! Decoding backends, and the reasons that one of them does not work here.
//!
//! libav's own decoders are the reference: every other backend must give their bits, and hands back to
//! them what it cannot decode. Knows no process and no setting.

use media::ErrorKind;

media::named! {
    /// Backend that turns coded pictures into frames.
    ///
    /// First those that are tried where none is named, in their order.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
    pub enum DecodeBackend {
        /// NVIDIA's decoder, through libav.
        Nvdec = "nvdec",
        /// The decoder behind a render node, through libav and libva.
        Vaapi = "vaapi",
        /// libav's decoders on the CPU; always there.
        Software = "software",
        /// An ffmpeg program beside the worker; asked for by name only.
        FfmpegCli = "ffmpeg-cli",
    }
}

impl DecodeBackend {
    /// Those that are tried where none is named.
    pub const AUTOMATIC: [DecodeBackend; 3] =
        [DecodeBackend::Nvdec, DecodeBackend::Vaapi, DecodeBackend::Software];
}

/// Reason that a backend does not decode here; it names the missing part.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum BackendError {
    /// A library that it needs is not there, or is not what its name says.
    #[error("{library} cannot be loaded: {reason}")]
    Library {
        /// Name of the library.
        library: String,
        /// Message of the loader.
        reason: String,
    },
    /// The driver is there and its decoding half is not: containers are given it on demand.
    #[error(
        "libnvcuvid.so.1 cannot be loaded although the NVIDIA driver is there: {reason}; in a \
         container NVIDIA_DRIVER_CAPABILITIES must name video, and it {}",
        .capabilities.as_ref().map_or("is not set".to_owned(), |set| format!("is {set:?}"))
    )]
    NoVideoCapability {
        /// Message of the loader.
        reason: String,
        /// The variable's value; `None` where it is not set.
        capabilities: Option<String>,
    },
    /// The driver is there and has no device, or not the one asked for.
    #[error("the NVIDIA driver has no device {device}: {reason}")]
    NoDevice {
        /// The device asked for.
        device: String,
        /// Message of the driver.
        reason: String,
    },
    /// The render node is not there, or not for this user.
    #[error("the render node cannot be opened: {reason}: {path}")]
    RenderNode {
        /// Error of the system.
        reason: String,
        /// The node.
        path: String,
    },
    /// libav was built without it.
    #[error("this libav was built without {backend}")]
    NotBuilt {
        /// Name of the backend.
        backend: String,
    },
    /// The device is there and libav cannot use it.
    #[error("{call} failed: {detail}")]
    Refused {
        /// The libav function.
        call: String,
        /// Error of libav.
        detail: String,
    },
    /// There is no such program.
    #[error("no program to run, looked for at {searched}")]
    Program {
        /// Places that were searched for it.
        searched: String,
    },
    /// The program is no ffmpeg, or one that does not know the arguments it is given.
    #[error(
        "{program} is no ffmpeg of version 5.1 or later: asked for its version it says {said:?}"
    )]
    ProgramVersion {
        /// The program.
        program: String,
        /// Output of the program.
        said: String,
    },
    /// The value of a setting names no device.
    #[error("{device:?} is no device: {expected}")]
    BadDevice {
        /// Name that was given.
        device: String,
        /// Form that a name must have.
        expected: String,
    },
    /// It is there and decodes none of the clips of the probe.
    #[error("it failed to decode every probe clip: {reason}")]
    DecodesNothing {
        /// Fault of the first of them.
        reason: String,
    },
}

impl BackendError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            BackendError::BadDevice { .. } => ErrorKind::InvalidInput,
            BackendError::NotBuilt { .. }
            | BackendError::DecodesNothing { .. }
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
