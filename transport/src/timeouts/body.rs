//! A request body that gives up on a peer that sends too little of it.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::connection_state::{ConnectionActivity, PeerStallGuard};

/// Bytes of bodies that a connection brings, or an answer's that its peer takes, in each limit of
/// silence at least: with 30 seconds, 17 kilobits a second.
pub(crate) const LEAST_BYTES: usize = 64 << 10;

/// Too little of the body came for as long as the limit allows.
#[derive(Debug, thiserror::Error)]
#[error("request body too slow: fewer than {LEAST_BYTES} bytes in {0:?}")]
struct BodyTimeout(Duration);

/// Set once a request's body was given up on.
pub(crate) type BodyExpired = Arc<AtomicBool>;

/// Least pace of a body: its connection must bring [`LEAST_BYTES`] of bodies in `idle` of waiting,
/// or this one its end.
#[derive(Debug)]
struct Pace {
    idle: Duration,
    /// Time that may still be waited until the connection has `enough`.
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

    /// Ends the wait, as the bytes came or it took long enough; true where more may be waited for.
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
pub(crate) struct TimeoutBody<B> {
    body: B,
    pace: Pace,
    clock: Option<Pin<Box<Sleep>>>,
    expired: BodyExpired,
    activity: Arc<ConnectionActivity>,
    debt: PeerStallGuard,
}

impl<B> TimeoutBody<B> {
    pub(crate) fn new(
        body: B,
        idle: Duration,
        expired: BodyExpired,
        activity: &Arc<ConnectionActivity>,
    ) -> TimeoutBody<B> {
        let (activity, debt) = (Arc::clone(activity), PeerStallGuard::new(activity));
        let pace = Pace::new(idle, activity.receive(0));
        TimeoutBody { body, pace, clock: None, expired, activity, debt }
    }
}

impl<B> Body for TimeoutBody<B>
where
    B: Body<Data = Bytes, Error: Into<axum::BoxError>> + Unpin,
{
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let TimeoutBody { body, pace, clock, expired, activity, debt } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            pace.note(activity.receive(data.map_or(0, Bytes::len)), Instant::now());
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
            if !pace.note(activity.receive(0), Instant::now().max(due)) {
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
            // Time of the handler is no delay of the peer.
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
