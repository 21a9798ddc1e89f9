//! The messages between a server and its media workers.
//!
//! There is a message for records of frames and for coded bytes, and none for other pixels. `wire` has
//! their bytes.

use std::fmt;

use media::{Codec, Timestamp};
use serde::{Deserialize, Serialize};

use crate::{
    Capabilities, EncodedImage, ExcerptEvent, JobEvent, JobFault, JobOptions, SandboxReport,
    sandbox::SandboxLimits,
    session::{SessionSpec, WorkerSessionEvent},
    wire::{self, LIST_MAX, Message},
};

/// Message of a server to a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WorkerRequest {
    /// Comes first: enter the sandbox.
    Confine(SandboxLimits),
    /// Analyse a source.
    Job { source: InputSource, options: JobOptions },
    /// The answer to [`WorkerReply::Open`]; the read end of a pipe comes along.
    Resource { url: String, size: Option<u64>, seekable: bool },
    /// Start a live session under a number of the server's choice.
    OpenSession { session: u32, spec: SessionSpec },
    /// The next picture of a session, answered by [`WorkerReply::UnitDone`].
    AccessUnit {
        session: u32,
        pts: Timestamp,
        keyframe: bool,
        follows_gap: bool,
        #[serde(with = "wire::bytes")]
        data: Vec<u8>,
    },
    /// No picture follows; answered by [`WorkerReply::UnitDone`].
    CloseSession { session: u32 },
    /// The answer to [`WorkerReply::Program`], which comes twice: with the socket that is the program's input
    /// and output, then with the pipe of what it says.
    Program,
    /// Scale a still down, its longer edge to `edge_max`; answered by [`WorkerReply::Shrunk`].
    Shrink {
        #[serde(with = "wire::bytes")]
        jpeg: Vec<u8>,
        edge_max: u32,
    },
    /// Cut a part out of the file whose descriptor comes along, `len` bytes of it; what it gives is told by
    /// [`WorkerReply::Excerpt`].
    Excerpt { len: u64, from_ms: i64, to_ms: i64 },
    /// Try what the sandbox must refuse.
    Probe,
    /// Try what a worker is for.
    Look,
}

impl Message for WorkerRequest {
    const IS_TOLD: bool = false;
}

/// Source of a job's media.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum InputSource {
    /// The file whose descriptor comes along; `len` bytes of it.
    File { len: u64 },
    /// URL that the server opens when it is asked to.
    Remote { url: String, playlists: bool },
    /// The RTSP server at the other end of the connection that comes along.
    Rtsp { url: String, credentials: Option<RtspCredentials> },
}

/// Credentials for a source.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RtspCredentials {
    pub user: String,
    pub password: String,
}

/// Has no place in a log.
impl fmt::Debug for RtspCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credentials").finish_non_exhaustive()
    }
}

/// Message of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum WorkerReply {
    /// The sandbox is entered; comes first.
    Confined(SandboxReport),
    /// About the file job.
    Job(JobEvent),
    /// The file job ended early.
    Failed(JobFault),
    /// The job needs the bytes of `url` from byte `from` on, and waits for them.
    Open { url: String, from: u64 },
    /// The job needs a program that decodes `codec`, and waits for it.
    Program { codec: Codec },
    /// About a live session.
    Session { session: u32, event: WorkerSessionEvent },
    /// The device that measured live sessions was given up, for this reason: the CPU goes on.
    GateLost { reason: String },
    /// The device that measures live sessions was late with a batch: the CPU measured it.
    GateLate,
    /// The device that was to decode live sessions opens no more, for this reason: the CPU decodes.
    DecoderLost { reason: String },
    /// The session's latest unit, or its end, has been worked off; what it gave has been said.
    UnitDone { session: u32 },
    /// The still that was scaled down.
    Shrunk(EncodedImage),
    /// About the excerpt.
    Excerpt(ExcerptEvent),
    /// Attempts and the error number of each, 0 for success.
    Probed(#[serde(deserialize_with = "wire::list::<_, _, LIST_MAX>")] Vec<EscapeAttempt>),
    /// Result of [`WorkerRequest::Look`].
    Capabilities(Capabilities),
}

impl Message for WorkerReply {
    const IS_TOLD: bool = true;
}

/// Something that a sandboxed process must not be able to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EscapeAttempt {
    /// Name of the attempt.
    pub what: String,
    /// Error number of the refusal; `None` when it was allowed.
    pub errno: Option<i32>,
}

impl EscapeAttempt {
    /// The sandbox refused it: any other error is of what lies beyond.
    pub fn is_refused(&self) -> bool {
        matches!(self.errno, Some(libc::EPERM | libc::EACCES))
    }
}

#[cfg(test)]
mod tests;
