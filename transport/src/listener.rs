//! Listening sockets.

use std::{fmt, io, net::SocketAddr, sync::Arc};

use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpSocket};
use tokio_rustls::TlsAcceptor;

use crate::{TransportError, certificate::ReloadingCertificate};

/// Connections that wait to be accepted; the system may hold fewer.
const BACKLOG: u32 = 4096;

/// A socket that connections come to.
pub struct Listener {
    pub(crate) socket: TcpListener,
    pub(crate) tls: Option<TlsAcceptor>,
}

/// The library's acceptor has nothing to show.
impl fmt::Debug for Listener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listener")
            .field("socket", &self.socket)
            .field("tls", &self.tls.is_some())
            .finish()
    }
}

impl Listener {
    /// Listens on `addr` in clear text; port 0 takes a free one, which `local_addr` then tells.
    pub fn bind(addr: SocketAddr) -> Result<Listener, TransportError> {
        let socket = listen(addr).map_err(|source| TransportError::Bind { addr, source })?;
        Ok(Listener { socket, tls: None })
    }

    /// Every connection begins with a TLS handshake that shows `certificate`.
    pub fn with_tls(
        self,
        certificate: &Arc<ReloadingCertificate>,
    ) -> Result<Listener, TransportError> {
        let config: ServerConfig = certificate.server_config(&[b"h2", b"http/1.1"])?;
        Ok(Listener { tls: Some(Arc::new(config).into()), ..self })
    }

    /// The address that was taken.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that starts again must not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}
