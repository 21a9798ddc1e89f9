//! One backend: its state, and the attempts of a request up to an answer or a failure.

mod breaker_permit;
mod listed;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use reqwest::{
    Url,
    header::{AUTHORIZATION, HeaderMap, HeaderName},
};
use tokio::{
    sync::watch,
    time::{sleep, timeout_at},
};
use tracing::Instrument;

use crate::{
    BackendAttempt, FailureKind, InferenceRequest, RequestCost, TokenBudget, TokenUsage,
    circuit_breaker::{BreakerOpen, BreakerTransition, CircuitBreaker, RequestSignal},
    config::{ApiProtocol, BackendConfig},
    http::{HttpClient, key_header, timed_out},
    request_retries::{Answer, EvaluatedResponse, NextStep, RequestRetries},
    retry_after::RetryAfterState,
    validation_pool::ValidationPool,
};
use breaker_permit::{BreakerPermit, signal};

/// Longest retry-after to wait for while holding a permit, which another backend's request could use; a
/// longer one is waited for without a permit.
const RETRY_AFTER_HERE_MAX: Duration = Duration::from_secs(2);

/// Time limit for listing a backend's models.
const LISTING_TIMEOUT: Duration = Duration::from_secs(2);

/// Usage of the attempts, whatever the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestUsage {
    /// Tokens and attempts; the caller knows the time.
    pub cost: RequestCost,
    /// True if a repair prompt was sent.
    pub corrected: bool,
}

/// Look-up of the curated id of a name, which may be the id itself or the publisher's name.
type Curated = fn(&str) -> Option<&'static str>;

#[derive(Debug)]
pub(crate) struct Backend {
    pub config: BackendConfig,
    curated: Curated,
    state: Mutex<State>,
    /// Time of the last request for the model list made before a call, and whether it succeeded.
    looked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    /// Number of probe requests that have ended, over all backends of the chain.
    probes_ended: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    breaker: CircuitBreaker,
    retry_after: RetryAfterState,
    last_failure: Option<FailureKind>,
    /// Models of the last list received; `None` if there is none.
    listed: Option<Arc<[String]>>,
    /// Model name used in the last successful request.
    answers_to: Option<String>,
    /// True if the breaker has just opened for one principal alone.
    has_suspect: bool,
}

/// Resources and limits of one call.
pub(crate) struct CallOptions<'a> {
    pub http: &'a Arc<HttpClient>,
    pub observer: &'a (dyn Fn(&BackendAttempt<'_>) + Send + Sync),
    pub validation: &'a ValidationPool,
    /// Budget charged by each request.
    pub budget: &'a dyn TokenBudget,
    pub time_limit: Duration,
    /// True if no other backend is left, so that waiting for a retry-after is worthwhile.
    pub is_last: bool,
    /// True if a repair prompt may be sent.
    pub may_correct: bool,
}

