//! Labels of the ends of live sessions, of dropped items and of novelty decisions.

use super::labelled::labels;

labels! {
    /// Reason of a live session's end.
    pub enum SessionEnd {
        Deleted = "deleted",
        /// The publisher closed the connection.
        Closed = "closed",
        /// The publisher stopped sending.
        Lost = "lost",
        NeverConnected = "never_connected",
        RunOver = "run_over",
        Shutdown = "shutdown",
        Failed = "failed",
    }

    /// Item dropped by a live session or by the recording of a camera.
    pub enum ShedReason {
        /// Coded pictures for which the worker had no room, and pictures that refer to them.
        Pictures = "pictures",
        /// Stills for which the writer had no room, or that were lost with a device.
        Stills = "stills",
        /// Selected frames that waited for a model when newer ones arrived.
        Keyframes = "keyframes",
        /// Clips that waited for a model when newer ones arrived, and chunks of a camera.
        Clips = "clips",
        TokenRate = "token_rate",
        /// Descriptions that repeated another one of the same loop.
        Repeats = "repeats",
        /// Sessions whose worker had not delivered all events when the time limit passed.
        LastWords = "last_words",
        /// Selected frames and clips that waited for a model, or were with one, when the session ended and
        /// its time limit passed.
        Ended = "ended",
    }

    /// Outcome of the novelty check of a selected frame.
    pub enum NoveltyDecision {
        Reuse = "reuse",
        /// No frame had been described before.
        First = "first",
        /// The last description is too old.
        Elapsed = "elapsed",
        /// The last description's frame was embedded by another model.
        Model = "model",
        /// The frame's distance from the described one is too large.
        Distance = "distance",
        /// The distance of one cell of the frame is too large.
        Cell = "cell",
        /// The cumulative drift since the last description is too large.
        Drift = "drift",
        /// The description could have been reused; the frame was described to measure the error of reuse.
        Shadow = "shadow",
        /// The frame could not be compared.
        Failed = "failed",
    }

    /// Execution provider of the image embedder.
    pub enum EmbeddingProvider {
        Cpu = "cpu",
        Cuda = "cuda",
        TensorRt = "tensorrt",
        /// A sidecar, whatever hardware it uses.
        Sidecar = "sidecar",
    }
}
