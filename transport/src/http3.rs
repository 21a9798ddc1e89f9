//! HTTP/3 server: QUIC connections, and a bridge from their streams to the router.
//!
//! Promises the same limits on heads, silence and number of connections as on TCP, and the same drain. A
//! failed body resets its stream, and an unread one is stopped (STOP_SENDING). No early data.

mod body;
mod congestion;
mod message;
mod quic;

use std::{
    future::poll_fn,
    net::{SocketAddr, UdpSocket},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::{Duration, SystemTime},
};

use bytes::{Bytes, BytesMut};
use h3::{error::Code, server};
use http::{Response, header};
use http_body::Body;
use quinn::{
    Endpoint, EndpointConfig, Incoming, MtuDiscoveryConfig, ServerConfig, TransportConfig, VarInt,
    crypto::rustls::{NoInitialCipherSuite, QuicServerConfig},
};
use tokio::{sync::Semaphore, time::timeout};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use crate::{
    ConnectionLimiter, ServerLimits, ServiceConfig, ShutdownSignals, TransportError,
    certificate::{CertificateError, ReloadingCertificate},
    connection_state::ConnectionState,
    http::drain,
    respond::{TrackedBody, handle_request},
    timeouts::LEAST_BYTES,
};
use body::RequestBody;
use congestion::LossTolerantCubicConfig;
use quic::{AcceptedStream, BufferedBytes, GATHERED_BYTES, QuicConnection, SendStream, code};

const STREAM_WINDOW_BYTES: u32 = 1 << 20;
const CONNECTION_WINDOW_BYTES: u32 = 4 << 20;
/// Most unacknowledged bytes of responses per connection.
const SEND_WINDOW_BYTES: u64 = 4 << 20;
/// Socket buffer size, where the system permits it: 20 ms at 1 Gb/s.
const SOCKET_BYTES: usize = 4 << 20;
/// Largest datagram. The library sends ten at once, which is the most that the system takes in one call. MTU
/// discovery finds the size that fits the path, and most peers accept at most 1,472.
const DATAGRAM_BYTES: u16 = 6550;
/// Size below which parts of a response are merged while more are available.
const SMALL_BYTES: usize = 16 << 10;
/// Most concurrent handshakes, and the number from which peers must prove their address (RFC 9000 8.1).
const HANDSHAKES_MAX: usize = 1024;
const HANDSHAKES_UNPROVEN: usize = 64;
/// Timeout of a handshake, which holds one of [`HANDSHAKES_MAX`] permits.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Time between asking a peer to leave and closing its connection.
const LEAVING: Duration = Duration::from_secs(1);
/// Interval of keep-alives on an idle connection.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

type Connection = server::Connection<QuicConnection, Bytes>;
type Resolver = server::RequestResolver<QuicConnection, Bytes>;
type Sending = server::RequestStream<SendStream, Bytes>;

/// UDP socket for QUIC connections.
#[derive(Debug)]
pub struct QuicListener {
    endpoint: Endpoint,
}

impl QuicListener {
    /// Listens on `addr` with `certificate`; port 0 takes a free port.
    pub fn bind(
        addr: SocketAddr,
        certificate: &Arc<ReloadingCertificate>,
        limits: ServerLimits,
    ) -> Result<QuicListener, TransportError> {
        let crypto = certificate.server_config(&[b"h3"]).and_then(|tls| {
            let made: Result<QuicServerConfig, NoInitialCipherSuite> = Arc::new(tls).try_into();
            made.map_err(|error| CertificateError::Pair(rustls::Error::General(error.to_string())))
        })?;
        let mut config = ServerConfig::with_crypto(Arc::new(crypto));
        config.transport_config(Arc::new(transport(limits)));
        let refused = |source| TransportError::Bind { addr, source };
        let socket = UdpSocket::bind(addr).map_err(refused)?;
        for (what, outcome) in [
            ("receive", rustix::net::sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES)),
            ("send", rustix::net::sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES)),
        ] {
            if let Err(error) = outcome {
                tracing::debug!(%error, what, "the UDP socket keeps its buffer");
            }
        }
        let runtime = Arc::new(quinn::TokioRuntime);
        let mut sizes = EndpointConfig::default();
        sizes.max_udp_payload_size(DATAGRAM_BYTES).expect("at least 1200");
        let endpoint = Endpoint::new(sizes, Some(config), socket, runtime);
        Ok(QuicListener { endpoint: endpoint.map_err(refused)? })
    }

    /// Returns the bound address.
    pub fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.endpoint.local_addr()
    }
}

