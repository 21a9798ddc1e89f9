//! A request's admission by its backend's breaker, and what the request shows of the backend.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Backend;
use crate::{
    FailureKind, TIMEOUT_DEFAULT,
    circuit_breaker::{BreakerOpen, BreakerTicket, BreakerTransition, RequestSignal},
};

/// A timeout says something about the backend when it had this long, or all the time that is its own;
/// a caller's own short timeout says nothing.
const TELLING_TIMEOUT_MIN: Duration = Duration::from_secs(5);

/// Conclusion about the backend from the end of a request.
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
        // It answered; whether the answer is of use is another matter.
        _ => RequestSignal::Works,
    }
}

/// An admission by the breaker, recorded once, also when the request is dropped.
pub(super) struct BreakerPermit<'a> {
    backend: &'a Backend,
    principal: Arc<str>,
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
        Ok(BreakerPermit {
            backend,
            principal: Arc::clone(principal),
            ticket,
            signal: RequestSignal::Nothing,
        })
    }

    /// Takes in how the request ended; it had `time`.
    pub fn record(mut self, failure: Option<&FailureKind>, time: Duration) {
        let patience =
            TELLING_TIMEOUT_MIN.min(self.backend.config.timeout.unwrap_or(TIMEOUT_DEFAULT));
        self.signal = match failure {
            Some(FailureKind::Timeout { .. }) if time < patience => RequestSignal::Nothing,
            failure => signal(failure),
        };
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
            // Its waiters check again.
            self.backend.probes_ended.send_modify(|trials| *trials = trials.wrapping_add(1));
        }
        self.backend.log_transition(transition, &self.principal);
    }
}
