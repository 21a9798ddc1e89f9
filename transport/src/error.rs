//! Errors of starting a server.

use std::{io, net::SocketAddr};

use crate::CertificateError;

/// Error of starting a server.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the name of a field says it")]
pub enum TransportError {
    /// The address is in use, not local, or not permitted.
    #[error("cannot listen on {addr}: {source}")]
    Bind { addr: SocketAddr, source: io::Error },
    /// The certificate cannot be used.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
}
