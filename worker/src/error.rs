//! Everything that can go wrong with a worker, seen from outside and from inside.

use std::{io, time::Duration};

use decode::{BackendError, DecodeError};
use gate::MeasureError;
use media::{DeviceMemoryLost, ErrorKind};

use crate::{GateBackendError, ResourceError, SandboxReport, still::JpegError, wire::WireError};

/// Reason for the early end of a job or a live session, found by the code inside the worker.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, serde::Serialize, serde::Deserialize)]
pub enum JobFault {
    /// The input does not decode.
    #[error(transparent)]
    Decode(DecodeError),
    /// The decoding backend does not work here.
    #[error(transparent)]
    Backend(BackendError),
    /// The measuring backend does not work here.
    #[error(transparent)]
    Gate(GateBackendError),
    /// The source gives no media, or no more of it: nothing is wrong with what came.
    #[error("{message}")]
    Source {
        /// It was asked and said no, instead of falling silent.
        is_refused: bool,
        /// Description of the error.
        message: String,
    },
    /// A failure of libav itself, the gate, the still encoder or the worker itself.
    #[error("{message}")]
    Other {
        /// Kind of error that the caller is told.
        kind: ErrorKind,
        /// Description of the error.
        message: String,
    },
    /// Pixels that were on a device went with it.
    #[error(transparent)]
    PixelsLost(#[from] DeviceMemoryLost),
    /// The gate selected a frame whose pixels are gone: a bug in the prediction.
    #[error(
        "internal error: selected frame {frame_index} has no image (the predictor did not foresee it)"
    )]
    UnpredictedFrame {
        /// The selected frame.
        frame_index: u64,
    },
    /// The source that was gone on with has ended: nothing follows what was read of it before.
    #[error("the playlist has ended")]
    Over,
    /// The receiver of the events asked to stop.
    #[error("stopped")]
    Stopped,
}

impl JobFault {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            JobFault::Decode(error) => error.kind(),
            JobFault::Backend(error) => error.kind(),
            JobFault::Gate(error) => error.kind,
            JobFault::PixelsLost(_) => ErrorKind::Unavailable,
            JobFault::Source { .. } | JobFault::Over => ErrorKind::InvalidInput,
            JobFault::Other { kind, .. } => *kind,
            JobFault::UnpredictedFrame { .. } => ErrorKind::Internal,
            JobFault::Stopped => ErrorKind::Cancelled,
        }
    }
}

