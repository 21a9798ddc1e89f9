//! HTTP/1.1 and HTTP/2 server: listens, accepts TCP connections, with or without TLS, serves a site, and drains.

use std::{convert::Infallible, io, net::SocketAddr, sync::Arc, time::Duration};

use axum::Router;
use http::{HeaderValue, StatusCode};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpSocket, TcpStream},
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    certificate::{CertificateError, ReloadingCertificate},
    connection_limit::{ConnectionLimiter, ConnectionPermit},
    error_response::{self, ExtraHeaders},
    respond::{HEADERS_MAX, handle_request},
    timeouts::TimeoutStream,
};

/// Length of the accept queue; the system may cap it.
const BACKLOG: u32 = 4096;
/// Flow-control window of a request body on HTTP/2, in bytes.
const WINDOW_BYTES: u32 = 512 << 10;
/// Most bytes buffered per response on HTTP/2.
const SEND_BYTES: usize = 64 << 10;

/// Time limit of sending a refusal, and bytes of the request that are read meanwhile.
const REFUSING: Duration = Duration::from_millis(500);
const REFUSED_BYTES: u64 = 64 << 10;

/// First byte of a TLS handshake (RFC 8446 5.1); no clear-text request begins with it.
const TLS_HANDSHAKE: u8 = 22;

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
    socket: TcpListener,
    tls: Option<TlsAcceptor>,
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
        let config = certificate.server_config(&[b"h2", b"http/1.1"])?;
        Ok(Listener { tls: Some(Arc::new(config).into()), ..self })
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }
}

/// Site to serve.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Router that answers requests.
    pub router: Router,
    /// Limits of the peers.
    pub limits: ServerLimits,
    /// Value of `Alt-Svc` (RFC 7838) in responses on TCP: other endpoints of the site.
    pub elsewhere: Option<HeaderValue>,
    /// Extra headers of responses that the router does not make.
    pub refusal_headers: ExtraHeaders,
}

/// Signals that stop the server.
#[derive(Clone, Debug, Default)]
pub struct ShutdownSignals {
    /// Stops accepting connections; open ones may finish.
    pub stop: CancellationToken,
    /// After `stop`, closes connections that have not finished.
    pub cut: CancellationToken,
}

/// Limits per peer.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Longest request line and headers together, in bytes; beyond it the response is 431.
    pub header_bytes_max: usize,
    /// Timeout of a request head from its first byte to its last; then 408 and close.
    pub header: Duration,
    /// Timeout of a TLS handshake together with the first head.
    pub handshake: Duration,
    /// Timeout of a peer that owes bytes; a body must move 64 KiB in it; then 408 and close.
    pub idle: Duration,
    /// Most concurrent requests on one HTTP/2 connection.
    pub streams_max: u32,
}

impl Default for ServerLimits {
    fn default() -> ServerLimits {
        ServerLimits {
            header_bytes_max: 64 << 10,
            header: Duration::from_secs(15),
            handshake: Duration::from_secs(30),
            idle: Duration::from_secs(30),
            streams_max: 128,
        }
    }
}

fn listen(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // A restarted server must not wait for connections of its predecessor.
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    socket.listen(BACKLOG)
}

/// Serves `site` on `listener` until stopped, then lets open requests finish until cut. Returns the number of
/// connections that were closed then.
pub async fn serve(
    listener: Listener,
    site: ServiceConfig,
    limiter: Arc<ConnectionLimiter>,
    ends: ShutdownSignals,
) -> usize {
    let stop = ends.stop;
    // A separate token: the remaining connections are counted before they are closed.
    let cut = CancellationToken::new();
    let connections = TaskTracker::new();
    while let Some((stream, place)) = accept(&listener, &limiter, &site, &stop).await {
        let leave = place.state.leave.clone();
        let tls = listener.tls.clone();
        // Boxed, because each layer around the future would reserve its kilobytes twice.
        let connection = Box::pin(connection(stream, tls, site.clone(), stop.clone(), place));
        let cut = cut.clone();
        connections.spawn(async move {
            cut.run_until_cancelled(leave.run_until_cancelled(connection)).await;
        });
    }
    drop(listener);
    drain(&connections, &ends.cut, &cut).await
}

/// Waits for the open connections until `deadline`, and cuts those that are left; returns their number.
pub(crate) async fn drain(
    connections: &TaskTracker,
    deadline: &CancellationToken,
    cut: &CancellationToken,
) -> usize {
    connections.close();
    let in_time = deadline.run_until_cancelled(connections.wait()).await.is_some();
    let left = if in_time { 0 } else { connections.len() };
    cut.cancel();
    connections.wait().await;
    left
}

