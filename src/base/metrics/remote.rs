//! Classes of what goes wrong with remote sources.

use super::labelled::labels;

labels! {
    /// Reason that a remote source was not read.
    pub enum RemoteFailure {
        /// Its URL is none, or needs a setting.
        Refused = "refused",
        /// Its host has no address.
        Dns = "dns",
        /// Its host has an address that must not be connected to.
        Blocked = "blocked",
        /// No connection, or one that broke.
        Tcp = "tcp",
        /// No secure connection.
        Tls = "tls",
        /// An answer that is not the source.
        Http = "http",
        /// Credentials that its host does not take.
        Auth = "auth",
        /// It took too long.
        Timeout = "timeout",
        /// It was too much.
        TooLarge = "too_large",
        /// The server's own doing.
        Internal = "internal",
    }
}
