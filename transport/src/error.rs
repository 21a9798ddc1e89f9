//! Errors of starting a server.

use std::{io, net::SocketAddr};

use crate::CertificateError;

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum TransportError {
    /// The address is in use, not local, or not permitted.
    #[error("cannot listen on {addr}: {source}")]
    Bind { addr: SocketAddr, source: io::Error },
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
