//! Admission of a request by the circuit breaker of its backend, and the signal recorded at its end.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Backend;
use crate::{
    FailureKind, TIMEOUT_DEFAULT,
    circuit_breaker::{BreakerOpen, BreakerTicket, BreakerTransition, RequestSignal},
};

/// Least time limit, capped at the backend's own timeout, from which a timeout counts as a failure of the
/// backend; a shorter limit set by the caller says nothing about the backend.
const TELLING_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// Returns the signal about the backend at the end of a request.
pub(super) fn signal(failure: Option<&FailureKind>) -> RequestSignal {
    match failure {
        Some(FailureKind::Refused | FailureKind::Http { status: 503, .. }) => RequestSignal::IsAway,
        Some(
            FailureKind::Closed
            | FailureKind::Timeout { .. }
            | FailureKind::Malformed { .. }
            | FailureKind::TooLarge { .. }
            | FailureKind::Http { status: 500..=599, .. },
        ) => RequestSignal::Fails,
        // The backend answered; the quality of the answer does not matter here.
        _ => RequestSignal::Works,
    }
}

/// Admission by the breaker; recorded once, on drop.
pub(super) struct BreakerPermit<'a> {
    backend: &'a Backend,
    ticket: BreakerTicket,
    signal: RequestSignal,
}

impl<'a> BreakerPermit<'a> {
    pub fn acquire(
        backend: &'a Backend,
        principal: &Arc<str>,
    ) -> Result<BreakerPermit<'a>, FailureKind> {
        let now = Instant::now();
        let ticket =
            backend.state().breaker.admit(principal, now).map_err(|shut| FailureKind::Open {
                again_in: match shut {
                    BreakerOpen::Open(until) => Some(until.saturating_duration_since(now)),
                    BreakerOpen::HalfOpen(_) => None,
                },
            })?;
        Ok(BreakerPermit { backend, ticket, signal: RequestSignal::Nothing })
    }

    /// Records the outcome of a request that had the time limit `time`.
    pub fn record(mut self, failure: Option<&FailureKind>, time: Duration) {
        let patience =
            TELLING_TIMEOUT_MIN.min(self.backend.config.timeout.unwrap_or(TIMEOUT_DEFAULT));
        if matches!(failure, Some(FailureKind::Timeout { .. })) && time < patience {
            return;
        }
        self.signal = signal(failure);
        let mut state = self.backend.state();
        state.last_failure = failure.map(FailureKind::without_content);
        if let Some(FailureKind::RateLimited { retry_after: Some(wait) }) = failure {
            state.retry_after.extend(Instant::now(), *wait);
        }
    }
}

impl Drop for BreakerPermit<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.state();
        let transition = state.breaker.record(&self.ticket, self.signal, Instant::now());
        state.has_suspect |= transition == BreakerTransition::OpenForOne;
        drop(state);
        if self.ticket.is_probe() {
            // Wakes the waiters, which check the breaker again.
            self.backend.probes_ended.send_modify(|trials| *trials = trials.wrapping_add(1));
        }
        self.backend.log_transition(transition, &self.ticket.principal);
    }
}
