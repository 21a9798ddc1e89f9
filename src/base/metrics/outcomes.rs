//! Labels of connections, queues, deliveries, spans, files, refused requests and remote sources.

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
        /// Bytes of answers that clients have not read yet.
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
}
