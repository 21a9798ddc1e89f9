//! Errors of fetching from, or sending to, another host.
//!
//! Messages name hosts and rules, never credentials, paths or queries: they reach users, events
//! and logs.

use std::time::Duration;

use http::StatusCode;

/// Wait that timed out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeoutPhase {
    /// The name of the host.
    Dns,
    /// A connection.
    Connect,
    /// The TLS handshake.
    Handshake,
    /// The start of an answer.
    FirstByte,
    /// The next bytes.
    Idle,
    /// Everything together.
    Total,
}

/// Quantity that exceeded its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DownloadLimit {
    /// Bytes of all bodies.
    Bytes,
    /// Requests, redirects included.
    Fetches,
}

/// Error of a request to another host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EgressError {
    /// Not a URL that can be fetched.
    #[error("malformed url: {0}")]
    Malformed(&'static str),
    /// A scheme that nobody fetches here.
    #[error("scheme not served: {0}")]
    Scheme(String),
    /// A scheme that the operator has not enabled.
    #[error("scheme not enabled: {scheme} needs {setting}=true on this server")]
    NotEnabled {
        /// The scheme.
        scheme: String,
        /// Setting that enables it.
        setting: &'static str,
    },
    /// The name has no address.
    #[error("dns: {host} does not resolve ({reason})")]
    Dns {
        /// The name.
        host: String,
        /// The resolver's words.
        reason: String,
    },
    /// An address of the host must not be connected to.
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
    /// No address of the host took a connection.
    #[error("tcp: cannot connect to {host} ({reason})")]
    Connect {
        /// The host.
        host: String,
        /// The system's words.
        reason: String,
    },
    /// The host did not prove who it is, or broke the handshake.
    #[error("tls: no secure connection to {host} ({reason})")]
    Tls {
        /// The host.
        host: String,
        /// Check that failed.
        reason: String,
    },
    /// An answer that is not the resource.
    #[error("http status: {host} answered {status}")]
    Status {
        /// The host.
        host: String,
        /// Its answer.
        status: StatusCode,
    },
    /// The host wants other credentials, or none of ours.
    #[error("auth: {host} answered {status}; give valid credentials in the URL")]
    Auth {
        /// The host.
        host: String,
        /// Its answer.
        status: StatusCode,
    },
    /// An answer that breaks the protocol.
    #[error("http: {host} {problem}")]
    Answer {
        /// The host.
        host: String,
        /// Violation of the protocol.
        problem: &'static str,
    },
    /// Redirects without an end.
    #[error("redirect loop: more than {limit} redirects")]
    Redirects {
        /// Most redirects that are followed.
        limit: usize,
    },
    /// The connection broke, or the body is shorter than was said.
    #[error("ended early: {host} closed the connection before the end of the body")]
    Cut {
        /// The host.
        host: String,
    },
    /// Another part of the resource is not of the same version.
    #[error("changed while it was read: {host} has another version now")]
    Changed {
        /// The host.
        host: String,
    },
    /// The bytes can be read once, from start to end.
    #[error("not seekable: {host} serves no ranges, and this source has to be read out of order")]
    NoRanges {
        /// The host.
        host: String,
    },
    /// A wait that came to nothing.
    #[error("timeout: {} within {} s", what(*.wait), .after.as_secs_f32())]
    Timeout {
        /// For what.
        wait: TimeoutPhase,
        /// Time limit.
        after: Duration,
    },
    /// More than a job may fetch.
    #[error("too large: more than {limit} {}", unit(*.amount))]
    TooMuch {
        /// Of what.
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
