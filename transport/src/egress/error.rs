//! Errors of connections to other hosts.
//!
//! Messages name hosts and rules, never credentials, paths or queries, because they reach users, events and
//! logs.

use std::time::Duration;

use http::StatusCode;

media::named! {
    /// Phase that timed out.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "the text of each says it")]
    pub enum TimeoutPhase {
        Dns = "the host name did not resolve",
        Connect = "no connection was made",
        Handshake = "no secure connection was made",
        FirstByte = "no answer came",
        Idle = "no further byte came",
        Total = "the source was not read",
    }
}

media::named! {
    /// Quantity that exceeded its limit.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum DownloadLimit {
        /// Bytes of all bodies.
        Bytes = "bytes",
        /// Number of requests, redirects included.
        Fetches = "requests",
    }
}

media::named! {
    /// Violation of the protocol by a response.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    #[allow(missing_docs, reason = "the text of each says it")]
    pub enum AnswerProblem {
        Missing = "closed the connection without an answer",
        NotHttp = "does not speak HTTP",
        NoLocation = "redirects to nowhere",
        NoRange = "answered with no part it names",
        OtherRange = "answered another part than was asked for",
        Empty = "has no bytes",
        Compressed = "compresses the answer, which nobody asked for",
    }
}

/// Error of a request to another host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the name of a field says it")]
pub enum EgressError {
    /// The URL cannot be fetched.
    #[error("malformed url: {0}")]
    Malformed(&'static str),
    /// The scheme is not supported.
    #[error("scheme not served: {0}")]
    Scheme(String),
    /// The scheme is disabled by the operator.
    #[error("scheme not enabled: {scheme} needs {setting}=true on this server")]
    NotEnabled { scheme: String, setting: &'static str },
    /// The name does not resolve.
    #[error("dns: {host} does not resolve ({reason})")]
    Dns { host: String, reason: String },
    /// An address of the host is blocked.
    #[error(
        "blocked address: {host} leads to an address that is not public ({rule}); the operator \
         can allow its network with SERVICE_EGRESS_ALLOWED_NETWORKS"
    )]
    Blocked { host: String, rule: &'static str },
    /// No address of the host accepted a connection.
    #[error("tcp: cannot connect to {host} ({reason})")]
    Connect { host: String, reason: String },
    /// The host's certificate was rejected, or the handshake failed.
    #[error("tls: no secure connection to {host} ({reason})")]
    Tls { host: String, reason: String },
    /// The response has an unexpected status.
    #[error("http status: {host} answered {status}")]
    Status { host: String, status: StatusCode },
    /// The host rejects the credentials, or requires some.
    #[error("auth: {host} answered {status}; give valid credentials in the URL")]
    Auth { host: String, status: StatusCode },
    /// The response violates the protocol.
    #[error("http: {host} {}", .problem.as_str())]
    Answer { host: String, problem: AnswerProblem },
    /// The redirects exceed the limit.
    #[error("redirect loop: more than {limit} redirects")]
    Redirects { limit: usize },
    /// The connection closed before the end of the body.
    #[error("ended early: {host} closed the connection before the end of the body")]
    Cut { host: String },
    /// The resource changed between two requests.
    #[error("changed while it was read: {host} has another version now")]
    Changed { host: String },
    /// The server serves no ranges, so the resource can be read only from start to end.
    #[error("not seekable: {host} serves no ranges, and this source has to be read out of order")]
    NoRanges { host: String },
    /// A timeout expired.
    #[error("timeout: {} within {} s", .wait.as_str(), .after.as_secs_f32())]
    Timeout { wait: TimeoutPhase, after: Duration },
    /// The job exceeded its download budget.
    #[error("too large: more than {limit} {}", .amount.as_str())]
    TooMuch { amount: DownloadLimit, limit: u64 },
}
