//! Errors of changes of runs.

use media::{ErrorKind, JobId};
use timeline::TimelineError;

use super::job;
use crate::runs::lifecycle::RunState;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The run does not exist, or the caller may not see it.
    #[error("no such run")]
    NotFound,
    #[error("the run is {}: create a new run", .0.as_str())]
    Terminal(RunState),
    #[error("{}", job::busy(*.job))]
    Busy {
        /// Id of that job; `None` for a live session.
        job: Option<JobId>,
    },
    #[error("{active} of at most {limit} runs are active: finish, stop or delete one")]
    ActiveLimit { limit: usize, active: usize },
    #[error(transparent)]
    Log(#[from] TimelineError),
    /// The change was abandoned before the log answered.
    #[error("the update of the run was interrupted")]
    Unfinished,
}

impl RunError {
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
