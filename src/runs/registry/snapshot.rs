//! State of a run at one moment, for its record.

use std::{sync::Arc, time::Duration};

use media::{Label, WallTime};
use timeline::SemanticOutcome;

use crate::runs::lifecycle::RunState;

/// State of a run, as its record shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunSnapshot {
    /// State of the run.
    pub lifecycle: RunState,
    /// Wall time of its creation.
    pub created_at: WallTime,
    /// Wall time of its last event.
    pub updated_at: WallTime,
    /// The last source ingested.
    pub source_uri: Option<Arc<str>>,
    /// The model that it was made for, or else the last one that a reasoning asked.
    pub model: Option<String>,
    /// Name that its owner gave it.
    pub label: Option<Label>,
    /// Outcome of the models that its last reasoning asked.
    pub semantic: Option<Arc<SemanticOutcome>>,
}

impl RunSnapshot {
    /// Time at which the run expires unless something happens; `None` once it has ended.
    pub fn expires_at(&self, ttl: Duration) -> Option<WallTime> {
        let ttl_ms = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
        let epoch_ms = self.updated_at.epoch_ms.saturating_add(ttl_ms);
        self.lifecycle.is_active().then_some(WallTime { epoch_ms })
    }
}
