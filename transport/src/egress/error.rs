//! Errors of connections to other hosts.
//!
//! Messages name hosts and rules, never credentials, paths or queries, because they reach users, events and
//! logs.

use std::time::Duration;

use http::StatusCode;

/// Phase that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// Resolving the host name.
    Dns,
    /// Connecting.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// Waiting for the start of a response.
    FirstByte,
    /// Waiting for the next bytes.
    Idle,
    /// The whole job.
    Total,
}

/// Quantity that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadLimit {
    /// Bytes of all bodies.
    Bytes,
    /// Number of requests, redirects included.
    Fetches,
}

/// Violation of the protocol by a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnswerProblem {
    /// The connection closed before the response.
    #[error("closed the connection without an answer")]
    Missing,
    /// The response is not HTTP.
    #[error("does not speak HTTP")]
    NotHttp,
    /// A redirect has no location.
    #[error("redirects to nowhere")]
    NoLocation,
    /// A partial response does not say which part it is, or says it in an invalid way.
    #[error("answered with no part it names")]
    NoRange,
    /// A partial response is another part than the requested one.
    #[error("answered another part than was asked for")]
    OtherRange,
    /// The resource is empty.
    #[error("has no bytes")]
    Empty,
    /// The body is compressed.
    #[error("compresses the answer, which nobody asked for")]
    Compressed,
}

/// Error of a request to another host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// The URL cannot be fetched.
    #[error("malformed url: {0}")]
    Malformed(&'static str),
    /// The scheme is not supported.
    #[error("scheme not served: {0}")]
    Scheme(String),
    /// The scheme is disabled by the operator.
    #[error("scheme not enabled: {scheme} needs {setting}=true on this server")]
    NotEnabled {
        /// The scheme.
        scheme: String,
        /// Setting that enables it.
        setting: &'static str,
    },
    /// The name does not resolve.
    #[error("dns: {host} does not resolve ({reason})")]
    Dns {
        /// Host name.
        host: String,
        /// Error message of the resolver.
        reason: String,
    },
    /// An address of the host is blocked.
    #[error(
        "blocked address: {host} leads to an address that is not public ({rule}); the operator \
         can allow its network with SERVICE_EGRESS_ALLOWED_NETWORKS"
    )]
    Blocked {
        /// The host.
        host: String,
        /// Special purpose of the address.
        rule: &'static str,
    },
    /// No address of the host accepted a connection.
    #[error("tcp: cannot connect to {host} ({reason})")]
    Connect {
        /// The host.
        host: String,
        /// Error message of the system.
        reason: String,
    },
    /// The host's certificate was rejected, or the handshake failed.
    #[error("tls: no secure connection to {host} ({reason})")]
    Tls {
        /// The host.
        host: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The response has an unexpected status.
    #[error("http status: {host} answered {status}")]
    Status {
        /// The host.
        host: String,
        /// Status of the response.
        status: StatusCode,
    },
    /// The host rejects the credentials, or requires some.
    #[error("auth: {host} answered {status}; give valid credentials in the URL")]
    Auth {
        /// The host.
        host: String,
        /// Status of the response.
        status: StatusCode,
    },
    /// The response violates the protocol.
    #[error("http: {host} {problem}")]
    Answer {
        /// The host.
        host: String,
        /// Violation of the protocol.
        problem: AnswerProblem,
    },
    /// The redirects exceed the limit.
    #[error("redirect loop: more than {limit} redirects")]
    Redirects {
        /// Most redirects that are followed.
        limit: usize,
    },
    /// The connection closed before the end of the body.
    #[error("ended early: {host} closed the connection before the end of the body")]
    Cut {
        /// The host.
        host: String,
    },
    /// The resource changed between two requests.
    #[error("changed while it was read: {host} has another version now")]
    Changed {
        /// The host.
        host: String,
    },
    /// The server serves no ranges, so the resource can be read only from start to end.
    #[error("not seekable: {host} serves no ranges, and this source has to be read out of order")]
    NoRanges {
        /// The host.
        host: String,
    },
    /// A timeout expired.
    #[error("timeout: {} within {} s", what(*.wait), .after.as_secs_f32())]
    Timeout {
        /// Phase that timed out.
        wait: TimeoutPhase,
        /// Time limit.
        after: Duration,
    },
    /// The job exceeded its download budget.
    #[error("too large: more than {limit} {}", unit(*.amount))]
    TooMuch {
        /// Quantity that exceeded its limit.
        amount: DownloadLimit,
        /// Largest amount allowed.
        limit: u64,
    },
}

fn what(wait: TimeoutPhase) -> &'static str {
    match wait {
        TimeoutPhase::Dns => "the host name did not resolve",
        TimeoutPhase::Connect => "no connection was made",
        TimeoutPhase::Handshake => "no secure connection was made",
        TimeoutPhase::FirstByte => "no answer came",
        TimeoutPhase::Idle => "no further byte came",
        TimeoutPhase::Total => "the source was not read",
    }
}

fn unit(amount: DownloadLimit) -> &'static str {
    match amount {
        DownloadLimit::Bytes => "bytes",
        DownloadLimit::Fetches => "requests",
    }
}
