//! One backend: its state, and a request taken through to an answer or a failure.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName},
};
use serde_json::Value;
use tokio::time::sleep;

use crate::{
    Failure, FinishReason, Request, Tokens,
    breaker::{Admitted, Breaker, Shown},
    config::{Api, BackendConfig},
    http::{Http, key_header, timed_out},
    observe::{Attempt, Observer},
    turns::{Next, Turns},
};

/// Longest time that a backend's `Retry-After` keeps requests from it: one that asks for a day would
/// be out of service for a day.
const REST_MAX: Duration = Duration::from_secs(60);
/// A timeout says something about the backend when it had this long, or all the time that is its own;
/// a caller's short patience says nothing.
const PATIENCE_MIN: Duration = Duration::from_secs(5);

/// What one backend gave.
#[derive(Debug)]
pub(crate) struct Given {
    pub text: String,
    pub json: Option<Value>,
    pub finish: FinishReason,
}

/// What asking cost, whatever came of it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub tokens: Tokens,
    pub attempts: u32,
}

/// One backend and what is known of it.
#[derive(Debug)]
pub(crate) struct Backend {
    pub config: BackendConfig,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    /// It asked for a rest until then.
    rests_until: Option<Instant>,
    last_failure: Option<Failure>,
}

/// How a request may be put.
pub(crate) struct Terms<'a> {
    pub http: &'a Http,
    pub observer: &'a dyn Observer,
    /// Time for all of it.
    pub limit: Duration,
    /// No other backend is left: a rest that the backend asks for is worth waiting for.
    pub is_last: bool,
}

impl Backend {
    pub fn new(config: BackendConfig) -> Backend {
        Backend { config, state: Mutex::default() }
    }

    /// It answers for the model that the service calls `model`.
    pub fn serves(&self, model: &str, is_curated: bool) -> bool {
        match &self.config.model {
            Some(own) => own == model,
            None => is_curated && self.config.api.serves_family(model),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it failed last, unless it has worked since; without what was asked and answered, for
    /// everybody may know it.
    pub fn last_failure(&self) -> Option<Failure> {
        self.state().last_failure.clone()
    }

    /// Asks it until there is an answer or nothing more to try.
    pub async fn ask(
        &self,
        request: &Request,
        terms: &Terms<'_>,
        spent: &mut Spent,
    ) -> Result<Given, Failure> {
        let deadline = Instant::now() + terms.limit;
        self.wait_out_rest(deadline, terms.is_last).await?;
        let model = self.upstream_model(&request.model);
        let mut turns = Turns::new(self.config.api, request, model);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(timed_out(terms.limit));
            }
            let permit = Permit::enter(self)?;
            let started = Instant::now();
            let url = self.question_url(model);
            let came = terms.http.post(url, self.headers(), turns.body(), left).await;
            let latency = started.elapsed();
            let pause_max =
                if terms.is_last { left.saturating_sub(latency) } else { Duration::ZERO };
            let judged = turns.judge(came, pause_max);
            permit.record(judged.failure.as_ref(), left);
            spent.tokens = spent.tokens + judged.tokens;
            spent.attempts = spent.attempts.saturating_add(1);
            terms.observer.attempted(&Attempt {
                provider: &self.config.name,
                model: &request.model,
                failure: judged.failure.as_ref(),
                latency,
                tokens: judged.tokens,
            });
            match judged.next {
                Next::Done { text, json, finish } => return Ok(Given { text, json, finish }),
                Next::Again { after } => sleep(after).await,
                // What is left when the time ends in mid-retry is a timeout of the whole.
                Next::Failed(Failure::Timeout { .. }) => {
                    return Err(timed_out(terms.limit));
                }
                Next::Failed(failure) => return Err(failure),
            }
        }
    }

    /// Waits until the backend wants to be asked again, where that is worth it.
    async fn wait_out_rest(&self, deadline: Instant, is_last: bool) -> Result<(), Failure> {
        let now = Instant::now();
        let Some(until) = self.state().rests_until.filter(|until| *until > now) else {
            return Ok(());
        };
        let rest = until - now;
        if !is_last || until >= deadline {
            return Err(Failure::RateLimited { retry_after: Some(rest) });
        }
        sleep(rest).await;
        Ok(())
    }