impl From<DecodeError> for JobFault {
    fn from(error: DecodeError) -> JobFault {
        match error {
            // In a worker libav fails on what the media says: sizes that it cannot allocate,
            // headers that it cannot open.
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

impl From<JpegError> for JobFault {
    fn from(error: JpegError) -> JobFault {
        match error {
            JpegError::PixelsLost(lost) => JobFault::PixelsLost(lost),
            error => JobFault::Other { kind: error.kind(), message: error.to_string() },
        }
    }
}

/// Reason that a worker gave no result.
#[derive(Debug, thiserror::Error)]
pub enum WorkerError {
    /// The worker did its part: the input does not decode, or the caller said stop.
    #[error(transparent)]
    Fault(#[from] JobFault),
    /// The input is not a regular file: nothing else has a length and can be sought in.
    #[error("the input is not a regular file")]
    NotAFile,
    /// The server did not open what the media is made of.
    #[error("{}", .0.0)]
    Refused(ResourceError),
    /// No process could be started, or its descriptors could not be made.
    #[error("cannot start a media worker: {0}")]
    Spawn(#[source] io::Error),
    /// The worker is not confined as media asks for, and was given none.
    #[error(
        "media is refused: the sandbox of media workers is {report}. Use a kernel that has landlock \
         and seccomp, or set SERVICE_SANDBOX=best-effort to decode without"
    )]
    Sandbox {
        /// Report of its confinement.
        report: SandboxReport,
    },
    /// The system failed the supervisor while the worker ran.
    #[error("cannot supervise the media worker: {0}")]
    Io(#[source] io::Error),
    /// The worker died of a signal that nobody here sent.
    #[error("the media worker was killed by signal {signal}{}", tail(.stderr))]
    Killed {
        /// Number of the signal.
        signal: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// The worker ended by itself without a result.
    #[error("the media worker ended with status {code}{}", tail(.stderr))]
    Exited {
        /// Its exit status.
        code: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// The worker used more memory than it was given.
    #[error("the media needs more than {} MiB of memory", .limit_bytes >> 20)]
    MemoryLimit {
        /// The limit.
        limit_bytes: u64,
    },
    /// The worker started more threads than it was given.
    #[error("the media worker started more than {limit} threads")]
    ThreadLimit {
        /// The limit.
        limit: u64,
    },
    /// No frame came in time.
    #[error("no frame was decoded within {} s", .after.as_secs_f32())]
    FirstFrameTimeout {
        /// The limit.
        after: Duration,
    },
    /// Frames came, and then none.
    #[error("decoding made no progress for {} s", .after.as_secs_f32())]
    Stalled {
        /// The limit.
        after: Duration,
    },
    /// The whole job took too long.
    #[error("decoding took longer than {} s", .after.as_secs_f32())]
    WallClock {
        /// The limit.
        after: Duration,
    },
    /// The worker sent more than it was allowed to.
    #[error("the worker's output exceeds {} MiB", .limit_bytes >> 20)]
    OutputBudget {
        /// The limit.
        limit_bytes: u64,
    },
    /// The cancel token was used.
    #[error("the work was cancelled")]
    Cancelled,
    /// The worker sent what no worker sends.
    #[error("the media worker broke the protocol: {0}")]
    Protocol(#[from] WireError),
    /// More access units of a live session, or of all, wait than may; or the session's units up to
    /// its next keyframe are refused because some before them were.
    #[error("the media worker does not keep up: {queued_bytes} bytes of the session wait")]
    Backlog {
        /// Bytes of the session that wait.
        queued_bytes: usize,
    },
    /// The number of a live session that was opened and not closed since.
    #[error("live session {session} is in use")]
    SessionInUse {
        /// The caller's number.
        session: u32,
    },
    /// The number of no open live session.
    #[error("live session {session} is not open")]
    NoSession {
        /// The caller's number.
        session: u32,
    },
    /// The listener to a live worker's messages panicked, so no message arrives any more.
    #[error("the handler of media worker events failed")]
    Listener,
    /// The live worker has ended; its last event said why.
    #[error("the media worker has ended")]
    Ended,
}

impl WorkerError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WorkerError::Fault(fault) => fault.kind(),
            WorkerError::NotAFile
            | WorkerError::Refused(_)
            | WorkerError::MemoryLimit { .. }
            | WorkerError::ThreadLimit { .. }
            | WorkerError::FirstFrameTimeout { .. }
            | WorkerError::Stalled { .. }
            | WorkerError::WallClock { .. }
            | WorkerError::OutputBudget { .. }
            // A decoder that crashes or is fooled does so because of the media it was given.
            | WorkerError::Killed { .. }
            | WorkerError::Exited { .. }
            | WorkerError::Protocol(_) => ErrorKind::InvalidInput,
            WorkerError::Spawn(_)
            | WorkerError::Sandbox { .. }
            | WorkerError::Io(_)
            | WorkerError::Ended => ErrorKind::Unavailable,
            WorkerError::SessionInUse { .. } => ErrorKind::Conflict,
            WorkerError::NoSession { .. } => ErrorKind::NotFound,
            WorkerError::Backlog { .. } => ErrorKind::Exhausted,
            WorkerError::Cancelled => ErrorKind::Cancelled,
            WorkerError::Listener => ErrorKind::Internal,
        }
    }
}

fn tail(stderr: &str) -> String {
    if stderr.is_empty() { String::new() } else { format!(": {stderr}") }
}
