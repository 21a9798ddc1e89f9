//! Timeouts of silent peers: a socket and a request body that fail if the peer sends too little, and refusal
//! of ambiguous heads. The socket tells the version of HTTP, too.
//!
//! The socket's clock runs only while no request is in progress, so that a long poll may wait; the body's
//! clock runs only while the handler waits for bytes. Bytes that complete no request, and responses that are
//! not read, count as silence after twice the time.

mod body;

use std::{
    io,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::StatusCode;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf},
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    ServerLimits,
    connection_state::ConnectionState,
    error_response::{self, ExtraHeaders},
    heads::{Ambiguous, Heads, PREFACE},
};

#[cfg(feature = "http3")]
pub(crate) use body::LEAST_BYTES;
pub(crate) use body::{BodyExpired, TimeoutBody};

/// Most bytes read after a refused head.
const REFUSED_BYTES: usize = 64 << 10;

/// Socket that fails with `TimedOut` if the peer neither sends nor reads for too long, and refuses a head
/// that is too slow or has no certain end.
pub(crate) struct TimeoutStream<S> {
    stream: S,
    limits: ServerLimits,
    /// Deadline of the first head, if a handshake came before it.
    first_header: Option<Instant>,
    state: Arc<ConnectionState>,
    heads: Heads,
    /// First bytes, by which the version was told, and those of them that are still to be returned.
    first: [u8; PREFACE.len()],
    again: Range<usize>,
    /// True once an ambiguous head has arrived; that head must not be served.
    is_ambiguous: bool,
    /// True once a refusal was told; reads after it tell none, as the first bytes are returned without the
    /// error of the read behind them.
    is_refused: bool,
    /// Time of the last byte, or of the last check with a request in progress.
    heard: Instant,
    clock: Pin<Box<Sleep>>,
    stuck: Option<Pin<Box<Sleep>>>,
    /// Cancelled if the peer sends bytes without any request.
    retire: CancellationToken,
    refusal_headers: ExtraHeaders,
    refusal: Option<Refusal>,
}

/// Replacement of a refusal written by hyper by one with the site's headers.
struct Refusal {
    /// Bytes of the replacement left to send.
    rest: Bytes,
    /// Length of hyper's refusal, reported as written.
    replaces: usize,
}

impl<S> TimeoutStream<S> {
    pub(crate) fn new(
        stream: S,
        limits: ServerLimits,
        first_header: Option<Instant>,
        state: Arc<ConnectionState>,
        retire: CancellationToken,
        refusal_headers: ExtraHeaders,
    ) -> TimeoutStream<S> {
        let heard = Instant::now();
        TimeoutStream {
            stream,
            limits,
            first_header,
            state,
            heads: Heads::new(),
            first: [0; PREFACE.len()],
            again: 0..0,
            is_ambiguous: false,
            is_refused: false,
            heard,
            clock: Box::pin(sleep_until(heard + limits.idle)),
            stuck: None,
            retire,
            refusal_headers,
            refusal: None,
        }
    }

