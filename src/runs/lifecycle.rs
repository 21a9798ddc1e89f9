//! The run state machine: a pure fold over the kinds of a run's events.
//!
//! Knows no clock, no storage and no owner; `registry` keeps one [`RunState`] a run and is the
//! only place that appends what moves it.

use timeline::EventKind;

/// State of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum RunState {
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

impl RunState {
    /// The states that a run record can show.
    pub const SHOWN: [RunState; 6] = [
        RunState::Pending,
        RunState::Processing,
        RunState::Completed,
        RunState::Failed,
        RunState::Cancelled,
        RunState::Expired,
    ];

    /// The state after an event of this kind.
    ///
    /// A terminal state is left only by a deletion, and nothing happens before the creation.
    pub fn after(self, kind: EventKind) -> RunState {
        if self == RunState::Deleted || kind == EventKind::RunDeleted {
            return RunState::Deleted;
        }
        if self == RunState::Unborn {
            let born = kind == EventKind::RunCreated;
            return if born { RunState::Pending } else { RunState::Unborn };
        }
        if self.is_terminal() {
            return self;
        }
        match kind {
            EventKind::RunCreated
            | EventKind::RunDeleted
            | EventKind::RunLabelled
            | EventKind::TokenBudgetLow => self,
            EventKind::RunCompleted => RunState::Completed,
            EventKind::RunFailed => RunState::Failed,
            EventKind::StopRequested => RunState::Cancelled,
            EventKind::RunExpired => RunState::Expired,
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
            | EventKind::LoopDetected => RunState::Processing,
        }
    }

    /// Takes actions.
    pub fn is_active(self) -> bool {
        matches!(self, RunState::Pending | RunState::Processing)
    }

    /// Ended, and still there to be read.
    pub fn is_terminal(self) -> bool {
        use RunState::{Cancelled, Completed, Expired, Failed};
        matches!(self, Completed | Failed | Cancelled | Expired)
    }

    /// Its owner can see it.
    pub fn is_visible(self) -> bool {
        self.is_active() || self.is_terminal()
    }

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            RunState::Unborn => "unborn",
            RunState::Pending => "pending",
            RunState::Processing => "processing",
            RunState::Completed => "completed",
            RunState::Failed => "failed",
            RunState::Cancelled => "cancelled",
            RunState::Expired => "expired",
            RunState::Deleted => "deleted",
        }
    }

    /// The shown state called `name`.
    pub fn from_name(name: &str) -> Option<RunState> {
        RunState::SHOWN.into_iter().find(|state| state.as_str() == name)
    }
}

#[cfg(test)]
mod tests;