fn transport(limits: ServerLimits) -> TransportConfig {
    let idle = u32::try_from(limits.idle.as_millis()).unwrap_or(u32::MAX);
    let mut datagrams = MtuDiscoveryConfig::default();
    datagrams.upper_bound(DATAGRAM_BYTES);
    let mut transport = TransportConfig::default();
    transport
        .mtu_discovery_config(Some(datagrams))
        .max_concurrent_bidi_streams(limits.streams_max.into())
        // Control, encoder, decoder, and room for unknown stream types (RFC 9114 6.2.3).
        .max_concurrent_uni_streams(8_u32.into())
        .stream_receive_window(STREAM_WINDOW_BYTES.into())
        .receive_window(CONNECTION_WINDOW_BYTES.into())
        .send_window(SEND_WINDOW_BYTES)
        .max_idle_timeout(Some(VarInt::from_u32(idle).into()))
        .keep_alive_interval(Some(KEEP_ALIVE.min(limits.idle / 3)))
        .datagram_receive_buffer_size(None)
        .congestion_controller_factory(Arc::new(LossTolerantCubicConfig::default()));
    transport
}

/// Serves `site` on `listener` until stopped, then lets open requests finish until cut. Returns the number of
/// connections that were closed then.
pub async fn serve_quic(
    listener: QuicListener,
    site: ServiceConfig,
    limiter: Arc<ConnectionLimiter>,
    ends: ShutdownSignals,
) -> usize {
    let endpoint = listener.endpoint;
    let cut = CancellationToken::new();
    let connections = TaskTracker::new();
    let handshakes = Arc::new(Semaphore::new(HANDSHAKES_MAX));
    while let Some(Some(incoming)) = ends.stop.run_until_cancelled(endpoint.accept()).await {
        let Ok(permit) = Arc::clone(&handshakes).try_acquire_owned() else {
            incoming.ignore();
            continue;
        };
        let under_way = HANDSHAKES_MAX - handshakes.available_permits();
        if under_way > HANDSHAKES_UNPROVEN && incoming.may_retry() {
            if let Err(error) = incoming.retry() {
                tracing::debug!(%error, "a peer cannot prove its address");
            }
            continue;
        }
        let (site, limiter, stop, cut) =
            (site.clone(), Arc::clone(&limiter), ends.stop.clone(), cut.clone());
        connections.spawn(async move {
            let Some(connection) = shake_hands(incoming).await else { return };
            drop(permit);
            let conversation = serve_connection(connection.clone(), site, limiter, stop);
            cut.run_until_cancelled(conversation).await;
            connection.close(code(Code::H3_NO_ERROR), b"");
        });
    }
    let left = drain(&connections, &ends.cut, &cut).await;
    // The closes are sent once the endpoint is idle; a vanished peer acknowledges none.
    if timeout(LEAVING, endpoint.wait_idle()).await.is_err() {
        tracing::debug!("some peers did not confirm the end of their connections");
    }
    left
}

async fn shake_hands(incoming: Incoming) -> Option<quinn::Connection> {
    let shaken = timeout(HANDSHAKE, async { incoming.accept()?.await }).await;
    let shaken = shaken.inspect_err(|_| tracing::debug!("a QUIC handshake took too long")).ok()?;
    shaken.inspect_err(|error| tracing::debug!(%error, "QUIC handshake failed")).ok()
}

/// Serves the requests of one connection, whose peer has proven its address.
async fn serve_connection(
    quic: quinn::Connection,
    site: ServiceConfig,
    limiter: Arc<ConnectionLimiter>,
    stop: CancellationToken,
) {
    let Some(place) = limiter.try_acquire(quic.remote_address().ip()) else {
        quic.close(code(Code::H3_EXCESSIVE_LOAD), b"too many connections");
        return;
    };
    let limits = site.limits;
    let (transport, newest) = QuicConnection::new(quic.clone(), 2 * limits.header_bytes_max);
    let mut builder = server::builder();
    // Room for a head over the limit, which `handle_request` then refuses with the site's headers.
    builder.max_field_section_size(2 * limits.header_bytes_max as u64).send_grease(false);
    let begun = builder.build(transport).await;
    let begun = begun.inspect_err(|error| tracing::debug!(%error, "HTTP/3 did not begin"));
    let Ok(mut h3): Result<Connection, _> = begun else { return };
    let requests = TaskTracker::new();
    let mut look = tokio::time::interval(limits.idle / 2);
    let mut leaving = false;
    loop {
        tokio::select! {
            accepted = h3.accept() => {
                let accepted = accepted
                    .inspect_err(|error| tracing::debug!(%error, "an HTTP/3 connection ended"));
                let Ok(Some(resolver)) = accepted else { break };
                let Some(accepted) = newest.take() else { break };
                let state = Arc::clone(&place.state);
                requests.spawn(exchange(resolver, accepted, site.clone(), state));
            }
            () = stop.cancelled(), if !leaving => {
                leaving = true;
                requests.close();
                if let Err(error) = h3.shutdown(0).await {
                    tracing::debug!(%error, "a peer cannot be told to leave");
                    break;
                }
            }
            () = requests.wait(), if leaving => {
                // The last bytes are on their way; the peer closes when it has received them.
                if timeout(LEAVING, quic.closed()).await.is_err() {
                    tracing::debug!("a peer did not leave by itself");
                }
                break;
            }
            () = place.state.leave.cancelled() => break,
            _ = look.tick() => {
                if place.state.stalled().max(place.state.unused()) > 2 * limits.idle {
                    tracing::debug!("closing an idle or stalled QUIC connection");
                    break;
                }
            }
        }
    }
    requests.close();
    // The peer is gone or being disconnected; its requests still end by themselves.
    drop(h3);
    requests.wait().await;
}

