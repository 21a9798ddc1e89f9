//! Failure classes of remote sources.

use super::labelled::labels;

labels! {
    /// Reason why a remote source was not read.
    pub enum RemoteFailure {
        /// The URL is invalid, or a setting forbids it.
        Refused = "refused",
        /// The host name did not resolve.
        Dns = "dns",
        /// The host has an address that is not allowed.
        Blocked = "blocked",
        /// The connection failed or broke.
        Tcp = "tcp",
        /// The TLS handshake failed.
        Tls = "tls",
        /// The HTTP response was not the source.
        Http = "http",
        /// The host rejected the credentials.
        Auth = "auth",
        /// The time limit passed.
        Timeout = "timeout",
        /// The source was too large.
        TooLarge = "too_large",
        /// An internal error of the server.
        Internal = "internal",
    }
}
