//! Messages between a server and its media workers.
//!
//! There are messages for records of frames and for coded bytes, and none for other pixels. `wire` encodes
//! them.

use std::fmt;

use decode::CodecProbeResult;
use media::{Codec, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    EncodedImage, ExcerptEvent, JobEvent, JobFault, JobOptions, SandboxReport,
    sandbox::SandboxLimits,
    session::{SessionSpec, WorkerSessionEvent},
    wire::{self, LIST_MAX, Message},
};

/// Message of a server to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WorkerRequest {
    /// Enter the sandbox; the first request.
    Confine(SandboxLimits),
    /// Analyse a source.
    Job { source: InputSource, options: JobOptions },
    /// Answer to [`WorkerReply::Open`]; comes with the read end of a pipe.
    Resource { url: String, size: Option<u64>, seekable: bool },
    /// Open a live session under a number that the server chose.
    OpenSession { session: u32, spec: SessionSpec },
    /// The next access unit of a session; answered by [`WorkerReply::UnitDone`].
    AccessUnit {
        session: u32,
        pts: Timestamp,
        keyframe: bool,
        follows_gap: bool,
        #[serde(with = "wire::bytes")]
        data: Vec<u8>,
    },
    /// Close a session, as no unit follows; answered by [`WorkerReply::UnitDone`].
    CloseSession { session: u32 },
    /// Answer to [`WorkerReply::Program`], sent twice: with the socket that is the program's stdin and
    /// stdout, then with the pipe of its stderr.
    Program,
    /// Scale a still down to a longer edge of `edge_max`; answered by [`WorkerReply::Shrunk`].
    Shrink {
        #[serde(with = "wire::bytes")]
        jpeg: Vec<u8>,
        edge_max: u32,
    },
    /// Cut a span out of the file whose descriptor comes along, `len` bytes long; answered by
    /// [`WorkerReply::Excerpt`].
    Excerpt { len: u64, from_ms: i64, to_ms: i64 },
    /// Attempt actions that the sandbox must refuse; answered by [`WorkerReply::Probed`].
    Probe,
    /// Try the decoders and the gate backend; answered by [`WorkerReply::Capabilities`].
    Look,
}

impl Message for WorkerRequest {
    const IS_TOLD: bool = false;
}

/// Source of a job's media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum InputSource {
    /// The file whose descriptor comes along, `len` bytes long.
    File { len: u64 },
    /// URL that the server opens on request.
    Remote { url: String, playlists: bool },
    /// The RTSP server at the other end of the connection whose descriptor comes along.
    Rtsp { url: String, credentials: Option<RtspCredentials> },
}

#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RtspCredentials {
    pub user: String,
    pub password: String,
}

/// Prints no field: credentials must not reach a log.
impl fmt::Debug for RtspCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RtspCredentials").finish_non_exhaustive()
    }
}

/// Message of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WorkerReply {
    /// The sandbox is entered; the first reply.
    Confined(SandboxReport),
    /// Event of the file job.
    Job(JobEvent),
    /// The job ended early.
    Failed(JobFault),
    /// Asks for the bytes of `url` from byte `from` on; the job waits for them.
    Open { url: String, from: u64 },
    /// Asks for a program that decodes `codec`; the job waits for it.
    Program { codec: Codec },
    /// Event of a live session.
    Session { session: u32, event: WorkerSessionEvent },
    /// The device that measured live sessions was given up for this reason; the CPU goes on.
    GateLost { reason: String },
    /// The device that measures live sessions was late with a batch, so the CPU measured it.
    GateLate,
    /// The device that should decode live sessions cannot be opened, for this reason; the CPU decodes.
    DecoderLost { reason: String },
    /// The session's last unit, or its closing, is done; all of its events have been sent.
    UnitDone { session: u32 },
    /// The still that was scaled down.
    Shrunk(EncodedImage),
    /// Event of the excerpt.
    Excerpt(ExcerptEvent),
    /// Attempts, each with the error number of its refusal.
    Probed(#[serde(deserialize_with = "wire::list::<_, _, LIST_MAX>")] Vec<EscapeAttempt>),
    /// Result of [`WorkerRequest::Look`].
    Capabilities(Capabilities),
}

impl Message for WorkerReply {
    const IS_TOLD: bool = true;
}

/// Capabilities of a sandboxed worker of this machine, found by trying them inside the sandbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capabilities {
    /// Results of decoding one clip per codec, and the 10-bit clips.
    #[serde(deserialize_with = "wire::list::<_, _, LIST_MAX>")]
    pub codecs: Vec<CodecProbeResult>,
    /// Name of the gate backend, such as `cpu-avx2`, or a backend and its device.
    pub measurer: String,
}

/// Attempt at an action that a sandboxed process must not be able to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscapeAttempt {
    /// Name of the action.
    pub what: String,
    /// Error number of the refusal; `None` if the action was allowed.
    pub errno: Option<i32>,
}

impl EscapeAttempt {
    /// Returns true if the sandbox refused it: any other error comes from past the sandbox.
    pub fn is_refused(&self) -> bool {
        matches!(self.errno, Some(libc::EPERM | libc::EACCES))
    }
}

#[cfg(test)]
mod tests;
