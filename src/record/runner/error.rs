//! Reasons that an ingest or a reasoning failed.

use std::io;

use media::{Dimensions, ErrorKind, RequestId};
use timeline::{Event, RunFailed, TimelineError};
use worker::{WireError, WorkerError};

use super::reason::SIDE_MIN;
use crate::{
    base::meta_store::MetaStoreError,
    record::{recording::RecordError, remote::RemoteError},
    runs::{job_queue::QueueFull, registry::RunError},
};

/// Reason that an ingest failed.
#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The run does not take it, or it cannot be recorded.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// Too many jobs wait.
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The source is no media that is served, or the worker could not cope with it.
    #[error(transparent)]
    Worker(WorkerError),
    /// The source did not come from its host.
    #[error(transparent)]
    Remote(RemoteError),
    /// The crop of its pictures, or the size they are scaled to, is too small for models.
    #[error(
        "crops to {}x{} pixels; the minimum is {SIDE_MIN} per side",
        .shown.width,
        .shown.height
    )]
    Crop {
        /// Size that would be shown.
        shown: Dimensions,
    },
    /// No thread could be started.
    #[error("cannot start a thread for the job: {0}")]
    Thread(#[source] io::Error),
    /// Its owner called the job off.
    #[error("the job was cancelled: what it had recorded is kept")]
    CalledOff,
    /// The server is shutting down.
    #[error("the server is shutting down")]
    Shutdown,
    /// The job in progress cannot be recorded.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    /// The job's thread died: our bug.
    #[error("the job ended without a result")]
    Lost,
}

impl From<RunError> for IngestError {
    fn from(error: RunError) -> IngestError {
        IngestError::Record(error.into())
    }
}

impl From<WireError> for IngestError {
    fn from(error: WireError) -> IngestError {
        IngestError::Worker(error.into())
    }
}

impl From<TimelineError> for IngestError {
    fn from(error: TimelineError) -> IngestError {
        IngestError::Record(error.into())
    }
}

impl IngestError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            IngestError::Record(error) => error.kind(),
            IngestError::QueueFull(_) => ErrorKind::Exhausted,
            IngestError::Worker(error) => error.kind(),
            IngestError::Remote(error) => error.kind(),
            IngestError::Crop { .. } => ErrorKind::InvalidInput,
            IngestError::Ledger(error) => error.kind(),
            IngestError::Thread(_) | IngestError::Shutdown => ErrorKind::Unavailable,
            IngestError::CalledOff => ErrorKind::Cancelled,
            IngestError::Lost => ErrorKind::Internal,
        }
    }

    /// Event that ends the run, where this error does.
    pub(super) fn end_of_run(&self, request_id: RequestId) -> Option<Event> {
        let failed = || RunFailed { request_id: Some(request_id), reason: self.told() };
        self.ends_the_run().then(|| Event::RunFailed(failed()))
    }

    /// The job took as long as one may.
    pub(super) fn is_out_of_time(&self) -> bool {
        matches!(self, IngestError::Worker(WorkerError::WallClock { .. }))
    }

    /// Reason that a decoding ended before its source did.
    pub(super) fn why_cut(&self) -> String {
        match self {
            IngestError::Worker(WorkerError::Cancelled) => "stopped".to_owned(),
            error => error.told(),
        }
    }

    /// Returns true if events that the log refused may be there all the same.
    pub fn may_be_written(&self) -> bool {
        matches!(self, IngestError::Record(RecordError::Run(error)) if error.may_be_written())
    }

    /// Message for the owner of the source: a worker's way to die is for the log.
    pub fn told(&self) -> String {
        use WorkerError::{Exited, Killed, Protocol};
        match self {
            IngestError::Worker(Killed { .. } | Exited { .. } | Protocol(_)) => {
                "the media worker crashed on this source".to_owned()
            }
            error => error.to_string(),
        }
    }

    /// The worker died, hung or used too much.
    pub fn ends_the_run(&self) -> bool {
        use WorkerError::{
            Exited, FirstFrameTimeout, Killed, MemoryLimit, OutputBudget, Protocol, Stalled,
            ThreadLimit, WallClock,
        };
        let IngestError::Worker(error) = self else { return false };
        matches!(
            error,
            Killed { .. }
                | Exited { .. }
                | Protocol(_)
                | MemoryLimit { .. }
                | ThreadLimit { .. }
                | FirstFrameTimeout { .. }
                | Stalled { .. }
                | WallClock { .. }
                | OutputBudget { .. }
        )
    }
}