    fn upstream_model<'a>(&'a self, model: &'a str) -> &'a str {
        self.config.upstream_model.as_deref().unwrap_or(model)
    }

    fn question_url(&self, model: &str) -> Url {
        match self.config.api {
            Api::Openai(_) => self.config.base_url.endpoint(&["chat", "completions"]),
            Api::Gemini => {
                let model = model.strip_prefix("models/").unwrap_or(model);
                self.config.base_url.endpoint(&["models", &format!("{model}:generateContent")])
            }
        }
    }

    fn headers(&self) -> HeaderMap {
        let Some(key) = &self.config.api_key else {
            return HeaderMap::new();
        };
        match self.config.api {
            Api::Openai(_) => key_header(AUTHORIZATION, "Bearer ", key),
            // In a header and not in the query, which proxies log.
            Api::Gemini => key_header(HeaderName::from_static("x-goog-api-key"), "", key),
        }
    }

    /// Whether it lists its models within `limit`, and how long that took.
    pub async fn probe(&self, http: &Http, limit: Duration) -> Result<Duration, Failure> {
        let started = Instant::now();
        let url = self.config.base_url.endpoint(&["models"]);
        let response = http.get(url, self.headers(), limit).await?;
        match response.status {
            200..=299 => Ok(started.elapsed()),
            429 => Err(Failure::RateLimited { retry_after: response.retry_after }),
            status => Err(Failure::Http { status }),
        }
    }
}

/// An admission by the breaker, recorded once, also when the request is dropped.
struct Permit<'a> {
    backend: &'a Backend,
    admitted: Admitted,
    shown: Shown,
}

impl<'a> Permit<'a> {
    fn enter(backend: &'a Backend) -> Result<Permit<'a>, Failure> {
        let admitted = backend.state().breaker.admit(Instant::now()).ok_or(Failure::Open)?;
        Ok(Permit { backend, admitted, shown: Shown::Nothing })
    }

    /// Takes in how the request ended; it had `time`.
    fn record(mut self, failure: Option<&Failure>, time: Duration) {
        let patience = PATIENCE_MIN.min(self.backend.config.timeout);
        self.shown = match failure {
            Some(Failure::Timeout { .. }) if time < patience => Shown::Nothing,
            Some(
                Failure::Refused
                | Failure::Closed
                | Failure::Timeout { .. }
                | Failure::Malformed { .. }
                | Failure::TooLarge { .. }
                | Failure::Http { status: 500..=599 },
            ) => Shown::Fails,
            // It answered; whether the answer is of use is another matter.
            _ => Shown::Works,
        };
        let mut state = self.backend.state();
        state.last_failure = failure.map(Failure::without_content);
        if let Some(Failure::RateLimited { retry_after: Some(rest) }) = failure {
            state.rests_until = Some(Instant::now() + REST_MAX.min(*rest));
        }
    }
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        let mut state = self.backend.state();
        let was_open = state.breaker.is_open();
        state.breaker.record(self.admitted, self.shown, Instant::now());
        let is_open = state.breaker.is_open();
        drop(state);
        let provider = &*self.backend.config.name;
        if is_open && !was_open {
            tracing::warn!(
                provider,
                "the model backend keeps failing and is left alone for a while"
            );
        } else if was_open && !is_open {
            tracing::info!(provider, "the model backend works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backends;

    #[test]
    fn what_everybody_may_know_of_a_failure_holds_nothing_of_the_answer() {
        let file = "[[backends]]\nname = \"a\"\ntype = \"openai_compat\"\n\
                    base_url = \"http://127.0.0.1:9\"\npriority = 1\n";
        let configs = Backends::parse("test.toml", file, &|_| None).expect("the file is right");
        let backend = Backend::new(configs.into_iter().next().expect("one"));
        let problem = "/label: \"a private word\" is not a number".to_owned();
        let failure = Failure::Schema { problem };
        assert!(
            failure
                .to_string()
                .ends_with("output_schema: /label: \"a private word\" is not a number")
        );
        let permit = Permit::enter(&backend).expect("it works");
        permit.record(Some(&failure), Duration::from_secs(1));
        let shown = backend.last_failure().expect("it failed").to_string();
        assert_eq!(shown, "gave an answer that does not match output_schema");
    }
}
