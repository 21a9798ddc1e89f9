//! Listening sockets.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use crate::certificate::{CertificateError, ReloadingCertificate};

/// Length of the accept queue; the system may cap it.
const BACKLOG: u32 = 4096;

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

/// Listening TCP socket.
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
}

impl Listener {
    /// Listens on `addr` in clear text; port 0 takes a free port, which `local_addr` returns.
    pub fn bind(addr: SocketAddr) -> Result<Listener, TransportError> {
        let socket = listen(addr).map_err(|source| TransportError::Bind { addr, source })?;
        Ok(Listener { socket, tls: None })
    }

    /// Requires TLS with `certificate` on every connection.
    pub fn with_tls(
        self,
        certificate: &Arc<ReloadingCertificate>,
    ) -> Result<Listener, TransportError> {
        let config: ServerConfig = certificate.server_config(&[b"h2", b"http/1.1"])?;
        Ok(Listener { tls: Some(Arc::new(config).into()), ..self })
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server must not wait for connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}