impl Backend {
    pub fn new(
        config: BackendConfig,
        curated: Curated,
        trials: Arc<watch::Sender<u64>>,
    ) -> Backend {
        let (state, looked) = (Mutex::default(), tokio::sync::Mutex::default());
        Backend { config, curated, state, looked, probes_ended: trials }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is a single assignment, so that a panic elsewhere leaves no partial change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the last failure unless a request has succeeded since; timeouts of impatient callers are none.
    /// It is without content of prompt or answer, as any caller may see it.
    pub fn last_failure(&self) -> Option<FailureKind> {
        self.state().last_failure.clone()
    }

    /// Returns the time left of the retry-after; `None` if the backend accepts requests.
    pub fn retry_after(&self, now: Instant) -> Option<Duration> {
        self.state().retry_after.left(now)
    }

    /// Returns the delay of the next waiter for the retry-after; each call takes a slot.
    pub fn next_slot(&self, now: Instant) -> Option<Duration> {
        self.state().retry_after.next_slot(now)
    }

    /// Returns the breaker state that blocks a request of `principal`; `None` if it would be admitted.
    pub fn breaker_state(&self, principal: &str, now: Instant) -> Option<BreakerOpen> {
        self.state().breaker.state(principal, now)
    }

    /// Sends requests until there is an answer, a final failure, or too little budget; an error of `None` is a
    /// budget too low for the first request, which was not sent.
    pub async fn complete(
        self: &Arc<Self>,
        request: &Arc<InferenceRequest>,
        options: &CallOptions<'_>,
        usage: &mut RequestUsage,
    ) -> Result<Answer, Option<FailureKind>> {
        let deadline = Instant::now() + options.time_limit;
        if self.breaker_state(&options.budget.principal(), Instant::now()).is_none() {
            // A list that is late is skipped; the request itself runs into the deadline below.
            timeout_at(deadline.into(), self.refresh_listed(options.http)).await.ok();
        }
        let model = self.upstream_model(&request.model);
        let mut retries = RequestRetries::new(self.config.api, Arc::clone(request), &model);
        retries.key = self.config.api_key.clone();
        retries.may_correct = options.may_correct;
        let mut before = None;
        loop {
            self.wait_out_retry_after(deadline, options.is_last).await?;
            if deadline <= Instant::now() {
                return Err(Some(timed_out(options.time_limit)));
            }
            let permit = BreakerPermit::acquire(self, &options.budget.principal())?;
            if !options.budget.reserve(retries.tokens_estimate()) {
                return Err(before);
            }
            let evaluated;
            let attempted = self.attempt(retries, permit, options, deadline, usage).await;
            self.clear_suspects(options.http);
            (retries, evaluated) = attempted?;
            before = evaluated.failure;
            match evaluated.next {
                NextStep::Done(answer) => return Ok(answer),
                // The retry-after is waited for at the top of the loop.
                NextStep::Again => {}
                // A timeout in the middle of a retry counts as a timeout of the whole call.
                NextStep::Failed(FailureKind::Timeout { .. }) => {
                    return Err(Some(timed_out(options.time_limit)));
                }
                NextStep::Failed(failure) => return Err(Some(failure)),
            }
        }
    }

    async fn attempt(
        &self,
        retries: RequestRetries,
        permit: BreakerPermit<'_>,
        options: &CallOptions<'_>,
        deadline: Instant,
        usage: &mut RequestUsage,
    ) -> Result<(RequestRetries, EvaluatedResponse), FailureKind> {
        let (estimate, prompt) = (retries.tokens_estimate(), retries.prompt_estimate());
        let (model, started) = (retries.model().to_owned(), Instant::now());
        let left = deadline.saturating_duration_since(started);
        let received =
            options.http.post(self.completion_url(&model), self.headers(), retries.body(), left);
        let received = received.await;
        let latency = started.elapsed();
        let left_then = left.saturating_sub(latency);
        let pause_max =
            if options.is_last { left_then.min(RETRY_AFTER_HERE_MAX) } else { Duration::ZERO };
        let asked = retries.request().model.clone();
        let observe = |failure: Option<&FailureKind>, tokens: TokenUsage| {
            let provider = &*self.config.name;
            let attempt = BackendAttempt { provider, model: &asked, failure, latency, tokens };
            (options.observer)(&attempt);
        };
        usage.cost.attempts = usage.cost.attempts.saturating_add(1);
        let Some((retries, evaluated)) =
            options.validation.validate(retries, received, pause_max, deadline).await
        else {
            // The backend answered in time; a slow local validation is not its failure.
            permit.record(None, left);
            options.budget.commit(estimate);
            let failure = timed_out(options.time_limit);
            observe(Some(&failure), TokenUsage::default());
            return Err(failure);
        };
        permit.record(evaluated.failure.as_ref(), left);
        if evaluated.failure.is_none() {
            self.state().answers_to = Some(model);
        }
        options.budget.commit(cost(&evaluated, estimate, prompt));
        observe(evaluated.failure.as_ref(), evaluated.tokens);
        usage.cost.tokens = usage.cost.tokens + evaluated.tokens;
        usage.corrected |= retries.has_corrected();
        Ok((retries, evaluated))
    }

    /// Probes a backend whose breaker opened for one principal, in a task of its own so that no request waits
    /// for the result.
    fn clear_suspects(self: &Arc<Self>, http: &Arc<HttpClient>) {
        if !std::mem::take(&mut self.state().has_suspect) {
            return;
        }
        let (backend, http) = (Arc::clone(self), Arc::clone(http));
        let look = async move {
            let is_away = match backend.probe(&http, LISTING_TIMEOUT).await {
                // A backend that is busy with a request may be slow to list its models.
                Ok(_) | Err(FailureKind::Timeout { .. }) => false,
                Err(failure) => {
                    matches!(signal(Some(&failure)), RequestSignal::Fails | RequestSignal::IsAway)
                }
            };
            if is_away {
                let transition = backend.state().breaker.mark_away(Instant::now());
                backend.log_transition(transition, "");
            }
        };
        tokio::spawn(look.in_current_span());
    }

    fn log_transition(&self, transition: BreakerTransition, principal: &str) {
        let provider = &*self.config.name;
        match transition {
            BreakerTransition::None => {}
            BreakerTransition::OpenForOne => {
                tracing::warn!(provider, principal, "circuit breaker opened for one principal");
            }
            BreakerTransition::OpenForAll => tracing::warn!(provider, "circuit breaker opened"),
            BreakerTransition::Closed => tracing::info!(provider, "circuit breaker closed"),
        }
    }

    /// Waits until the retry-after ends, if waiting is worthwhile. Each waiter checks again on waking, as an
    /// earlier waiter may have received a new retry-after.
    async fn wait_out_retry_after(
        &self,
        deadline: Instant,
        is_last: bool,
    ) -> Result<(), FailureKind> {
        let until = deadline.min(Instant::now() + RETRY_AFTER_HERE_MAX);
        loop {
            let now = Instant::now();
            let Some(wait) = self.retry_after(now) else { return Ok(()) };
            if !is_last || now + wait > until {
                return Err(FailureKind::RateLimited { retry_after: Some(wait) });
            }
            let transition = self.next_slot(now).unwrap_or_default();
            sleep(transition.min(until.saturating_duration_since(now))).await;
        }
    }

    fn completion_url(&self, model: &str) -> Url {
        match self.config.api {
            ApiProtocol::Openai(_) => self.config.base_url.endpoint(&["chat", "completions"]),
            ApiProtocol::Gemini => {
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
            ApiProtocol::Openai(_) => key_header(AUTHORIZATION, "Bearer ", key),
            // The key goes into a header, because proxies log the query.
            ApiProtocol::Gemini => key_header(HeaderName::from_static("x-goog-api-key"), "", key),
        }
    }
}

/// Returns the tokens to charge: those that the backend counted. Without a count, or without one of the
/// prompt, the estimate of all or of the prompt is used unless the failure was free of charge.
fn cost(evaluated: &EvaluatedResponse, estimate: u64, prompt_estimate: u64) -> u64 {
    let TokenUsage { prompt, completion, thinking, total } = evaluated.tokens;
    let answer = completion.saturating_add(thinking);
    let counted = total.max(prompt.saturating_add(answer));
    let was_free = evaluated.failure.as_ref().is_some_and(FailureKind::is_free);
    match counted {
        _ if was_free => counted,
        0 => estimate,
        _ if counted == answer => answer.saturating_add(prompt_estimate),
        _ => counted,
    }
}

#[cfg(test)]
mod tests;
