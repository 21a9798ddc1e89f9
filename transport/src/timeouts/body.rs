//! Request body that fails if the peer sends too slowly.

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

use crate::connection_state::{ConnectionState, PeerStallGuard};

/// Fewest bytes that must move per idle timeout, of the bodies that a connection sends or of a response that
/// its peer reads: 17 kbit/s at 30 s.
pub(crate) const LEAST_BYTES: usize = 64 << 10;

/// Error of a body that was too slow.
#[derive(Debug, thiserror::Error)]
#[error("request body too slow: fewer than {LEAST_BYTES} bytes in {0:?}")]
struct BodyTimeout(Duration);

/// Flag that is set once a request's body has timed out.
pub(crate) type BodyExpired = Arc<AtomicBool>;

/// Minimum rate of a body: within `idle` of waiting, [`LEAST_BYTES`] of all bodies of the connection must
/// arrive, or the end of this body.
#[derive(Debug)]
struct Pace {
    idle: Duration,
    /// Waiting time left until the connection must have received `enough`.
    left: Duration,
    enough: u64,
    waits_since: Option<Instant>,
}

impl Pace {
    /// Starts a period; `received` bytes of all bodies of the connection have arrived.
    fn new(idle: Duration, received: u64) -> Pace {
        Pace { idle, left: idle, enough: received + LEAST_BYTES as u64, waits_since: None }
    }

    /// Starts a wait unless one is running; returns the deadline.
    fn wait(&mut self, now: Instant) -> Instant {
        *self.waits_since.get_or_insert(now) + self.left
    }

    /// Ends the wait, at new bytes or at its deadline; true if waiting may go on.
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

/// Request body that fails if it is slower than its [`Pace`].
pub(crate) struct TimeoutBody<B> {
    body: B,
    pace: Pace,
    clock: Option<Pin<Box<Sleep>>>,
    expired: BodyExpired,
    debt: PeerStallGuard,
}

impl<B> TimeoutBody<B> {
    pub(crate) fn new(
        body: B,
        idle: Duration,
        expired: BodyExpired,
        state: &Arc<ConnectionState>,
    ) -> TimeoutBody<B> {
        let (pace, debt) = (Pace::new(idle, state.receive(0)), PeerStallGuard::new(state));
        TimeoutBody { body, pace, clock: None, expired, debt }
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
        let TimeoutBody { body, pace, clock, expired, debt } = &mut *self;
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            let data = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref());
            pace.note(debt.state.receive(data.map_or(0, Bytes::len)), Instant::now());
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
            if !pace.note(debt.state.receive(0), Instant::now().max(due)) {
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

    /// Step of a body: seconds of waiting, then bytes received of this body and of others on its connection.
    type Step = (u64, u64, u64);

    /// Returns the step at which the body times out.
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
            // Time spent by the handler does not count against the peer.
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
