//! Classes of what goes wrong with remote sources.

use super::Label;

/// Reason that a remote source was not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoteFailure {
    /// Its URL is none, or needs a setting.
    Refused,
    /// Its host has no address.
    Dns,
    /// Its host has an address that must not be connected to.
    Blocked,
    /// No connection, or one that broke.
    Tcp,
    /// No secure connection.
    Tls,
    /// An answer that is not the source.
    Http,
    /// Credentials that its host does not take.
    Auth,
    /// It took too long.
    Timeout,
    /// It was too much.
    TooLarge,
    /// The server's own doing.
    Internal,
}

impl Label for RemoteFailure {
    const ALL: &'static [RemoteFailure] = {
        use RemoteFailure::*;
        &[Refused, Dns, Blocked, Tcp, Tls, Http, Auth, Timeout, TooLarge, Internal]
    };

    fn value(self) -> &'static str {
        match self {
            RemoteFailure::Refused => "refused",
            RemoteFailure::Dns => "dns",
            RemoteFailure::Blocked => "blocked",
            RemoteFailure::Tcp => "tcp",
            RemoteFailure::Tls => "tls",
            RemoteFailure::Http => "http",
            RemoteFailure::Auth => "auth",
            RemoteFailure::Timeout => "timeout",
            RemoteFailure::TooLarge => "too_large",
            RemoteFailure::Internal => "internal",
        }
    }
}
