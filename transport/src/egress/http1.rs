//! HTTP/1.1 connection to another host; dropping it closes it.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt, Full};
use hyper::{
    body::Incoming,
    client::conn::http1::{self, SendRequest},
};
use hyper_util::rt::TokioIo;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::task::AbortOnDropHandle;

use super::{CheckedStream, EgressError, RequestUrl, TimeoutPhase};

/// Timeout of the start of a response.
pub const FIRST_BYTE: Duration = Duration::from_secs(10);
/// Longest pause within a body.
pub const IDLE: Duration = Duration::from_secs(10);
/// Timeout of the start of a reply to a message of the server, and of the rest of the reply.
const REPLY: Duration = Duration::from_secs(30);
/// Read buffer size, which is also the most that a connection buffers.
const READ_BYTES: usize = 64 << 10;

pub(super) struct Http1Connection {
    sender: SendRequest<Full<Bytes>>,
    /// Aborted, as a peer that neither reads nor writes would keep the task alive for ever.
    _driver: AbortOnDropHandle<()>,
}

impl Http1Connection {
    pub(super) async fn open(
        target: &RequestUrl,
        stream: CheckedStream,
    ) -> Result<Http1Connection, EgressError> {
        let opened = http1::Builder::new()
            .read_buf_exact_size(Some(READ_BYTES))
            .handshake(TokioIo::new(stream))
            .await;
        let (sender, connection) = opened.map_err(|error| failure(target, &error))?;
        let driver = tokio::spawn(async move {
            // The waiter for the response or the body receives the error.
            connection.await.ok();
        });
        Ok(Http1Connection { sender, _driver: AbortOnDropHandle::new(driver) })
    }

    /// Returns true if another request can be sent.
    pub(super) async fn is_ready(&mut self) -> bool {
        matches!(timeout(Duration::ZERO, self.sender.ready()).await, Ok(Ok(())))
    }

    /// Sends `request` with the path of `target` as its URI; returns the response head, which has to begin
    /// within `limit`.
    pub(super) async fn send(
        &mut self,
        target: &RequestUrl,
        mut request: Request<Bytes>,
        limit: Duration,
    ) -> Result<Response<Incoming>, EgressError> {
        let refused = |_| EgressError::Malformed("it makes no request");
        *request.uri_mut() = target.path().parse().map_err(refused)?;
        let host = HeaderValue::from_str(target.authority())
            .map_err(|_| EgressError::Malformed("its host is no header value"))?;
        request.headers_mut().insert(header::HOST, host);
        let sent = self.sender.send_request(request.map(Full::new));
        match timeout(limit, sent).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) if error.is_parse() => Err(failure(target, &error)),
            Ok(Err(_)) => Err(EgressError::Unanswered { host: target.host().to_owned() }),
            Err(_) => Err(EgressError::Timeout { wait: TimeoutPhase::FirstByte, after: limit }),
        }
    }
}

pub(super) fn failure(target: &RequestUrl, error: &hyper::Error) -> EgressError {
    let host = target.host().to_owned();
    if error.is_parse() {
        EgressError::Answer { host, problem: "does not speak HTTP" }
    } else {
        EgressError::Cut { host }
    }
}

/// Sends one request and reads its whole response.
pub(super) async fn exchange(
    target: &RequestUrl,
    stream: CheckedStream,
    request: Request<Bytes>,
    reply_max: usize,
) -> Result<Response<Bytes>, EgressError> {
    let mut connection = Http1Connection::open(target, stream).await?;
    let sent = connection.send(target, request, REPLY).await?;
    let (parts, mut body) = sent.into_parts();
    let mut reply = BytesMut::new();
    let end = Instant::now() + REPLY;
    while reply.len() < reply_max {
        let frame = timeout_at(end.min(Instant::now() + IDLE), body.frame()).await;
        let idle = EgressError::Timeout { wait: TimeoutPhase::Idle, after: IDLE };
        let Some(frame) = frame.map_err(|_| idle)? else { break };
        let frame = frame.map_err(|error| failure(target, &error))?;
        if let Some(data) = frame.data_ref() {
            reply.extend_from_slice(&data[..data.len().min(reply_max - reply.len())]);
        }
    }
    Ok(Response::from_parts(parts, reply.freeze()))
}
