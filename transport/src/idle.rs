//! Limits on silence: a socket and a request body that give up on a peer that sends too little.
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
    time::{Instant, Sleep, sleep, sleep_until},
};
use tokio_util::sync::CancellationToken;

use crate::{
    activity::{Activity, Debt, Reading},
    refusal::{self, Headers},
};

/// Bytes of bodies that a connection brings, or an answer's that its peer takes, in each limit of
/// silence at least: with 30 seconds, 17 kilobits a second.
pub(crate) const LEAST_BYTES: usize = 64 << 10;

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
        // What comes of a body after its answer begins no request.
        if !self.activity.is_busy() && !self.activity.is_reading() {
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

/// Too little of the body came for as long as the limit allows.
#[derive(Debug, thiserror::Error)]
#[error("fewer than {LEAST_BYTES} bytes of the request body received in {0:?}")]
struct BodyTimeout(Duration);

/// Set once a request's body was given up on.
pub(crate) type Expired = Arc<AtomicBool>;

/// How long a body is waited for: its connection must bring [`LEAST_BYTES`] of bodies in `idle` of
/// waiting, or this one its end.
#[derive(Debug)]
struct Pace {
    idle: Duration,
    /// What may still be waited until the connection has `enough`.
    left: Duration,
    enough: u64,
    waits_since: Option<Instant>,
}

impl Pace {
    /// `received` bytes have come of all bodies of the connection.
    fn new(idle: Duration, received: u64) -> Pace {
        Pace { idle, left: idle, enough: received + LEAST_BYTES as u64, waits_since: None }
    }

    /// Somebody waits for more: when to give up, however often this is said.
    fn wait(&mut self, now: Instant) -> Instant {
        *self.waits_since.get_or_insert(now) + self.left
    }

    /// What was waited for is there, or was waited for long enough; true where it may be waited on.
    fn note(&mut self, received: u64, now: Instant) -> bool {
        if let Some(since) = self.waits_since.take() {
            self.left = self.left.saturating_sub(now.duration_since(since));
        }
        if received >= self.enough {
            *self = Pace::new(self.idle, received);
        }
        !self.left.is_zero()
    }
}

/// A request body that ends in an error when it comes slower than its [`Pace`].
pub(crate) struct IdleBody<B> {
    body: B,
    pace: Pace,
    clock: Option<Pin<Box<Sleep>>>,
    expired: Expired,
    reading: Reading,
    debt: Debt,
}

impl<B> IdleBody<B> {
    pub(crate) fn new(
        body: B,
        idle: Duration,
        expired: Expired,
        activity: &Arc<Activity>,
    ) -> IdleBody<B> {
        let (reading, debt) = (Reading::new(activity), Debt::new(activity));
        let pace = Pace::new(idle, reading.receive(0));
        IdleBody { body, pace, clock: None, expired, reading, debt }
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
        let IdleBody { body, pace, clock, expired, reading, debt } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            pace.note(reading.receive(data.map_or(0, Bytes::len)), Instant::now());
            debt.set(false);
            return Poll::Ready(frame.map(|frame| frame.map_err(axum::Error::new)));
        }
        debt.set(true);
        loop {
            let due = pace.wait(Instant::now());
            let clock = clock.get_or_insert_with(|| Box::pin(sleep_until(due)));
            if clock.deadline() != due {
                clock.as_mut().reset(due);
            }
            ready!(clock.as_mut().poll(cx));
            if !pace.note(reading.receive(0), Instant::now().max(due)) {
                break;
            }
        }
        expired.store(true, Ordering::Relaxed);
        Poll::Ready(Some(Err(axum::Error::new(BodyTimeout(pace.idle)))))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A step of a body: seconds that it is waited for, and the bytes that then have come of it, and of
    /// others of its connection.
    type Step = (u64, u64, u64);

    /// The step at which a body is given up that is waited for as long as each step says.
    fn given_up(idle: u64, steps: &[Step]) -> Option<usize> {
        let (mut now, mut received) = (Instant::now(), 7);
        let mut pace = Pace::new(Duration::from_secs(idle), received);
        steps.iter().position(|&(wait, own, others)| {
            let due = pace.wait(now);
            now += Duration::from_secs(wait) / 2;
            assert_eq!(pace.wait(now), due, "asking again gives no more time");
            now += Duration::from_secs(wait) / 2;
            received += others;
            let is_over = now > due && !pace.note(received, now);
            received += own;
            pace.note(received, now);
            // What is done with it is nobody's delay.
            now += Duration::from_secs(1000);
            is_over
        })
    }

    #[test]
    fn a_body_comes_at_the_least_rate() {
        let byte_a_second = [(1, 1, 0); 40];
        let least = LEAST_BYTES as u64;
        let half = least / 2;
        for (case, steps, expected) in [
            ("silence", &[(31, 1, 0)][..], Some(0)),
            ("at the limit", &[(30, 1, 0)], None),
            ("a byte a second", &byte_a_second, Some(30)),
            ("enough, and enough again", &[(30, least, 0), (30, least, 0)], None),
            ("enough in parts", &[(15, half, 0), (15, half, 0), (30, 1, 0)], None),
            ("too little in parts", &[(15, half - 1, 0), (15, half, 0), (1, 1, 0)], Some(2)),
            ("more than enough is not saved up", &[(1, 9 * least, 0), (31, 1, 0)], Some(1)),
            ("its connection brings enough", &[(31, 1, least), (31, 1, least)], None),
            ("and no longer", &[(31, 1, least), (31, 1, half)], Some(1)),
        ] {
            assert_eq!(given_up(30, steps), expected, "{case}");
        }
    }
}
