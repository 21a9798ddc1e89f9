//! Errors of changes of runs.

use media::{ErrorKind, JobId};
use timeline::TimelineError;

use super::job;
use crate::runs::lifecycle::RunState;

/// Error of a change of a run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run does not exist, or the caller may not see it.
    #[error("no such run")]
    NotFound,
    /// The run has ended.
    #[error("the run is {}: create a new run", .0.as_str())]
    Terminal(RunState),
    /// A job of the run is under way.
    #[error("{}", job::busy(*.job))]
    Busy {
        /// The job; none of live video.
        job: Option<JobId>,
    },
    /// The principal has as many active runs as are allowed.
    #[error("{active} of at most {limit} runs are active: finish, stop or delete one")]
    ActiveLimit {
        /// The limit.
        limit: usize,
        /// Active runs.
        active: usize,
    },
    /// The log refused.
    #[error(transparent)]
    Log(#[from] TimelineError),
    /// The change was given up on before the log answered.
    #[error("the update of the run was interrupted")]
    Unfinished,
}

impl RunError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            RunError::NotFound => ErrorKind::NotFound,
            RunError::Terminal(_) | RunError::Busy { .. } | RunError::ActiveLimit { .. } => {
                ErrorKind::Conflict
            }
            RunError::Log(error) => error.kind(),
            RunError::Unfinished => ErrorKind::Internal,
        }
    }

    /// Returns true if the event may be in the log, at the latest after the next start.
    pub fn may_be_written(&self) -> bool {
        matches!(self, RunError::Unfinished | RunError::Log(TimelineError::Poisoned { .. }))
    }
}
