//! Accepts TCP connections, with TLS or without, serves the site on them, and drains.

use std::{convert::Infallible, io, sync::Arc, time::Duration};

use axum::Router;
use http::{HeaderValue, StatusCode};
use hyper::{
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    time::{Instant, timeout, timeout_at},
};
use tokio_rustls::{TlsAcceptor, server::TlsStream};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    connection_limit::{ConnectionLimiter, ConnectionPermit},
    error_response::{self, ExtraHeaders},
    listener::Listener,
    preface::{HttpVersion, sniff_http_version},
    respond::{HEADERS_MAX, handle_request},
    timeouts::{TimeoutStream, Times},
};

/// Bytes of one request body on HTTP/2 that may come before somebody reads them.
const WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of one answer on HTTP/2 that may wait for its peer.
const SEND_BYTES: usize = 64 << 10;

/// Time in which a refused connection is told so, and bytes of a request that are read meanwhile.
const REFUSING: Duration = Duration::from_millis(500);
const REFUSED_BYTES: u64 = 64 << 10;

/// First byte of a TLS handshake (RFC 8446 5.1), which no request in clear text begins with.
const TLS_HANDSHAKE: u8 = 22;

/// Site that is served.
#[derive(Clone, Debug)]
pub struct ServiceConfig {
    /// Answers requests.
    pub router: Router,
    /// Other endpoints of the site (`Alt-Svc`, RFC 7838), told in answers on TCP.
    pub elsewhere: Option<HeaderValue>,
    /// The headers of the answers that the router does not give.
    pub refusal_headers: ExtraHeaders,
}

/// Signals that end serving.
#[derive(Clone, Debug, Default)]
pub struct ShutdownSignals {
    /// Accepts no further connection, and lets those that are open finish.
    pub stop: CancellationToken,
    /// After `stop`, closes those that have not finished.
    pub cut: CancellationToken,
}

/// Limits of what one peer may take of the server.
#[derive(Clone, Copy, Debug)]
pub struct ServerLimits {
    /// Request line and headers together; past it 431.
    pub header_bytes_max: usize,
    /// Longest time from the first byte of a request's head to its last; past it 408 and close.
    pub header: Duration,
    /// The same of a TLS handshake and the first head after it.
    pub handshake: Duration,
    /// Longest silence of a peer that owes bytes, in which a body moves by 64 KiB; past it 408 and close.
    pub idle: Duration,
    /// Requests at once on one HTTP/2 connection.
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

/// Outcome of a drain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainReport {
    /// Connections that were still open at the deadline and were cut.
    pub cut: usize,
}

/// Serves `site` on `listener` to `limiter` until stopped, then lets open requests finish until cut.
pub async fn serve(
    listener: Listener,
    site: ServiceConfig,
    limits: ServerLimits,
    limiter: Arc<ConnectionLimiter>,
    ends: ShutdownSignals,
) -> DrainReport {
    let stop = ends.stop;
    // Not `ends.cut` itself: those that are left are counted before they are closed.
    let cut = CancellationToken::new();
    let connections = TaskTracker::new();
    while let Some((stream, place)) = accept(&listener, &limiter, &site, &stop).await {
        let leave = place.leave.clone();
        let tls = listener.tls.clone();
        // Boxed: each of the layers around it would hold its kilobytes twice.
        let connection =
            Box::pin(connection(stream, tls, site.clone(), limits, stop.clone(), place));
        let cut = cut.clone();
        connections.spawn(async move {
            cut.run_until_cancelled(leave.run_until_cancelled(connection)).await;
        });
    }
    drop(listener);
    connections.close();
    if ends.cut.run_until_cancelled(connections.wait()).await.is_some() {
        return DrainReport { cut: 0 };
    }
    let left = connections.len();
    cut.cancel();
    connections.wait().await;
    DrainReport { cut: left }
}

