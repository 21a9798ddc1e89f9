//! Reasons that an ingest or a reasoning failed.

use std::io;

use media::{Dimensions, ErrorKind, RequestId};
use timeline::{Event, TimelineError};
use worker::{WireError, WorkerError};

use super::reason::SIDE_MIN;
use crate::{
    base::meta_store::MetaStoreError,
    record::{
        recording::{RecordError, failed},
        remote::RemoteError,
    },
    runs::{job_queue::QueueFull, registry::RunError},
};

#[derive(Debug, thiserror::Error)]
pub enum IngestError {
    /// The run takes no events, or the recording failed.
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error(transparent)]
    QueueFull(#[from] QueueFull),
    /// The source is not supported, or the media worker failed.
    #[error(transparent)]
    Worker(WorkerError),
    #[error(transparent)]
    Remote(RemoteError),
    #[error(
        "crops to {}x{} pixels; the minimum is {SIDE_MIN} per side",
        .shown.width,
        .shown.height
    )]
    Crop { shown: Dimensions },
    #[error("cannot start a thread for the job: {0}")]
    Thread(#[source] io::Error),
    #[error("the job was cancelled: what it had recorded is kept")]
    CalledOff,
    #[error("the server is shutting down")]
    Shutdown,
    /// The record of the job could not be written.
    #[error(transparent)]
    Ledger(#[from] MetaStoreError),
    /// The job's thread panicked: a bug.
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

    /// Returns the event that fails the run, if this error does.
    pub(super) fn end_of_run(&self, request_id: RequestId) -> Option<Event> {
        self.ends_the_run().then(|| failed(Some(request_id), &self.told()))
    }

    /// Returns true if the job reached its limit of wall-clock or processor time.
    pub(super) fn is_out_of_time(&self) -> bool {
        use WorkerError::{ProcessorTime, WallClock};
        matches!(self, IngestError::Worker(WallClock(_) | ProcessorTime))
    }

    pub(super) fn why_cut(&self) -> String {
        match self {
            IngestError::Worker(WorkerError::Cancelled) => "stopped".to_owned(),
            error => error.told(),
        }
    }

    pub fn may_be_written(&self) -> bool {
        matches!(self, IngestError::Record(RecordError::Run(error)) if error.may_be_written())
    }

    /// Returns the message for the owner of the source, without the server's files and details of a
    /// worker crash.
    pub fn told(&self) -> String {
        use WorkerError::{Exited, Killed, Protocol};
        match self {
            IngestError::Worker(Killed { .. } | Exited { .. } | Protocol(_)) => {
                "the media worker crashed on this source".to_owned()
            }
            IngestError::Record(error) => error.told(),
            IngestError::Ledger(_) => "records cannot be stored now".to_owned(),
            error => error.to_string(),
        }
    }

    /// Returns true if the worker crashed, hung or exceeded a limit.
    pub fn ends_the_run(&self) -> bool {
        use WorkerError::{Fault, NotAFile, Refused};
        let IngestError::Worker(error) = self else { return false };
        let is_sound = matches!(error, Fault(_) | NotAFile | Refused(_));
        !is_sound && error.kind() == ErrorKind::InvalidInput
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    #[test]
    fn an_owner_is_told_no_path_of_the_server() {
        let full = || TimelineError::DiskFull { file: PathBuf::from("/srv/secret/blobs/7b.tmp") };
        let failed = || TimelineError::Poisoned { reason: "cannot sync /srv/secret".to_owned() };
        let crashed = WorkerError::Killed { signal: 11, stderr: "/srv/secret".to_owned() };
        let rows = [
            (IngestError::from(full()), "no space is left on the server's disk"),
            (RunError::Log(full()).into(), "no space is left on the server's disk"),
            (failed().into(), "the server cannot store it now"),
            (IngestError::Worker(crashed), "the media worker crashed on this source"),
        ];
        for (error, told) in rows {
            assert_eq!((error.told(), error.why_cut()), (told.to_owned(), told.to_owned()));
            assert!(error.to_string().contains("/srv/secret"), "the log has it: {error}");
        }
    }
}
