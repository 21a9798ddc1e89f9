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

/// Writer of a session's events to the timeline of its run.
#[derive(Clone)]
pub struct SessionLog {
    pub registry: Arc<RunRegistry>,
    pub run: Arc<Run>,
    pub session: SessionId,
    pub index_name: Option<Label>,
}

impl SessionLog {
    /// Appends `events` atomically; waits while the log is full. Returns `None` if the run takes no more
    /// events, and an empty list if the log failed or was full for too long, which is logged.
    pub async fn write(&self, events: Vec<Event>) -> Option<Vec<AppendResult>> {
        let attempt = |_| self.registry.commit(&self.run, events.clone());
        let is_full = |error: &RunError| error.kind() == ErrorKind::Exhausted;
        let never = CancellationToken::new();
        match retry_while_full(PATIENCE, &never, is_full, attempt).await {
            Ok(appended) => Some(appended),
            Err(RunError::Terminal(_) | RunError::NotFound) => None,
            Err(error) => {
                tracing::error!(run = %self.run.id(), %error, "events of a live session are lost");
                Some(Vec::new())
            }
        }
    }
}
