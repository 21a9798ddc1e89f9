//! Writes a session's descriptions to its run's timeline.

use std::{sync::Arc, time::Duration};

use media::{ErrorKind, Label, SessionId};
use timeline::{AppendResult, Event};
use tokio_util::sync::CancellationToken;

use crate::{
    base::retry_while_full::retry_while_full,
    runs::registry::{Run, RunError, RunRegistry},
};

/// Longest wait for room in the log.
const PATIENCE: Duration = Duration::from_secs(30);

/// Reason that events were not written.
#[derive(Debug, thiserror::Error)]
pub enum SessionLogError {
    /// The run takes no more events.
    #[error("the run has ended")]
    Over,
    /// The log failed, or was full for too long.
    #[error("events cannot be stored: {0}")]
    Lost(RunError),
}

/// Writer of a session's events to the timeline of its run.
#[derive(Clone)]
pub struct SessionLog {
    /// Registry of all runs.
    pub registry: Arc<RunRegistry>,
    /// The run of the session.
    pub run: Arc<Run>,
    /// Id of the session.
    pub session: SessionId,
    /// Index name of the session's events.
    pub index_name: Option<Label>,
}

impl SessionLog {
    /// Appends `events` atomically; waits while the log is full.
    pub async fn write(&self, events: Vec<Event>) -> Result<Vec<AppendResult>, SessionLogError> {
        let attempt = |_| self.registry.commit(&self.run, events.clone());
        let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let never = CancellationToken::new();
        let written = retry_while_full(PATIENCE, &never, is_full, attempt).await;
        written.map_err(|error| match error {
            RunError::Terminal(_) | RunError::NotFound => SessionLogError::Over,
            error => {
                tracing::error!(run = %self.run.id(), %error, "events of a live session are lost");
                SessionLogError::Lost(error)
            }
        })
    }
}
