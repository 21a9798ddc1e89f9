//! Accepts connections, serves the router on them, and drains.

use std::{
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use axum::{Router, body::Body};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, StatusCode, Version, header};
use http_body::{Body as HttpBody, Frame, SizeHint};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::ServiceExt;

use crate::{
    activity::{Debt, InFlight},
    crowd::{Crowd, Place},
    idle::{Expired, IdleBody, IdleStream},
    refusal::{self, Headers},
};

/// Most headers of a request, where hyper alone has 100: their bytes are what counts.
const HEADERS_MAX: usize = 1024;

/// Bytes of one request body on HTTP/2 that may come before somebody reads them.
const WINDOW_BYTES: u32 = 512 << 10;
/// Bytes of one answer on HTTP/2 that may wait for its peer.
const SEND_BYTES: usize = 64 << 10;

/// How long a refused connection is told so, and how many bytes of a request are read meanwhile.
const REFUSING: Duration = Duration::from_millis(500);
const REFUSED_BYTES: u64 = 64 << 10;

/// What is served.
#[derive(Clone, Debug)]
pub struct Site {
    /// Answers requests.
    pub router: Router,
    /// The headers of the answers that the router does not give.
    pub refusal_headers: Headers,
}

/// When serving ends.
#[derive(Clone, Debug, Default)]
pub struct Ends {
    /// Accepts no further connection, and lets those that are open finish.
    pub stop: CancellationToken,
    /// After `stop`, closes those that have not finished.
    pub cut: CancellationToken,
}

/// How much of the server one peer may take, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Request line and headers together; past it 431.
    pub header_bytes_max: usize,
    /// Longest silence of a peer that owes bytes; past it 408 and close.
    pub idle: Duration,
    /// Requests at once on one HTTP/2 connection.
    pub streams_max: u32,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { header_bytes_max: 64 << 10, idle: Duration::from_secs(30), streams_max: 128 }
    }
}

/// How a drain ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drained {
    /// Connections that were still open at the deadline and were cut.
    pub cut: usize,
}

/// Serves `site` on `listener` to `crowd` until stopped, then lets open requests finish until cut.
pub async fn serve(
    listener: TcpListener,
    site: Site,
    limits: Limits,
    crowd: Arc<Crowd>,
    ends: Ends,
) -> Drained {
    let stop = ends.stop;
    // Not `ends.cut` itself: those that are left are counted before they are closed.
    let cut = CancellationToken::new();
    let connections = TaskTracker::new();
    while let Some((stream, place)) = accept(&listener, &crowd, &site, &stop).await {
        let leave = place.leave.clone();
        // Boxed: each of the layers around it would hold its kilobytes twice.
        let connection = Box::pin(connection(stream, site.clone(), limits, stop.clone(), place));
        let cut = cut.clone();
        connections.spawn(async move {
            cut.run_until_cancelled(leave.run_until_cancelled(connection)).await;
        });
    }
    drop(listener);
    connections.close();
    if ends.cut.run_until_cancelled(connections.wait()).await.is_some() {
        return Drained { cut: 0 };
    }
    let left = connections.len();
    cut.cancel();
    connections.wait().await;
    Drained { cut: left }
}

