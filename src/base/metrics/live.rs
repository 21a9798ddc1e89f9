//! Ends of live sessions, and the items that they dropped.

use transport::webrtc::DropReason;

use super::Label;

impl Label for DropReason {
    const ALL: &'static [DropReason] = &DropReason::ALL;

    fn value(self) -> &'static str {
        self.name()
    }
}

/// Reason of a live session's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionEnd {
    /// Its publisher asked for it.
    Deleted,
    /// Its publisher closed the connection.
    Closed,
    /// Its publisher fell silent.
    Lost,
    /// Its publisher never came.
    NeverConnected,
    /// Its run was over.
    RunOver,
    /// The server shut down.
    Shutdown,
    /// It could not go on.
    Failed,
}

impl Label for SessionEnd {
    const ALL: &'static [SessionEnd] = &[
        SessionEnd::Deleted,
        SessionEnd::Closed,
        SessionEnd::Lost,
        SessionEnd::NeverConnected,
        SessionEnd::RunOver,
        SessionEnd::Shutdown,
        SessionEnd::Failed,
    ];

    fn value(self) -> &'static str {
        match self {
            SessionEnd::Deleted => "deleted",
            SessionEnd::Closed => "closed",
            SessionEnd::Lost => "lost",
            SessionEnd::NeverConnected => "never_connected",
            SessionEnd::RunOver => "run_over",
            SessionEnd::Shutdown => "shutdown",
            SessionEnd::Failed => "failed",
        }
    }
}

/// Item that a live session, or the recording of a camera, dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShedReason {
    /// Coded pictures that a worker had no room for, and those that refer to them.
    Pictures,
    /// Stills that their writer had no room for, or that were lost with a device.
    Stills,
    /// Selected frames that waited for a model when newer ones came.
    Keyframes,
    /// Clips, likewise, and chunks of a camera.
    Clips,
    /// Descriptions that the session's token rate did not allow.
    TokenRate,
    /// Descriptions that said again what was said in the same loop.
    Repeats,
    /// Sessions whose worker had not said all when there was no more time for it.
    LastWords,
    /// Selected frames and clips that waited for a model, or were being asked about, when the session
    /// ended and there was no more time for them.
    Ended,
}

impl Label for ShedReason {
    const ALL: &'static [ShedReason] = &[
        ShedReason::Pictures,
        ShedReason::Stills,
        ShedReason::Keyframes,
        ShedReason::Clips,
        ShedReason::TokenRate,
        ShedReason::Repeats,
        ShedReason::LastWords,
        ShedReason::Ended,
    ];

    fn value(self) -> &'static str {
        match self {
            ShedReason::Pictures => "pictures",
            ShedReason::Stills => "stills",
            ShedReason::Keyframes => "keyframes",
            ShedReason::Clips => "clips",
            ShedReason::TokenRate => "token_rate",
            ShedReason::Repeats => "repeats",
            ShedReason::LastWords => "last_words",
            ShedReason::Ended => "ended",
        }
    }
}

/// Outcome of the novelty check of a selected frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoveltyDecision {
    /// The last description stands for it.
    Reuse,
    /// No frame was described before.
    First,
    /// The last description is too old.
    Elapsed,
    /// The last description was compared by another model.
    Model,
    /// It looks different.
    Distance,
    /// A small part of it looks different.
    Cell,
    /// The last description has stood for too much.
    Drift,
    /// It could have been reused, and was described to see what that would miss.
    Shadow,
    /// It could not be compared.
    Failed,
}

impl Label for NoveltyDecision {
    const ALL: &'static [NoveltyDecision] = &[
        NoveltyDecision::Reuse,
        NoveltyDecision::First,
        NoveltyDecision::Elapsed,
        NoveltyDecision::Model,
        NoveltyDecision::Distance,
        NoveltyDecision::Cell,
        NoveltyDecision::Drift,
        NoveltyDecision::Shadow,
        NoveltyDecision::Failed,
    ];

    fn value(self) -> &'static str {
        match self {
            NoveltyDecision::Reuse => "reuse",
            NoveltyDecision::First => "first",
            NoveltyDecision::Elapsed => "elapsed",
            NoveltyDecision::Model => "model",
            NoveltyDecision::Distance => "distance",
            NoveltyDecision::Cell => "cell",
            NoveltyDecision::Drift => "drift",
            NoveltyDecision::Shadow => "shadow",
            NoveltyDecision::Failed => "failed",
        }
    }
}

/// Execution provider of the image embedder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmbeddingProvider {
    /// The processor.
    Cpu,
    /// An NVIDIA GPU.
    Cuda,
    /// The same through TensorRT.
    TensorRt,
    /// A sidecar, on whatever it runs.
    Sidecar,
}

impl Label for EmbeddingProvider {
    const ALL: &'static [EmbeddingProvider] = &[
        EmbeddingProvider::Cpu,
        EmbeddingProvider::Cuda,
        EmbeddingProvider::TensorRt,
        EmbeddingProvider::Sidecar,
    ];

    fn value(self) -> &'static str {
        match self {
            EmbeddingProvider::Cpu => "cpu",
            EmbeddingProvider::Cuda => "cuda",
            EmbeddingProvider::TensorRt => "tensorrt",
            EmbeddingProvider::Sidecar => "sidecar",
        }
    }
}
