//! What can go wrong before the first byte is served.

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
        /// Why the system refused.
        source: io::Error,
    },
    /// The certificate cannot be shown.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
