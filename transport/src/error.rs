//! Errors of starting a server.

use std::{io, net::SocketAddr};

use crate::CertificateError;

/// A socket that cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The address is taken, not ours or not allowed.
    #[error("cannot listen on {addr}: {source}")]
    Bind {
        /// The address asked for.
        addr: SocketAddr,
        /// Error of the system.
        source: io::Error,
    },
    /// The certificate cannot be shown.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