/// The next connection with the place it takes; `None` once stopped.
async fn accept(
    listener: &TcpListener,
    crowd: &Arc<Crowd>,
    site: &Site,
    stop: &CancellationToken,
) -> Option<(TcpStream, Place)> {
    let next = async {
        loop {
            match listener.accept().await {
                Ok((stream, peer)) => match crowd.enter(peer.ip()) {
                    Some(place) => return (stream, place),
                    None => refuse(stream, crowd, site.refusal_headers),
                },
                Err(error) if is_peer_fault(&error) => {}
                Err(error) => {
                    let made_room = crowd.give_way();
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
fn refuse(mut stream: TcpStream, crowd: &Crowd, headers: Headers) {
    let Ok(permit) = Arc::clone(&crowd.refusing).try_acquire_owned() else { return };
    let status = StatusCode::SERVICE_UNAVAILABLE;
    let answer = refusal::bytes(status, "too many connections", headers);
    let tell = async move {
        stream.write_all(&answer).await?;
        stream.shutdown().await?;
        // Its request must be read, or the close takes the answer back.
        tokio::io::copy(&mut stream.take(REFUSED_BYTES), &mut tokio::io::sink()).await
    };
    tokio::spawn(async move {
        let told = tokio::time::timeout(REFUSING, tell).await;
        tracing::debug!(told = matches!(told, Ok(Ok(_))), "no room for a connection");
        drop(permit);
    });
}

fn is_peer_fault(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset)
}

async fn connection(
    stream: TcpStream,
    site: Site,
    limits: Limits,
    stop: CancellationToken,
    place: Place,
) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "cannot set TCP_NODELAY");
    }
    let activity = Arc::clone(&place.activity);
    // Also cancelled by the socket, of a peer that keeps it open for nothing.
    let retire = stop.child_token();
    let io = TokioIo::new(IdleStream::new(
        stream,
        limits.idle,
        Arc::clone(&activity),
        retire.clone(),
        site.refusal_headers,
    ));
    let service = service_fn(move |request| {
        let in_flight = activity.begin();
        // Boxed: an idle connection, or one that streams, then has no room for it.
        Box::pin(answer(request, site.clone(), limits, in_flight))
    });
    let builder = builder(&limits);
    let mut connection = std::pin::pin!(builder.serve_connection(io, service));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = retire.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(%error, "connection ended early");
    }
}

fn builder(limits: &Limits) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        // `IdleStream` times the head, and answers 408 where hyper only closes.
        .header_read_timeout(None)
        // Room for a head one byte past the limit, which `answer` then refuses.
        .max_headers(HEADERS_MAX)
        .max_buf_size(limits.header_bytes_max + 4096);
    builder
        .http2()
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

async fn answer(
    request: Request<Incoming>,
    site: Site,
    limits: Limits,
    in_flight: InFlight,
) -> Result<Response<CountedBody>, Infallible> {
    let too_large = head_bytes(&request) > limits.header_bytes_max;
    let mut response = if too_large || request.headers().len() > HEADERS_MAX {
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        refusal::response(status, "request headers too large", site.refusal_headers)
    } else {
        let close = request.version() < Version::HTTP_2;
        let expired: Expired = Arc::new(AtomicBool::new(false));
        let debt = Debt::new(in_flight.activity());
        let body = |body| Body::new(IdleBody::new(body, limits.idle, Arc::clone(&expired), debt));
        let response = match site.router.oneshot(request.map(body)).await {
            Ok(response) => response,
            Err(never) => match never {},
        };
        if expired.load(Ordering::Relaxed) {
            timed_out(response, close, site.refusal_headers)
        } else {
            response
        }
    };
    let body = std::mem::take(response.body_mut());
    let mut debt = Debt::new(in_flight.activity());
    debt.set(true);
    Ok(response.map(|_| CountedBody { body, debt, _in_flight: in_flight }))
}

/// The size of the head as HTTP/1.1 writes it.
fn head_bytes(request: &Request<Incoming>) -> usize {
    let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
    let line = request.method().as_str().len() + target + " HTTP/1.1\r\n\r\n".len() + 1;
    let field = |(name, value): (&http::HeaderName, &HeaderValue)| {
        name.as_str().len() + value.len() + ": \r\n".len()
    };
    line + request.headers().iter().map(field).sum::<usize>()
}

/// Whatever the router made of the broken-off body, the peer is told why; its headers stay.
fn timed_out(response: Response<Body>, close: bool, headers: Headers) -> Response<Body> {
    let mut told = refusal::response(StatusCode::REQUEST_TIMEOUT, "request timed out", headers);
    let (mut parts, _) = response.into_parts();
    parts.headers.remove(header::CONTENT_LENGTH);
    // The router's headers stand, its id above all; only the type is of the new text.
    if let Some(plain) = told.headers_mut().remove(header::CONTENT_TYPE) {
        parts.headers.insert(header::CONTENT_TYPE, plain);
    }
    if close {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    *told.headers_mut() = parts.headers;
    told
}

/// A response body that keeps its request counted until the last byte is handed over.
struct CountedBody {
    body: Body,
    /// Set from each part that is handed over until the next is asked for.
    debt: Debt,
    _in_flight: InFlight,
}

impl HttpBody for CountedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.debt.set(matches!(frame, Poll::Ready(Some(_))));
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests;
