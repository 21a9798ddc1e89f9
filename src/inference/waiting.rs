//! How long an ask waits for places: all of them together, and none while a backend rests or the ask
//! of another is to show whether it is back.

use std::time::{Duration, Instant};

use infer::{Answer, InferError, Tokens};

use super::InferenceError;

/// The time that an ask may wait, why it waits, and what it came to before.
#[derive(Clone, Copy, Debug)]
pub struct Waiting {
    until: Instant,
    rest: Option<Instant>,
    /// Another's ask is to show whether a backend is back.
    is_on_trial: bool,
    tokens: Tokens,
    attempts: u32,
    latency: Duration,
}

impl Waiting {
    /// For `patience` at most.
    pub fn new(patience: Duration) -> Waiting {
        Waiting {
            until: Instant::now() + patience,
            rest: None,
            is_on_trial: false,
            tokens: Tokens::default(),
            attempts: 0,
            latency: Duration::ZERO,
        }
    }

    /// A pause that is over was of another patience.
    pub fn put_off(&mut self, pause: Duration) {
        self.until += pause;
    }

    /// What is left of the time.
    pub fn left(&self) -> Duration {
        self.until.saturating_duration_since(Instant::now())
    }

    /// How long no place is of use, where some backend asked for a rest or all of them, as `rest`
    /// says, do. A rest that outlasts the patience is not waited for: it is a failure at once.
    pub(super) fn rest(&self, rest: Option<Duration>) -> Duration {
        let own = self.rest.map(|until| until.saturating_duration_since(Instant::now()));
        let rest = own.max(rest).unwrap_or_default();
        if rest < self.left() { rest } else { Duration::ZERO }
    }

    /// What another's ask shows is worth waiting for.
    pub(super) fn is_on_trial(&self) -> bool {
        self.is_on_trial
    }

    /// After `error` another place is worth waiting for: a backend asked for a rest that ends in
    /// time, or another's ask is to show whether it is back. Whoever asks again meets it with the
    /// backend rested, or tried.
    pub fn goes_on(&mut self, error: &InferenceError) -> bool {
        let InferenceError::Infer(error) = error else { return false };
        let ends = error.rest().and_then(|rest| Instant::now().checked_add(rest));
        self.rest = ends.filter(|ends| *ends < self.until);
        self.is_on_trial = error.is_on_trial() && !self.left().is_zero();
        let goes_on = self.rest.is_some() || self.is_on_trial;
        if goes_on {
            self.tokens = self.tokens + error.tokens();
            self.attempts = self.attempts.saturating_add(error.attempts());
            self.latency += error.latency();
        }
        goes_on
    }

    /// `answer` with what was spent before it.
    pub fn with_earlier(&self, answer: Answer) -> Answer {
        Answer {
            tokens: self.tokens + answer.tokens,
            attempts: self.attempts.saturating_add(answer.attempts),
            latency: self.latency + answer.latency,
            ..answer
        }
    }

    /// `error` with what was spent before it, as if by the last that failed.
    pub fn failed_with_earlier(&self, mut error: InferenceError) -> InferenceError {
        if let InferenceError::Infer(InferError::Failed(failed)) = &mut error
            && let Some(last) = failed.last_mut()
        {
            last.tokens = self.tokens + last.tokens;
            last.attempts = self.attempts.saturating_add(last.attempts);
            last.latency += self.latency;
        }
        error
    }
}

#[cfg(test)]
mod tests {
    use infer::{Failed, Failure, InferError, Tokens};

    use super::*;

    fn failed(failures: impl IntoIterator<Item = Failure>) -> InferenceError {
        let failed = failures.into_iter().map(|failure| Failed {
            provider: "a".into(),
            failure,
            tokens: Tokens::default(),
            attempts: 1,
            latency: Duration::ZERO,
        });
        InferError::Failed(failed.collect()).into()
    }

    fn rested(seconds: &[Option<u64>]) -> InferenceError {
        let after = |seconds: &Option<u64>| seconds.map(Duration::from_secs);
        failed(seconds.iter().map(|seconds| Failure::RateLimited { retry_after: after(seconds) }))
    }

    #[test]
    fn what_anothers_ask_shows_is_waited_for_and_a_pause_is_not() {
        let open = |again_in| Failure::Open { again_in };
        let paused = || open(Some(Duration::from_secs(1)));
        for (name, error, patience_s, goes_on) in [
            ("a trial", failed([open(None)]), 30, true),
            ("one of two", failed([Failure::Empty, open(None)]), 30, true),
            ("a pause", failed([paused()]), 30, false),
            ("no time left", failed([open(None)]), 0, false),
        ] {
            let mut waiting = Waiting::new(Duration::from_secs(patience_s));
            assert_eq!(waiting.goes_on(&error), goes_on, "{name}");
            assert_eq!(waiting.is_on_trial(), goes_on, "{name}");
            assert_eq!(waiting.rest(None), Duration::ZERO, "{name}");
        }
    }

    #[test]
    fn a_pause_takes_nothing_of_the_patience() {
        let mut waiting = Waiting::new(Duration::from_secs(30));
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
            let mut waiting = Waiting::new(Duration::from_secs(30));
            assert_eq!(waiting.goes_on(&error), goes_on, "{name}");
            let rest = waiting.rest(None);
            assert_eq!(rest > Duration::from_secs(4), goes_on, "{name}: {rest:?}");
            assert!(rest <= Duration::from_secs(5), "{name}: {rest:?}");
        }
        let mut waiting = Waiting::new(Duration::from_secs(30));
        assert!(waiting.goes_on(&rested(&[Some(5), Some(6)])));
        let InferenceError::Infer(error) = waiting.failed_with_earlier(rested(&[None])) else {
            panic!("the same failure");
        };
        assert_eq!(error.attempts(), 3, "of both places");
        let waiting = Waiting::new(Duration::from_secs(30));
        let found = [10, 40].map(|rest| waiting.rest(Some(Duration::from_secs(rest))).as_secs());
        assert_eq!(found, [10, 0], "a rest that is too long is no reason to wait");
    }
}