/// Serves one request until its response is sent or the peer gives it up.
async fn exchange(
    resolver: Resolver,
    accepted: AcceptedStream,
    site: ServiceConfig,
    state: Arc<ConnectionState>,
) {
    let AcceptedStream { held, given_up } = accepted;
    // Boxed, because the task that holds the large future is moved before it starts.
    let respond = Box::pin(respond(resolver, held, site, state));
    tokio::select! {
        () = respond => {}
        () = given_up => tracing::debug!("a peer has given up a request"),
    }
}

async fn respond(
    resolver: Resolver,
    held: Arc<BufferedBytes>,
    site: ServiceConfig,
    state: Arc<ConnectionState>,
) {
    let limits = site.limits;
    let (request, mut stream) = match timeout(limits.header, resolver.resolve_request()).await {
        Ok(Ok(resolved)) => resolved,
        Ok(Err(error)) => return tracing::debug!(%error, "no request came of a stream"),
        // Dropping the stream resets it: no response can be sent to an incomplete head.
        Err(_) => return,
    };
    let length = match message::content_length(&request) {
        Ok(length) => length,
        Err(error) => {
            tracing::debug!(%error, "a request is malformed");
            stream.stop_sending(Code::H3_MESSAGE_ERROR);
            stream.stop_stream(Code::H3_MESSAGE_ERROR);
            return;
        }
    };
    let in_flight = state.begin();
    let (sending, receiving) = stream.split();
    let body = RequestBody::new(receiving, Arc::clone(&held), length);
    let response = handle_request(request.map(|()| body), site, in_flight).await;
    // One write and mostly one packet; a write per part would wake the connection each time.
    if response.size_hint().exact().is_some_and(|bytes| bytes <= GATHERED_BYTES as u64) {
        held.gather();
    }
    reply(sending, response, limits.idle).await;
}

/// Sends a response; each piece must be accepted within `idle`.
async fn reply(mut stream: Sending, response: Response<TrackedBody>, idle: Duration) {
    let (mut parts, body) = response.into_parts();
    // Hyper adds the date by itself for the other versions.
    let date = || httpdate::fmt_http_date(SystemTime::now()).parse().ok();
    if let (false, Some(date)) = (parts.headers.contains_key(header::DATE), date()) {
        parts.headers.insert(header::DATE, date);
    }
    let head = stream.send_response(Response::from_parts(parts, ()));
    if !matches!(timeout(idle, head).await, Ok(Ok(()))) {
        stream.stop_stream(Code::H3_REQUEST_CANCELLED);
        return;
    }
    let mut body = Parts { body, rest: Bytes::new(), ended: false };
    loop {
        let part = match poll_fn(|cx| body.poll_next(cx)).await {
            Ok(Some(part)) => part,
            Ok(None) => break,
            Err(error) => {
                tracing::debug!(%error, "an answer broke off");
                stream.stop_stream(Code::H3_INTERNAL_ERROR);
                return;
            }
        };
        if !matches!(timeout(idle, stream.send_data(part)).await, Ok(Ok(()))) {
            stream.stop_stream(Code::H3_REQUEST_CANCELLED);
            return;
        }
    }
    if !matches!(timeout(idle, stream.finish()).await, Ok(Ok(()))) {
        stream.stop_stream(Code::H3_REQUEST_CANCELLED);
    }
}

/// Response body in parts of useful size that the slowest permitted peer accepts in time.
struct Parts {
    body: TrackedBody,
    rest: Bytes,
    ended: bool,
}

impl Parts {
    /// Returns the next bytes: small parts merged while available, large ones split.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<Bytes>, axum::Error>> {
        let mut gathered = BytesMut::new();
        while self.rest.is_empty() && !self.ended && gathered.len() < SMALL_BYTES {
            match Pin::new(&mut self.body).poll_frame(cx) {
                Poll::Pending if gathered.is_empty() => return Poll::Pending,
                Poll::Pending => break,
                Poll::Ready(None) => self.ended = true,
                Poll::Ready(Some(frame)) => match frame?.into_data() {
                    Ok(data) if data.len() >= SMALL_BYTES => self.rest = data,
                    Ok(data) => gathered.extend_from_slice(&data),
                    // The router sends no trailers.
                    Err(_) => {}
                },
            }
        }
        if !gathered.is_empty() {
            return Poll::Ready(Ok(Some(gathered.freeze())));
        }
        let piece = self.rest.split_to(self.rest.len().min(LEAST_BYTES));
        Poll::Ready(Ok((!piece.is_empty()).then_some(piece)))
    }
}

#[cfg(test)]
mod tests;
