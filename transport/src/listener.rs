//! Listening sockets.

use std::{io, net::SocketAddr};

use tokio::net::{TcpListener, TcpSocket};

use crate::TransportError;

/// Connections that wait to be accepted; the system may hold fewer.
const BACKLOG: u32 = 4096;

/// Listens on `addr`; port 0 takes a free one, which `local_addr` then tells.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, TransportError> {
    listen(addr).map_err(|source| TransportError::Bind { addr, source })
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A server that starts again must not wait for the connections of the one before.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}