    /// Returns the deadline of the incomplete head or of the first one.
    fn head_due(&self) -> Option<Instant> {
        let first = self.first_header.filter(|_| self.state.started() == 0);
        let free = Instant::from_std(self.state.changed());
        let waits = self.heads.is_http2() || !self.state.is_busy();
        let begun = self.heads.due(free, self.limits.header).filter(|_| waits);
        first.into_iter().chain(begun).min()
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for TimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.again.is_empty() {
            let count = buf.remaining().min(self.again.len());
            let start = self.again.start;
            buf.put_slice(&self.first[start..start + count]);
            self.again.start += count;
            if buf.remaining() > 0 {
                // An error of this read occurs again on the next one.
                let _more = self.poll_read(cx, buf);
            }
            return Poll::Ready(Ok(()));
        }
        let idle = self.limits.idle;
        if self.state.stalled() > 2 * idle {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        if self.state.unused() > 2 * idle {
            if !self.heads.is_http2() {
                return Poll::Ready(Err(self.time_out(cx)));
            }
            self.retire.cancel();
        }
        if self.is_ambiguous {
            return self.poll_refused(cx);
        }
        let before = buf.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buf);
        let now = Instant::now();
        let came = &buf.filled()[before..];
        if came.is_empty() && read.is_ready() {
            return read;
        }
        if let Err(Ambiguous { before: whole }) = self.heads.read(came, now) {
            // The requests before the head are answered first.
            buf.set_filled(before + whole);
            self.is_ambiguous = true;
            return if whole > 0 { Poll::Ready(Ok(())) } else { self.poll_refused(cx) };
        }
        let head_due = self.head_due();
        if head_due.is_some_and(|due| due <= now) {
            return Poll::Ready(Err(self.time_out(cx)));
        }
        if read.is_ready() || self.state.is_busy() {
            self.heard = now;
        }
        if read.is_ready() {
            return read;
        }
        let due = head_due.into_iter().fold(self.heard + idle, Instant::min);
        if self.clock.deadline() != due {
            self.clock.as_mut().reset(due);
        }
        ready!(self.clock.as_mut().poll(cx));
        Poll::Ready(Err(self.time_out(cx)))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TimeoutStream<S> {
    /// Reads until the version is known, at most the length of the preface; true for HTTP/2.
    ///
    /// The bytes are returned again with those that have come since, in one read: a head that arrives in two
    /// pieces would make the reader grow its buffer for the rest of the connection.
    pub(crate) async fn sniff_http2(mut self) -> io::Result<(bool, TimeoutStream<S>)> {
        let (mut first, mut read) = ([0; PREFACE.len()], 0);
        while self.heads.is_unclear() {
            match self.read(&mut first[read..]).await? {
                0 => break,
                more => read += more,
            }
        }
        (self.first, self.again) = (first, 0..read);
        Ok((self.heads.is_http2(), self))
    }

    /// Refuses the ambiguous head once the requests before it are answered.
    fn poll_refused(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.state.is_busy() {
            // Hyper reads again after the response.
            return Poll::Pending;
        }
        let text = "a request says in one way where its body ends: content-length, or \
                    transfer-encoding: chunked";
        self.tell(cx, StatusCode::BAD_REQUEST, text);
        // Closing with unread bytes would reset the connection and discard the response.
        let (mut rest, mut left) = ([0; 4096], REFUSED_BYTES);
        while left > 0 {
            let mut rest = ReadBuf::new(&mut rest);
            match Pin::new(&mut self.stream).poll_read(cx, &mut rest) {
                Poll::Ready(Ok(())) if !rest.filled().is_empty() => {
                    left = left.saturating_sub(rest.filled().len());
                }
                _ => break,
            }
        }
        Poll::Ready(Err(io::ErrorKind::InvalidData.into()))
    }
}

impl<S: AsyncWrite + Unpin> TimeoutStream<S> {
    /// Answers an incomplete request with 408; returns the error for the socket.
    fn time_out(&mut self, cx: &mut Context<'_>) -> io::Error {
        if self.heads.is_within() && !self.heads.is_http2() && !self.state.is_busy() {
            self.tell(cx, StatusCode::REQUEST_TIMEOUT, "request timed out");
        }
        io::ErrorKind::TimedOut.into()
    }

    /// Sends a refusal for a head that hyper never receives.
    fn tell(&mut self, cx: &mut Context<'_>, status: StatusCode, text: &str) {
        if std::mem::replace(&mut self.is_refused, true) {
            return;
        }
        // If the send buffer is full, only the refusal is lost; the connection closes anyway.
        let answer = error_response::bytes(status, text, self.refusal_headers);
        let told = Pin::new(&mut self.stream).poll_write(cx, &answer);
        tracing::debug!(told = told.is_ready(), %status, "gave up on a request head");
    }

    fn poll_refusal(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let TimeoutStream { stream, refusal, .. } = self;
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
        let idle = self.limits.idle;
        ready!(self.stuck.get_or_insert_with(|| Box::pin(sleep(idle))).as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimeoutStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.refusal.is_none() && !self.heads.is_http2() {
            self.refusal = error_response::bare(buf).map(|status| {
                let text = status.canonical_reason().unwrap_or_default();
                let rest = error_response::bytes(status, text, self.refusal_headers).into();
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

#[cfg(test)]
mod tests;
