//! A request's admission by its backend's breaker, and what the request shows of the backend.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::Backend;
use crate::{
    Failure, TIMEOUT_DEFAULT,
    circuit_breaker::{Admitted, Shown, Shut, Turn},
};

/// A timeout says something about the backend when it had this long, or all the time that is its own;
/// a caller's short patience says nothing.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// Conclusion about the backend from the end of a request.
pub(super) fn shown(failure: Option<&Failure>) -> Shown {
    match failure {
        Some(Failure::Refused | Failure::Http { status: 503, .. }) => Shown::IsAway,
        Some(
            Failure::Closed
            | Failure::Timeout { .. }
            | Failure::Malformed { .. }
            | Failure::TooLarge { .. }
            | Failure::Http { status: 500..=599, .. },
        ) => Shown::Fails,
        // It answered; whether the answer is of use is another matter.
        _ => Shown::Works,
    }
}

/// An admission by the breaker, recorded once, also when the request is dropped.
pub(super) struct Permit<'a> {
    backend: &'a Backend,
    payer: Arc<str>,
    admitted: Admitted,
    shown: Shown,
}

impl<'a> Permit<'a> {
    pub fn enter(backend: &'a Backend, payer: &Arc<str>) -> Result<Permit<'a>, Failure> {
        let now = Instant::now();
        let admitted = backend.state().breaker.admit(payer, now).map_err(|shut| Failure::Open {
            again_in: match shut {
                Shut::Paused(until) => Some(until.saturating_duration_since(now)),
                Shut::Tried(_) => None,
            },
        })?;
        Ok(Permit { backend, payer: Arc::clone(payer), admitted, shown: Shown::Nothing })
    }

    /// Takes in how the request ended; it had `time`.
    pub fn record(mut self, failure: Option<&Failure>, time: Duration) {
        let patience = PATIENCE_MIN.min(self.backend.config.timeout.unwrap_or(TIMEOUT_DEFAULT));
        self.shown = match failure {
            Some(Failure::Timeout { .. }) if time < patience => Shown::Nothing,
            failure => shown(failure),
        };
        let mut state = self.backend.state();
        state.last_failure = failure.map(Failure::without_content);
        if let Some(Failure::RateLimited { retry_after: Some(rest) }) = failure {
            state.rest.prolong(Instant::now(), *rest);
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.state();
        let turn = state.breaker.record(&self.admitted, self.shown, Instant::now());
        state.is_in_doubt |= turn == Turn::Own;
        drop(state);
        if self.admitted.is_trial() {
            // Those that wait for it look again.
            self.backend.trials.send_modify(|trials| *trials = trials.wrapping_add(1));
        }
        self.backend.tell(turn, &self.payer);
    }
}