/// The next connection with the place it takes; `None` once stopped.
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
                    // Behind TLS the words would cost a handshake, which is what there is no room for.
                    None if listener.tls.is_some() => {}
                    None => refuse(stream, limiter, site.refusal_headers),
                },
                Err(error) if is_peer_fault(&error) => {}
                Err(error) => {
                    let made_room = limiter.evict();
                    tracing::warn!(%error, made_room, "cannot accept a connection");
                    // Out of descriptors: trying again at once would spin until one is free.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
    };
    stop.run_until_cancelled(next).await
}

/// Tells a peer that speaks HTTP/1.1 why there is no room for it, unless many are being told.
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

/// Gives a peer an answer before its request is read, and closes; true when it took it.
async fn send_refusal(mut stream: TcpStream, answer: &[u8]) -> bool {
    let told = async {
        stream.write_all(answer).await?;
        stream.shutdown().await?;
        // Its request must be read, or the close takes the answer back.
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
    limits: ServerLimits,
    stop: CancellationToken,
    place: ConnectionPermit,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let Some(tls) = tls else { return serve_http(stream, site, limits, None, stop, place).await };
    let due = Instant::now() + limits.handshake;
    // Boxed, both: a connection without TLS then has no room for them.
    let shaken = Box::pin(tls_handshake(tls, stream, site.refusal_headers));
    match timeout_at(due, shaken).await {
        Ok(Ok(Some(stream))) => {
            Box::pin(serve_http(stream, site, limits, Some(due), stop, place)).await;
        }
        Ok(Ok(None)) => {}
        Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => tracing::debug!("a TLS handshake took too long"),
    }
}

/// `None` when the peer speaks HTTP in clear text, and was told so.
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

/// Answers the requests of one connection; the first head must be whole at `first_header`.
async fn serve_http<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: S,
    site: ServiceConfig,
    limits: ServerLimits,
    first_header: Option<Instant>,
    stop: CancellationToken,
    place: ConnectionPermit,
) {
    let (activity, peer) = (Arc::clone(&place.activity), place.peer);
    // Also cancelled by the socket, of a peer that keeps it open for nothing.
    let retire = stop.child_token();
    let stream = TimeoutStream::new(
        stream,
        Times { idle: limits.idle, header: limits.header, first_header },
        Arc::clone(&activity),
        retire.clone(),
        site.refusal_headers,
    );
    // Boxed: what is served afterwards has no room for it.
    let greeted = retire.run_until_cancelled(Box::pin(sniff_http_version(stream))).await;
    let (version, stream) = match greeted {
        Some(Ok(greeted)) => greeted,
        Some(Err(error)) => {
            return tracing::debug!(%error, "connection closed before the first byte");
        }
        None => return,
    };
    let io = TokioIo::new(stream);
    let service = service_fn(move |request| {
        let answer = handle_request(request, peer, site.clone(), limits, activity.begin());
        // Boxed: an idle connection, or one that streams, then has no room for it.
        Box::pin(async move { Ok::<_, Infallible>(answer.await) })
    });
    let result = match version {
        HttpVersion::Http1 => {
            let mut connection = http1(&limits).serve_connection(io, service);
            tokio::select! {
                result = &mut connection => result,
                () = retire.cancelled() => {
                    Pin::new(&mut connection).graceful_shutdown();
                    // By reference: a connection that is moved here has room kept for it twice.
                    (&mut connection).await
                }
            }
        }
        HttpVersion::Http2 => {
            // Boxed: the others then have no room for it.
            let mut connection = Box::pin(http2(&limits).serve_connection(io, service));
            tokio::select! {
                result = &mut connection => result,
                () = retire.cancelled() => {
                    connection.as_mut().graceful_shutdown();
                    connection.await
                }
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
        // `TimeoutStream` times the head, and answers 408 where hyper only closes.
        .header_read_timeout(None)
        // Room for a head one byte past the limit, which `answer` then refuses.
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.header_bytes_max + 4096);
    builder
}

fn http2(limits: &ServerLimits) -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        // Room for a head past the limit, which `answer` then refuses with our headers: the
        // library counts 32 bytes more a field than HTTP/1.1 writes.
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
