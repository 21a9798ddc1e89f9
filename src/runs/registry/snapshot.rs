//! State of a run at one moment, for its record.

use std::{sync::Arc, time::Duration};

use media::{Label, WallTime};
use timeline::SemanticOutcome;

use crate::runs::lifecycle::RunState;

/// State of a run, as its record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSnapshot {
    pub lifecycle: RunState,
    pub created_at: WallTime,
    pub updated_at: WallTime,
    /// URI of the last ingested source.
    pub source_uri: Option<Arc<str>>,
    /// Model that the run was created for, or else that of the last reasoning.
    pub model: Option<String>,
    pub label: Option<Label>,
    /// Outcome of the last reasoning's model stage.
    pub semantic: Option<Arc<SemanticOutcome>>,
}

impl RunSnapshot {
    /// Time at which the run expires unless an event resets it; `None` once it has ended.
    pub fn expires_at(&self, ttl: Duration) -> Option<WallTime> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let epoch_ms = self.updated_at.epoch_ms.saturating_add(ttl_ms);
        self.lifecycle.is_active().then_some(WallTime { epoch_ms })
    }
}
