//! The run state machine: a pure fold over the kinds of a run's events.
//!
//! Knows no clock, no storage and no owner; `registry` keeps one [`Lifecycle`] a run and is the
//! only place that appends what moves it.

use timeline::EventKind;

/// State of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Lifecycle {
    /// Its `run_created` is not durable yet: nobody can see it.
    #[default]
    Unborn,
    /// Created, nothing done.
    Pending,
    /// Work was done or it was kept alive.
    Processing,
    /// Reached its normal end.
    Completed,
    /// Ended by a failure.
    Failed,
    /// Stopped on request.
    Cancelled,
    /// Idle for longer than its TTL.
    Expired,
    /// Soft-deleted: answers as unknown.
    Deleted,
}

impl Lifecycle {
    /// The states that a run record can show.
    pub const SHOWN: [Lifecycle; 6] = [
        Lifecycle::Pending,
        Lifecycle::Processing,
        Lifecycle::Completed,
        Lifecycle::Failed,
        Lifecycle::Cancelled,
        Lifecycle::Expired,
    ];

    /// The state after an event of this kind.
    ///
    /// A terminal state is left only by a deletion, and nothing happens before the creation.
    pub fn after(self, kind: EventKind) -> Lifecycle {
        if self == Lifecycle::Deleted || kind == EventKind::RunDeleted {
            return Lifecycle::Deleted;
        }
        if self == Lifecycle::Unborn {
            let born = kind == EventKind::RunCreated;
            return if born { Lifecycle::Pending } else { Lifecycle::Unborn };
        }
        if self.is_terminal() {
            return self;
        }
        match kind {
            EventKind::RunCreated
            | EventKind::RunDeleted
            | EventKind::RunLabelled
            | EventKind::TokenBudgetLow => self,
            EventKind::RunCompleted => Lifecycle::Completed,
            EventKind::RunFailed => Lifecycle::Failed,
            EventKind::StopRequested => Lifecycle::Cancelled,
            EventKind::RunExpired => Lifecycle::Expired,
            EventKind::IngestStarted
            | EventKind::IngestReceived
            | EventKind::SourceReconnected
            | EventKind::ActivityStarted
            | EventKind::ActivityEnded
            | EventKind::FramesDecoded
            | EventKind::MarkerEmitted
            | EventKind::AnalysisGenerated
            | EventKind::SemanticChunkInferred
            | EventKind::SemanticChunkGenerated
            | EventKind::SemanticFallbackActivated
            | EventKind::InferenceCompleted
            | EventKind::KeepaliveRefreshed
            | EventKind::KeyframeStored
            | EventKind::Vlm
            | EventKind::VlmTiered
            | EventKind::ClipVlm
            | EventKind::ClipVlmTiered
            | EventKind::StateTransition
            | EventKind::LoopDetected => Lifecycle::Processing,
        }
    }

    /// Takes actions.
    pub fn is_active(self) -> bool {
        matches!(self, Lifecycle::Pending | Lifecycle::Processing)
    }

    /// Ended, and still there to be read.
    pub fn is_terminal(self) -> bool {
        use Lifecycle::{Cancelled, Completed, Expired, Failed};
        matches!(self, Completed | Failed | Cancelled | Expired)
    }

    /// Its owner can see it.
    pub fn is_visible(self) -> bool {
        self.is_active() || self.is_terminal()
    }

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Lifecycle::Unborn => "unborn",
            Lifecycle::Pending => "pending",
            Lifecycle::Processing => "processing",
            Lifecycle::Completed => "completed",
            Lifecycle::Failed => "failed",
            Lifecycle::Cancelled => "cancelled",
            Lifecycle::Expired => "expired",
            Lifecycle::Deleted => "deleted",
        }
    }

    /// The shown state called `name`.
    pub fn from_name(name: &str) -> Option<Lifecycle> {
        Lifecycle::SHOWN.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests;
