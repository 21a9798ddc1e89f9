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

/// Error of a request to another host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum EgressError {
    #[error("malformed url: {0}")]
    Malformed(&'static str),
    #[error("scheme not served: {0}")]
    Scheme(String),
    #[error("scheme not enabled: {scheme} needs {setting}=true on this server")]
    NotEnabled { scheme: String, setting: &'static str },
    #[error("dns: {host} does not resolve ({reason})")]
    Dns { host: String, reason: String },
    #[error(
        "blocked address: {host} leads to an address that is not public ({rule}); the operator \
         can allow its network with SERVICE_EGRESS_ALLOWED_NETWORKS"
    )]
    Blocked { host: String, rule: &'static str },
    #[error("tcp: cannot connect to {host} ({reason})")]
    Connect { host: String, reason: String },
    #[error("tls: no secure connection to {host} ({reason})")]
    Tls { host: String, reason: String },
    #[error("http status: {host} answered {status}")]
    Status { host: String, status: StatusCode },
    #[error("auth: {host} answered {status}; give valid credentials in the URL")]
    Auth { host: String, status: StatusCode },
    /// The request may be sent again on another connection.
    #[error("http: {host} closed the connection without an answer")]
    Unanswered { host: String },
    #[error("http: {host} {problem}")]
    Answer { host: String, problem: &'static str },
    #[error("redirect loop: more than {limit} redirects")]
    Redirects { limit: usize },
    #[error("ended early: {host} closed the connection before the end of the body")]
    Cut { host: String },
    #[error("changed while it was read: {host} has another version now")]
    Changed { host: String },
    #[error("not seekable: {host} serves no ranges, and this source has to be read out of order")]
    NoRanges { host: String },
    #[error("timeout: {} within {} s", .wait.as_str(), .after.as_secs_f32())]
    Timeout { wait: TimeoutPhase, after: Duration },
    #[error("too large: more than {limit} {amount}")]
    TooMuch { amount: &'static str, limit: u64 },
}
