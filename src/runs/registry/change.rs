//! Changes of a run, the states that allow them, and their errors.

use std::time::Instant;

use media::{ErrorKind, JobId, WallTime};
use timeline::{Event, JsonText, RunDeleted, RunLabelled, TimelineError};

use super::{Run, job};
use crate::runs::lifecycle::RunState;

pub(super) enum RunTransition {
    Create(Vec<Event>),
    Active(Vec<Event>),
    /// Events of a job, even after the run's end; and an event that ends an active run.
    WindUp(Part, Vec<Event>, Option<Event>),
    Label(RunLabelled),
    Delete(Event),
    /// Records the end that was requested for a run.
    End(Event),
    /// Ends a run that is idle at the given time.
    EndIdle(Instant, Event),
    /// Deletes a run that ended before the given time, for retention.
    Reclaim(WallTime),
}

impl RunTransition {
    /// Returns the events to append; `None` if the change has no effect.
    pub(super) fn events(self, run: &Run) -> Result<Option<Vec<Event>>, RunError> {
        let state = run.lifecycle();
        match self {
            RunTransition::Create(events) => Ok(Some(events)),
            RunTransition::Label(_) if !state.is_visible() => Err(RunError::NotFound),
            RunTransition::Label(labelled) => {
                Ok((run.label() != labelled.label).then(|| vec![Event::RunLabelled(labelled)]))
            }
            RunTransition::Delete(_) if state == RunState::Deleted => Err(RunError::NotFound),
            RunTransition::Delete(event) => Ok(Some(vec![event])),
            // A run that was deleted meanwhile gets no other end; the caller gets an error.
            RunTransition::End(_) if !state.is_terminal() => Err(RunError::NotFound),
            RunTransition::End(event) => Ok(Some(vec![event])),
            RunTransition::EndIdle(now, end) => Ok(run.is_idle(now).then(|| vec![end])),
            RunTransition::Reclaim(before) => {
                Ok(run.ended_before(before).then(|| vec![reclaimed()]))
            }
            RunTransition::Active(events) if state.is_active() => Ok(Some(events)),
            RunTransition::WindUp(_, mut events, last) if state.is_active() => {
                events.extend(last);
                Ok(Some(events))
            }
            RunTransition::WindUp(part, events, _) if part.follows(state) => {
                Ok((!events.is_empty()).then_some(events))
            }
            RunTransition::Active(_) | RunTransition::WindUp(..) if state.is_terminal() => {
                Err(RunError::Terminal(state))
            }
            RunTransition::Active(_) | RunTransition::WindUp(..) => Err(RunError::NotFound),
        }
    }
}

/// Position of a batch among the events of a job.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// More events follow: allowed after an end on request only.
    Middle,
    /// The last batch: allowed after any end of the run.
    End,
}

impl Part {
    fn follows(self, end: RunState) -> bool {
        match self {
            Part::Middle => matches!(end, RunState::Cancelled | RunState::Completed),
            Part::End => end.is_terminal(),
        }
    }
}

fn reclaimed() -> Event {
    Event::RunDeleted(RunDeleted {
        request_id: None,
        reclaim: JsonText::parse(r#"{"reason":"retention"}"#),
    })
}

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