/// Accepts the next connection and its permit; `None` once stopped.
async fn accept(
    listener: &Listener,
    limiter: &Arc<ConnectionLimiter>,
    site: &ServiceConfig,
    stop: &CancellationToken,
) -> Option<(TcpStream, ConnectionPermit)> {
    let next = async {
        loop {
            match listener.socket.accept().await {
                Ok((stream, peer)) => match limiter.try_acquire(peer.ip()) {
                    Some(place) => return (stream, place),
                    // Behind TLS a refusal would cost a handshake, for which there is no room.
                    None if listener.tls.is_some() => {}
                    None => refuse(stream, limiter, site.refusal_headers),
                },
                Err(error) if is_peer_fault(&error) => {}
                Err(error) => {
                    let made_room = limiter.evict();
                    tracing::warn!(%error, made_room, "cannot accept a connection");
                    // Out of descriptors: an immediate retry would spin until one is free.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    stop.run_until_cancelled(next).await
}

/// Sends a 503 to a refused HTTP/1.1 peer, unless too many refusals are being sent.
fn refuse(stream: TcpStream, limiter: &ConnectionLimiter, headers: ExtraHeaders) {
    let Ok(permit) = Arc::clone(&limiter.refusing).try_acquire_owned() else { return };
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let answer = error_response::bytes(status, "too many connections", headers);
    tokio::spawn(async move {
        let told = send_refusal(stream, &answer).await;
        tracing::debug!(told, "no room for a connection");
        drop(permit);
    });
}

/// Sends a response before reading the request, and closes; true if the peer received it.
async fn send_refusal(mut stream: TcpStream, answer: &[u8]) -> bool {
    let told = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // The request must be read, else closing resets the connection and discards the response.
        tokio::io::copy(&mut stream.take(REFUSED_BYTES), &mut tokio::io::sink()).await
    };
    matches!(timeout(REFUSING, told).await, Ok(Ok(_)))
}

fn is_peer_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(
    stream: TcpStream,
    tls: Option<TlsAcceptor>,
    site: ServiceConfig,
    stop: CancellationToken,
    place: ConnectionPermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = tls else { return serve_http(stream, site, None, stop, place).await };
    let due = Instant::now() + site.limits.handshake;
    // Both futures are boxed, so that a connection without TLS does not reserve room for them.
    let shaken = Box::pin(tls_handshake(tls, stream, site.refusal_headers));
    match timeout_at(due, shaken).await {
        Ok(Ok(Some(stream))) => {
            Box::pin(serve_http(stream, site, Some(due), stop, place)).await;
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// Accepts TLS; `None` if the peer speaks clear-text HTTP, which is answered with a 400.
async fn tls_handshake(
    tls: TlsAcceptor,
    stream: TcpStream,
    headers: ExtraHeaders,
) -> io::Result<Option<TlsStream<TcpStream>>> {
    let mut first = [0];
    if stream.peek(&mut first).await? == 1 && first[0] != TLS_HANDSHAKE {
        let answer =
            error_response::bytes(StatusCode::BAD_REQUEST, "this port speaks HTTPS", headers);
        let told = send_refusal(stream, &answer).await;
        tracing::debug!(told, "a peer does not speak TLS");
        return Ok(None);
    }
    tls.accept(stream).await.map(Some)
}

/// Serves the requests of one connection; the first head must be complete at `first_header`.
async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    site: ServiceConfig,
    first_header: Option<Instant>,
    stop: CancellationToken,
    place: ConnectionPermit,
) {
    let (state, limits) = (Arc::clone(&place.state), site.limits);
    // Also cancelled by the socket if the peer keeps the connection open without requests.
    let retire = stop.child_token();
    let stream = TimeoutStream::new(
        stream,
        limits,
        first_header,
        Arc::clone(&state),
        retire.clone(),
        site.refusal_headers,
    );
    // Boxed, so that serving reserves no room for it.
    let greeted = retire.run_until_cancelled(Box::pin(stream.sniff_http2())).await;
    let (is_http2, stream) = match greeted {
        Some(Ok(greeted)) => greeted,
        Some(Err(error)) => {
            return tracing::debug!(%error, "connection closed before the first byte");
        }
        None => return,
    };
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let answer = handle_request(request, site.clone(), state.begin());
        // Boxed, so that an idle or streaming connection reserves no room for it.
        Box::pin(async move { Ok::<_, Infallible>(answer.await) })
    });
    let result = if is_http2 {
        // Boxed, so that other connections reserve no room for it.
        let mut connection = Box::pin(http2(&limits).serve_connection(io, service));
        tokio::select! {
            result = &mut connection => result,
            () = retire.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        }
    } else {
        let mut connection = http1(&limits).serve_connection(io, service);
        tokio::select! {
            result = &mut connection => result,
            () = retire.cancelled() => {
                Pin::new(&mut connection).graceful_shutdown();
                // By reference: moving the connection here would reserve room for it twice.
                (&mut connection).await
            }
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended early");
    }
}

fn http1(limits: &ServerLimits) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        // `TimeoutStream` times the head and answers 408, whereas hyper only closes.
        .header_read_timeout(None)
        // Room for a head just over the limit, which `handle_request` then refuses.
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.header_bytes_max + 4096);
    builder
}

fn http2(limits: &ServerLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // Room for a head over the limit, which `handle_request` refuses with the site's headers: the library
        // counts 32 bytes more per field than HTTP/1.1 writes.
        .max_header_list_size(u32::try_from(2 * limits.header_bytes_max).unwrap_or(u32::MAX))
        .max_concurrent_streams(limits.streams_max)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(2 * WINDOW_BYTES)
        .max_send_buf_size(SEND_BYTES)
        .keep_alive_interval(limits.idle)
        .keep_alive_timeout(limits.idle);
    builder
}

#[cfg(test)]
mod tests;
