//! Changes of a run, and the states that allow them.

use std::time::Instant;

use media::WallTime;
use timeline::{Event, JsonText, RunDeleted, RunLabelled};

use super::{Run, RunError};
use crate::runs::lifecycle::Lifecycle;

/// A change of a run and the states in which it is allowed.
pub(super) enum Change {
    Create(Vec<Event>),
    Active(Vec<Event>),
    /// Events of a job, also of a run that has ended; and one that ends a run that has not.
    WindUp(Vec<Event>, Option<Event>),
    /// Gives a run another label, also one that has ended.
    Label(RunLabelled),
    Delete(Event),
    /// Tells the end that a run was brought to on request.
    End(Event),
    /// Ends a run that is idle at a time.
    EndIdle(Instant, Event),
    /// Deletes a run that ended before a time: the service does so itself.
    Reclaim(WallTime),
}

impl Change {
    /// Events to append now; `None` when nothing is left to do.
    pub(super) fn events(self, run: &Run) -> Result<Option<Vec<Event>>, RunError> {
        let state = run.lifecycle();
        match self {
            Change::Create(events) => Ok(Some(events)),
            Change::Label(_) if !state.is_visible() => Err(RunError::NotFound),
            Change::Label(labelled) => {
                Ok((run.label() != labelled.label).then(|| vec![Event::RunLabelled(labelled)]))
            }
            Change::Delete(_) if state == Lifecycle::Deleted => Err(RunError::NotFound),
            Change::Delete(event) => Ok(Some(vec![event])),
            // One that was deleted meanwhile is told no other end, and neither is who asked for it.
            Change::End(_) if !state.is_terminal() => Err(RunError::NotFound),
            Change::End(event) => Ok(Some(vec![event])),
            Change::EndIdle(now, end) => Ok(run.is_idle(now).then(|| vec![end])),
            Change::Reclaim(before) => Ok(run.ended_before(before).then(|| vec![reclaimed()])),
            Change::Active(events) if state.is_active() => Ok(Some(events)),
            Change::WindUp(mut events, last) if state.is_active() => {
                events.extend(last);
                Ok(Some(events))
            }
            Change::WindUp(events, _)
                if matches!(state, Lifecycle::Cancelled | Lifecycle::Completed) =>
            {
                Ok(Some(events))
            }
            Change::Active(_) | Change::WindUp(..) if state.is_terminal() => {
                Err(RunError::Terminal(state))
            }
            Change::Active(_) | Change::WindUp(..) => Err(RunError::NotFound),
        }
    }
}

fn reclaimed() -> Event {
    Event::RunDeleted(RunDeleted {
        request_id: None,
        reclaim: JsonText::parse(r#"{"reason":"retention"}"#),
    })
}
