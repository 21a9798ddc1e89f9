//! Listening sockets.

use std::net::SocketAddr;

use tokio::net::TcpListener;

use crate::TransportError;

/// Listens on `addr`; port 0 takes a free one, which `local_addr` then tells.
pub async fn bind(addr: SocketAddr) -> Result<TcpListener, TransportError> {
    TcpListener::bind(addr).await.map_err(|source| TransportError::Bind { addr, source })
}
