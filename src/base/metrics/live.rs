//! Ends of live sessions, and the items that they dropped.

use super::labelled::labels;

labels! {
    /// Reason of a live session's end.
    pub enum SessionEnd {
        /// Its publisher asked for it.
        Deleted = "deleted",
        /// Its publisher closed the connection.
        Closed = "closed",
        /// Its publisher fell silent.
        Lost = "lost",
        /// Its publisher never came.
        NeverConnected = "never_connected",
        /// Its run was over.
        RunOver = "run_over",
        /// The server shut down.
        Shutdown = "shutdown",
        /// It could not go on.
        Failed = "failed",
    }

    /// Item that a live session, or the recording of a camera, dropped.
    pub enum ShedReason {
        /// Coded pictures that a worker had no room for, and those that refer to them.
        Pictures = "pictures",
        /// Stills that their writer had no room for, or that were lost with a device.
        Stills = "stills",
        /// Selected frames that waited for a model when newer ones came.
        Keyframes = "keyframes",
        /// Clips, likewise, and chunks of a camera.
        Clips = "clips",
        /// Descriptions that the session's token rate did not allow.
        TokenRate = "token_rate",
        /// Descriptions that said again what was said in the same loop.
        Repeats = "repeats",
        /// Sessions whose worker had not said all when there was no more time for it.
        LastWords = "last_words",
        /// Selected frames and clips that waited for a model, or were being asked about, when the session
        /// ended and there was no more time for them.
        Ended = "ended",
    }

    /// Outcome of the novelty check of a selected frame.
    pub enum NoveltyDecision {
        /// The last description stands for it.
        Reuse = "reuse",
        /// No frame was described before.
        First = "first",
        /// The last description is too old.
        Elapsed = "elapsed",
        /// The last description was compared by another model.
        Model = "model",
        /// It looks different.
        Distance = "distance",
        /// A small part of it looks different.
        Cell = "cell",
        /// The last description has stood for too much.
        Drift = "drift",
        /// It could have been reused, and was described to see what that would miss.
        Shadow = "shadow",
        /// It could not be compared.
        Failed = "failed",
    }

    /// Execution provider of the image embedder.
    pub enum EmbeddingProvider {
        /// The processor.
        Cpu = "cpu",
        /// An NVIDIA GPU.
        Cuda = "cuda",
        /// The same through TensorRT.
        TensorRt = "tensorrt",
        /// A sidecar, on whatever it runs.
        Sidecar = "sidecar",
    }
}
