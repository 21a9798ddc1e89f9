//! Labels of connections, queues, deliveries, spans, files, refused requests, remote sources and live sessions.

use super::labelled::labels;

labels! {
    /// Decision of the connection limiter.
    pub enum ConnectionOutcome {
        Accepted = "accepted",
        /// The connection was admitted, and later closed in favour of another.
        GaveWay = "gave_way",
        Refused = "refused",
    }

    /// A bounded queue of the server.
    pub enum QueueLabel {
        FileJobs = "file_jobs",
        Analyses = "analyses",
    }

    /// Outcome of an attempt to deliver an event to a webhook.
    pub enum DeliveryOutcome {
        Delivered = "delivered",
        /// The attempt failed and will be retried.
        Failed = "failed",
        /// The delivery was given up; the event became a dead letter.
        Dead = "dead_letter",
        /// The target asked for no further events.
        Gone = "gone",
    }

    /// Outcome of a finished span.
    pub enum SpanOutcome {
        Exported = "exported",
        /// The queue was full, or the collector did not accept the span.
        Dropped = "dropped",
    }

    /// A file that retention removes.
    pub enum StoredFile {
        Still = "still",
        /// A signal array.
        Column = "column",
        /// Remainder of an unfinished write.
        Unfinished = "unfinished",
    }

    /// Limit that refused a request.
    pub enum RefusalReason {
        GlobalRate = "global_rate",
        PrincipalRate = "principal_rate",
        FailedAuthentications = "failed_authentications",
        FileJobs = "file_jobs",
        /// Bytes of answers that clients have not read yet, or of JSON bodies that they have not sent completely.
        Unsent = "unsent",
        /// Number of long answers that wait to be produced.
        Readers = "readers",
        Analyses = "analyses",
        Searches = "searches",
        Streams = "event_streams",
        Tickets = "media_tickets",
        ActiveRuns = "active_runs",
        Webhooks = "webhooks",
        Uploads = "uploads",
        /// Answers stored for the idempotency keys of a principal.
        Keys = "idempotency_keys",
        /// Reserve of free disk space.
        Disk = "disk",
        /// The log is read-only.
        Log = "log",
        Inferences = "inferences",
        DayTokens = "day_tokens",
        Draining = "draining",
    }

    /// Reason why a remote source was not read.
    pub enum RemoteFailure {
        /// The URL is invalid, or a setting forbids it.
        Refused = "refused",
        Dns = "dns",
        /// The host has an address that is not allowed.
        Blocked = "blocked",
        /// The connection failed or broke.
        Tcp = "tcp",
        Tls = "tls",
        /// The HTTP response was not the source.
        Http = "http",
        /// The host rejected the credentials.
        Auth = "auth",
        Timeout = "timeout",
        TooLarge = "too_large",
        Internal = "internal",
    }

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
        /// Descriptions that the session's token rate did not allow.
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
