//! Errors of workers, as seen by the supervisor and inside the worker.

use std::{io, time::Duration};

use decode::{BackendError, DecodeError};
use gate::MeasureError;
use media::{DeviceMemoryLost, ErrorKind};

use crate::{ResourceError, SandboxReport, wire::WireError};

/// Reason, found inside the worker, for the early end of a job or a live session.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum JobFault {
    #[error(transparent)]
    Decode(DecodeError),
    /// The decoding backend does not work on this machine.
    #[error(transparent)]
    Backend(BackendError),
    /// The measuring backend does not work on this machine.
    #[error(transparent)]
    Gate(BackendError),
    /// The source gives no media, or no more; the media so far was sound.
    #[error("{message}")]
    Source {
        /// True if the source refused the request, false if it fell silent or broke off.
        is_refused: bool,
        message: String,
    },
    /// A failure of libav itself, the gate, the still encoder or the worker itself.
    #[error("{message}")]
    Other { kind: ErrorKind, message: String },
    #[error(transparent)]
    PixelsLost(#[from] DeviceMemoryLost),
    /// The gate selected the frame of this index, whose pixels have been dropped: a bug of the predictor.
    #[error("internal error: selected frame {0} has no image (the predictor did not foresee it)")]
    UnpredictedFrame(u64),
    /// A live source that was resumed has ended, with nothing new since the earlier job.
    #[error("the playlist has ended")]
    Over,
    /// The receiver of the events stopped the job.
    #[error("stopped")]
    Stopped,
}

impl JobFault {
    /// Returns the error kind reported to the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            JobFault::Decode(error) => error.kind(),
            JobFault::Backend(error) | JobFault::Gate(error) => error.kind(),
            JobFault::PixelsLost(_) => ErrorKind::Unavailable,
            JobFault::Source { .. } | JobFault::Over => ErrorKind::InvalidInput,
            JobFault::Other { kind, .. } => *kind,
            JobFault::UnpredictedFrame(_) => ErrorKind::Internal,
            JobFault::Stopped => ErrorKind::Cancelled,
        }
    }
}

impl From<DecodeError> for JobFault {
    fn from(error: DecodeError) -> JobFault {
        match error {
            // Inside a worker, libav fails because of the media: sizes that it cannot allocate, headers that
            // it cannot open.
            DecodeError::Libav { .. } => {
                JobFault::Other { kind: ErrorKind::InvalidInput, message: error.to_string() }
            }
            error => JobFault::Decode(error),
        }
    }
}

impl From<MeasureError> for JobFault {
    fn from(error: MeasureError) -> JobFault {
        match error {
            MeasureError::PixelsLost(lost) => JobFault::PixelsLost(lost),
            error => JobFault::Other { kind: error.kind(), message: error.to_string() },
        }
    }
}

/// Reason that a worker gave no result. `stderr` is the last part of what it wrote there.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say it")]
pub enum WorkerError {
    /// The worker worked as it should: the input cannot be decoded, or the caller stopped the job.
    #[error(transparent)]
    Fault(#[from] JobFault),
    /// The input is not a regular file, so it has no length and cannot be sought in.
    #[error("the input is not a regular file")]
    NotAFile,
    /// The server did not open a resource that the media needs.
    #[error("{}", .0.0)]
    Refused(ResourceError),
    #[error("cannot start a media worker: {0}")]
    Spawn(#[source] io::Error),
    /// The worker's sandbox does not meet the policy, by its report; the worker was given no media.
    #[error(
        "media is refused: the sandbox of media workers is {0}. Use a kernel that has landlock \
         and seccomp, or set SERVICE_SANDBOX=best-effort to decode without"
    )]
    Sandbox(SandboxReport),
    #[error("cannot supervise the media worker: {0}")]
    Io(#[source] io::Error),
    /// Something outside killed the worker; none of its own limits does that.
    #[error("the media worker was killed from outside, as for want of memory: retry later")]
    KilledOutside,
    #[error("the media worker was killed by signal {signal}{}", tail(.stderr))]
    Killed { signal: i32, stderr: String },
    #[error("the media worker ended with status {code}{}", tail(.stderr))]
    Exited { code: i32, stderr: String },
    #[error("the media needs more than {} MiB of memory", .limit_bytes >> 20)]
    MemoryLimit { limit_bytes: u64 },
    #[error("the media worker started more than {0} threads")]
    ThreadLimit(u64),
    #[error("no frame was decoded within {} s", .0.as_secs_f32())]
    FirstFrameTimeout(Duration),
    #[error("decoding made no progress for {} s", .0.as_secs_f32())]
    Stalled(Duration),
    #[error("decoding took longer than {} s", .0.as_secs_f32())]
    WallClock(Duration),
    #[error("the media needs too much processor time")]
    ProcessorTime,
    #[error("the worker's output exceeds {} MiB", .limit_bytes >> 20)]
    OutputBudget { limit_bytes: u64 },
    #[error("the work was cancelled")]
    Cancelled,
    #[error("the media worker broke the protocol: {0}")]
    Protocol(#[from] WireError),
    /// The unit is refused: too many of the session, or of all sessions, wait, or an earlier refusal lasts
    /// until the session's next keyframe.
    #[error("the media worker does not keep up: {queued_bytes} bytes of the session wait")]
    Backlog { queued_bytes: usize },
    #[error("live session {0} is in use")]
    SessionInUse(u32),
    #[error("live session {0} is not open")]
    NoSession(u32),
    /// The callback for a live worker's events panicked; no further event arrives.
    #[error("the handler of media worker events failed")]
    Listener,
    /// The live worker has ended; the reason was its last event.
    #[error("the media worker has ended")]
    Ended,
}

impl WorkerError {
    /// Returns the error kind reported to the caller.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WorkerError::Fault(fault) => fault.kind(),
            WorkerError::NotAFile
            | WorkerError::Refused(_)
            | WorkerError::MemoryLimit { .. }
            | WorkerError::ThreadLimit(_)
            | WorkerError::FirstFrameTimeout(_)
            | WorkerError::Stalled(_)
            | WorkerError::WallClock(_)
            | WorkerError::ProcessorTime
            | WorkerError::OutputBudget { .. }
            // A decoder crashes or is taken over because of the media that it was given.
            | WorkerError::Killed { .. }
            | WorkerError::Exited { .. }
            | WorkerError::Protocol(_) => ErrorKind::InvalidInput,
            WorkerError::Spawn(_)
            | WorkerError::Sandbox(_)
            | WorkerError::Io(_)
            | WorkerError::KilledOutside
            | WorkerError::Ended => ErrorKind::Unavailable,
            WorkerError::SessionInUse(_) => ErrorKind::Conflict,
            WorkerError::NoSession(_) => ErrorKind::NotFound,
            WorkerError::Backlog { .. } => ErrorKind::Exhausted,
            WorkerError::Cancelled => ErrorKind::Cancelled,
            WorkerError::Listener => ErrorKind::Internal,
        }
    }
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}
