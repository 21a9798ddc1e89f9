//! Waiting time of one request: covers all its permits, and pauses for a backend's `Retry-After`
//! or another request's half-open probe.

use std::time::{Duration, Instant};

use infer::{BackendError, Completion, InferError, RequestCost};

use super::InferenceError;

/// Waiting time left to a request, the reason for its wait, and the cost of its earlier attempts.
#[derive(Clone, Debug)]
pub struct WaitBudget {
    until: Instant,
    /// True to wait for backends as well as for permits.
    waits_out: bool,
    /// Failures that the request waits to retry, without their cost, which is in `earlier`.
    cause: Vec<BackendError>,
    rest: Option<Instant>,
    /// True while another request's half-open probe is in flight.
    pub(super) is_on_trial: bool,
    earlier: RequestCost,
}

impl WaitBudget {
    /// Creates a budget of `patience`; only for permits unless it `waits_out` backends too.
    pub fn new(patience: Duration, waits_out: bool) -> WaitBudget {
        WaitBudget {
            until: Instant::now() + patience,
            waits_out,
            cause: Vec::new(),
            rest: None,
            is_on_trial: false,
            earlier: RequestCost::default(),
        }
    }

    /// Extends the budget by a pause that had its own limit.
    pub fn put_off(&mut self, pause: Duration) {
        self.until += pause;
    }

    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// Time for which a permit would be useless: the longer `Retry-After`, of the last failure or of all
    /// backends (`rest`). Zero if it outlasts the budget, so that the request fails at once.
    pub(super) fn rest(&self, rest: Option<Duration>) -> Duration {
        let own = self.rest.map(|until| until.saturating_duration_since(Instant::now()));
        let rest = own.max(rest).filter(|_| self.waits_out).unwrap_or_default();
        if rest < self.left() { rest } else { Duration::ZERO }
    }

    /// Returns true if `error` is worth a retry within the budget: its `Retry-After` ends in time,
    /// or another request's half-open probe will show whether the backend is back. Notes the cost
    /// of the attempt.
    pub fn goes_on(&mut self, error: &InferenceError) -> bool {
        let InferenceError::Infer(error) = error else { return false };
        if !self.waits_out {
            return false;
        }
        let ends = error.retry_after().and_then(|rest| Instant::now().checked_add(rest));
        self.rest = ends.filter(|ends| *ends < self.until);
        self.is_on_trial = error.awaits_half_open() && !self.left().is_zero();
        let goes_on = self.rest.is_some() || self.is_on_trial;
        if goes_on {
            let (failed, cost) = (error.failed().iter().cloned(), RequestCost::default());
            self.cause = failed.map(|one| BackendError { cost, ..one }).collect();
            self.earlier = self.earlier + error.cost();
        }
        goes_on
    }

    /// Returns `answer` with the cost of the earlier attempts.
    pub fn with_earlier(&self, answer: Completion) -> Completion {
        Completion { cost: self.earlier + answer.cost, ..answer }
    }

    /// Returns `error` with the cost of the earlier attempts, charged to the backend that failed last. A
    /// refusal after an attempt becomes the failure that the request waited to retry.
    pub fn failed_with_earlier(&self, mut error: InferenceError) -> InferenceError {
        if matches!(error, InferenceError::Refused(_)) && !self.cause.is_empty() {
            error = InferError::Failed(self.cause.clone()).into();
        }
        if let InferenceError::Infer(InferError::Failed(failed)) = &mut error
            && let Some(last) = failed.last_mut()
        {
            last.cost = self.earlier + last.cost;
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use infer::{FailureKind, scheduler::AdmissionError};
    use media::ErrorKind;

    use super::*;

    fn failed(failures: impl IntoIterator<Item = FailureKind>) -> InferenceError {
        let failed = failures.into_iter().map(|failure| BackendError {
            provider: "a".into(),
            failure,
            cost: RequestCost { attempts: 1, ..RequestCost::default() },
        });
        InferError::Failed(failed.collect()).into()
    }

    fn rested(seconds: &[Option<u64>]) -> InferenceError {
        let after = |seconds: &Option<u64>| seconds.map(Duration::from_secs);
        failed(
            seconds.iter().map(|seconds| FailureKind::RateLimited { retry_after: after(seconds) }),
        )
    }

    #[test]
    fn what_anothers_ask_shows_is_waited_for_and_a_pause_is_not() {
        let open = |again_in| FailureKind::Open { again_in };
        let paused = || open(Some(Duration::from_secs(1)));
        for (name, error, patience_s, goes_on) in [
            ("a trial", failed([open(None)]), 30, true),
            ("one of two", failed([FailureKind::Empty, open(None)]), 30, true),
            ("a pause", failed([paused()]), 30, false),
            ("no time left", failed([open(None)]), 0, false),
        ] {
            let mut waiting = WaitBudget::new(Duration::from_secs(patience_s), true);
            assert_eq!(waiting.goes_on(&error), goes_on, "{name}");
            assert_eq!(waiting.is_on_trial, goes_on, "{name}");
            assert_eq!(waiting.rest(None), Duration::ZERO, "{name}");
        }
    }

    #[test]
    fn a_pause_takes_nothing_of_the_patience() {
        let mut waiting = WaitBudget::new(Duration::from_secs(30), true);
        waiting.put_off(Duration::from_secs(60));
        assert!(waiting.left() > Duration::from_secs(80), "{:?}", waiting.left());
    }

    #[test]
    fn a_rest_is_waited_for_where_it_ends_in_time() {
        for (name, error, goes_on) in [
            ("in time", rested(&[Some(5)]), true),
            ("one of two in time", rested(&[Some(100), Some(5)]), true),
            ("too late", rested(&[Some(60)]), false),
            ("no time told", rested(&[None]), false),
            ("no rest at all", rested(&[Some(0)]), false),
            ("another failure", InferError::NoBackend.into(), false),
        ] {
            let mut waiting = WaitBudget::new(Duration::from_secs(30), true);
            assert_eq!(waiting.goes_on(&error), goes_on, "{name}");
            let rest = waiting.rest(None);
            assert_eq!(rest > Duration::from_secs(4), goes_on, "{name}: {rest:?}");
            assert!(rest <= Duration::from_secs(5), "{name}: {rest:?}");
        }
        let mut waiting = WaitBudget::new(Duration::from_secs(30), true);
        assert!(waiting.goes_on(&rested(&[Some(5), Some(6)])));
        let InferenceError::Infer(error) = waiting.failed_with_earlier(rested(&[None])) else {
            panic!("the same failure");
        };
        assert_eq!(error.cost().attempts, 3, "of both places");
        let refused = || AdmissionError::TimedOut { waited: Duration::ZERO }.into();
        let told = waiting.failed_with_earlier(refused());
        assert!(matches!(told.kind(), ErrorKind::Internal), "what was waited for: {told}");
        let InferenceError::Infer(error) = told else { panic!("the failure") };
        assert_eq!((error.failed().len(), error.cost().attempts), (2, 2), "and what it cost");
        let waiting = WaitBudget::new(Duration::from_secs(30), true);
        assert!(matches!(waiting.failed_with_earlier(refused()), InferenceError::Refused(_)));
        let mut alone = WaitBudget::new(Duration::from_secs(30), false);
        assert!(!alone.goes_on(&rested(&[Some(5)])), "for a place alone");
        assert_eq!(alone.rest(Some(Duration::from_secs(5))), Duration::ZERO);
        let found = [10, 40].map(|rest| waiting.rest(Some(Duration::from_secs(rest))).as_secs());
        assert_eq!(found, [10, 0], "a rest that is too long is no reason to wait");
    }
}
