//! Limits on silence: a socket and a request body that give up on a peer that sends nothing.
//!
//! The socket's clock runs only while no request is being answered, so that a long poll may wait;
//! the body's clock runs only while somebody waits for the next bytes. Bytes that bring no request
//! to its end, and answers that are not taken, count as silence after twice the time.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep},
};
use tokio_util::sync::CancellationToken;

use crate::{
    activity::{Activity, Debt},
    refusal::{self, Headers},
};

/// A socket that fails with `TimedOut` after `idle` without a byte from, or room at, the peer.
pub(crate) struct IdleStream<S> {
    stream: S,
    idle: Duration,
    activity: Arc<Activity>,
    silence: Pin<Box<Sleep>>,
    stuck: Option<Pin<Box<Sleep>>>,
    /// Requests begun when the last byte came that belonged to none of them.
    half_request: Option<u64>,
    /// Cancelled when the peer talks without asking for anything.
    retire: CancellationToken,
    speaks_http1: Option<bool>,
    refusal_headers: Headers,
    refusal: Option<Refusal>,
}

/// A refusal of hyper's being replaced by one with our headers.
struct Refusal {
    /// What is left to send of ours.
    rest: Bytes,
    /// Bytes of hyper's, which it believes it is sending.
    replaces: usize,
}

impl<S> IdleStream<S> {
    pub(crate) fn new(
        stream: S,
        idle: Duration,
        activity: Arc<Activity>,
        retire: CancellationToken,
        refusal_headers: Headers,
    ) -> IdleStream<S> {
        IdleStream {
            stream,
            idle,
            activity,
            silence: Box::pin(sleep(idle)),
            stuck: None,
            half_request: None,
            retire,
            speaks_http1: None,
            refusal_headers,
            refusal: None,
        }
    }

    fn received(&mut self, bytes: &[u8]) {
        self.silence.as_mut().reset(Instant::now() + self.idle);
        self.speaks_http1.get_or_insert_with(|| !bytes.starts_with(b"PRI"));
        if !self.activity.is_busy() {
            self.half_request = Some(self.activity.started());
        }
    }

    fn holds_half_a_request(&self) -> bool {
        self.speaks_http1 == Some(true) && self.half_request == Some(self.activity.started())
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for IdleStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.activity.stalled() > 2 * self.idle {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.activity.unused() > 2 * self.idle {
            if self.speaks_http1 != Some(false) {
                return Poll::Ready(Err(self.give_up(cx)));
            }
            self.retire.cancel();
        }
        let before = buf.filled().len();
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buf) {
            if buf.filled().len() > before {
                self.received(&buf.filled()[before..]);
            }
            return Poll::Ready(result);
        }
        if self.activity.is_busy() {
            let later = Instant::now() + self.idle;
            self.silence.as_mut().reset(later);
        }
        ready!(self.silence.as_mut().poll(cx));
        Poll::Ready(Err(self.give_up(cx)))
    }
}

impl<S: AsyncWrite + Unpin> IdleStream<S> {
    /// Tells the peer of half a request that it was too slow.
    fn give_up(&mut self, cx: &mut Context<'_>) -> io::Error {
        if self.holds_half_a_request() {
            // A full send buffer loses the courtesy, not the close.
            let status = StatusCode::REQUEST_TIMEOUT;
            let answer = refusal::bytes(status, "request timed out", self.refusal_headers);
            let told = Pin::new(&mut self.stream).poll_write(cx, &answer);
            tracing::debug!(told = told.is_ready(), "gave up on half a request head");
        }
        io::ErrorKind::TimedOut.into()
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let IdleStream { stream, refusal, .. } = self;
        let Some(Refusal { rest, replaces }) = refusal else { return Poll::Ready(Ok(0)) };
        while !rest.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => drop(rest.split_to(sent)),
            }
        }
        let replaced = *replaces;
        *refusal = None;
        Poll::Ready(Ok(replaced))
    }

    fn watch_writes<T>(
        &mut self,
        cx: &mut Context<'_>,
        outcome: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if outcome.is_ready() {
            self.stuck = None;
            return outcome;
        }
        let idle = self.idle;
        ready!(self.stuck.get_or_insert_with(|| Box::pin(sleep(idle))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for IdleStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.refusal.is_none() && self.speaks_http1 == Some(true) {
            self.refusal = refusal::bare(buf).map(|status| {
                let text = status.canonical_reason().unwrap_or_default();
                let rest = refusal::bytes(status, text, self.refusal_headers).into();
                Refusal { rest, replaces: buf.len() }
            });
        }
        let outcome = match self.refusal.is_some() {
            true => self.poll_refusal(cx),
            false => Pin::new(&mut self.stream).poll_write(cx, buf),
        };
        self.watch_writes(cx, outcome)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut filled = bufs.iter().filter(|buf| !buf.is_empty());
        if let (Some(only), None) = (filled.next(), filled.next()) {
            return self.poll_write(cx, only);
        }
        let outcome = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.watch_writes(cx, outcome)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let outcome = Pin::new(&mut self.stream).poll_flush(cx);
        self.watch_writes(cx, outcome)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// Nothing of the body came for as long as the limit allows.
#[derive(Debug, thiserror::Error)]
#[error("no byte of the request body received in {0:?}")]
struct BodyTimeout(Duration);

/// Set once a request's body was given up on.
pub(crate) type Expired = Arc<AtomicBool>;

/// A request body that ends in an error after `idle` without a byte.
pub(crate) struct IdleBody<B> {
    body: B,
    idle: Duration,
    silence: Option<Pin<Box<Sleep>>>,
    expired: Expired,
    debt: Debt,
}

impl<B> IdleBody<B> {
    pub(crate) fn new(body: B, idle: Duration, expired: Expired, debt: Debt) -> IdleBody<B> {
        IdleBody { body, idle, silence: None, expired, debt }
    }
}

impl<B> Body for IdleBody<B>
where
    B: Body<Data = Bytes, Error: Into<axum::BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        if let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) {
            self.silence = None;
            self.debt.set(false);
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        self.debt.set(true);
        let idle = self.idle;
        ready!(self.silence.get_or_insert_with(|| Box::pin(sleep(idle))).as_mut().poll(cx));
        self.expired.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(BodyTimeout(idle)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
