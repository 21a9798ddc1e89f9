//! One backend: its state, and a request taken through to an answer or a failure.

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
use serde_json::Value;
use tokio::{
    sync::watch,
    time::{sleep, timeout_at},
};
use tracing::Instrument;

use crate::{
    Failure, FinishReason, Purse, Request, Tokens,
    circuit_breaker::{Breaker, Shown, Shut, Turn},
    config::{Api, BackendConfig},
    http::{Http, key_header, timed_out},
    names::Names,
    observe::{Attempt, Observer},
    request_retries::{Judged, Next, Turns},
    retry_after::Rest,
    validation_pool::Judges,
};
use breaker_permit::{Permit, shown};

/// Longest rest of a backend that is waited for here. Whoever waits holds a place that others could
/// use with another backend: a longer rest is waited for without one.
const REST_HERE_MAX: Duration = Duration::from_secs(2);

/// Time for a look at whether a backend is there at all, and at what it lists.
const LOOK_MAX: Duration = Duration::from_secs(2);

/// Answer of one backend.
#[derive(Debug)]
pub(crate) struct Given {
    pub text: String,
    pub json: Option<Value>,
    pub finish: FinishReason,
}

/// Reason that a backend gave no answer.
#[derive(Debug)]
pub(crate) enum Ungiven {
    /// It failed.
    Failed(Failure),
    /// It was not asked: there are not the tokens for it.
    NoBudget,
}

impl From<Failure> for Ungiven {
    fn from(failure: Failure) -> Ungiven {
        Ungiven::Failed(failure)
    }
}

/// Cost of asking, whatever the outcome.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Spent {
    pub tokens: Tokens,
    pub attempts: u32,
    /// The model was told what is wrong with its answer.
    pub corrected: bool,
}

/// Backend and its state.
#[derive(Debug)]
pub(crate) struct Backend {
    pub config: BackendConfig,
    names: Arc<Names>,
    state: Mutex<State>,
    /// Time at which its list of models was last requested for a question, and whether it gave one.
    looked: tokio::sync::Mutex<Option<(Instant, bool)>>,
    /// Counts the trials that ended, of all backends of the chain.
    trials: Arc<watch::Sender<u64>>,
}

#[derive(Debug, Default)]
struct State {
    breaker: Breaker,
    rest: Rest,
    last_failure: Option<Failure>,
    /// The models that it listed when it was last looked at.
    listed: Option<Arc<[String]>>,
    /// Name that it gave the model in its last answer.
    answers_to: Option<String>,
    /// One principal's asks keep failing, and nobody else's are known to.
    is_in_doubt: bool,
}

/// Means and limits of a request.
pub(crate) struct Terms<'a> {
    pub http: &'a Arc<Http>,
    pub observer: &'a dyn Observer,
    pub judges: &'a Judges,
    /// Budget that each request is paid from.
    pub purse: &'a dyn Purse,
    /// Time for all of it.
    pub limit: Duration,
    /// No other backend is left: a rest that the backend asks for is worth waiting for.
    pub is_last: bool,
    /// The model may be told what is wrong with its answer.
    pub may_correct: bool,
}

impl Backend {
    pub fn new(
        config: BackendConfig,
        names: Arc<Names>,
        trials: Arc<watch::Sender<u64>>,
    ) -> Backend {
        let (state, looked) = (Mutex::default(), tokio::sync::Mutex::default());
        Backend { config, names, state, looked, trials }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Each change is one assignment: a panic elsewhere leaves nothing half done.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Last failure, unless it has worked since; without prompt and answer, for everybody may know
    /// it.
    pub fn last_failure(&self) -> Option<Failure> {
        self.state().last_failure.clone()
    }

    /// Time until it wants to be asked again; `None` when it can be now.
    pub fn rest(&self, now: Instant) -> Option<Duration> {
        self.state().rest.left(now)
    }

    /// The same for one of those that wait for that, each of whom has a turn.
    pub fn rest_turn(&self, now: Instant) -> Option<Duration> {
        self.state().rest.turn(now)
    }

    /// Reason that a request of `payer` would not go out now.
    pub fn shut(&self, payer: &str, now: Instant) -> Option<Shut> {
        self.state().breaker.shut(payer, now)
    }

    /// Asks it until there is an answer or nothing more to try, or to pay with.
    pub async fn ask(
        self: &Arc<Self>,
        request: &Arc<Request>,
        terms: &Terms<'_>,
        spent: &mut Spent,
    ) -> Result<Given, Ungiven> {
        let deadline = Instant::now() + terms.limit;
        if self.shut(&terms.purse.payer(), Instant::now()).is_none() {
            // What there is no time for is missed below.
            timeout_at(deadline.into(), self.look(terms.http)).await.ok();
        }
        let model = self.upstream_model(&request.model);
        let mut turns = Turns::new(self.config.api, Arc::clone(request), &model)
            .hiding(self.config.api_key.clone());
        if !terms.may_correct {
            turns = turns.uncorrected();
        }
        let mut before = None;
        loop {
            self.wait_out_rest(deadline, terms.is_last).await?;
            if deadline <= Instant::now() {
                return Err(timed_out(terms.limit).into());
            }
            let permit = Permit::enter(self, &terms.purse.payer())?;
            if !terms.purse.reserve(turns.tokens_estimate()) {
                return Err(before.map_or(Ungiven::NoBudget, Ungiven::Failed));
            }
            let judged;
            let attempted = self.attempt(turns, permit, terms, deadline, spent).await;
            self.clear_doubt(terms.http);
            (turns, judged) = attempted?;
            before = judged.failure;
            match judged.next {
                Next::Done { text, json, finish } => return Ok(Given { text, json, finish }),
                // Its rest is waited for with everybody else's.
                Next::Again => {}
                // What is left when the time ends in mid-retry is a timeout of the whole.
                Next::Failed(Failure::Timeout { .. }) => return Err(timed_out(terms.limit).into()),
                Next::Failed(failure) => return Err(failure.into()),
            }
        }
    }

    /// Sends one request and judges what comes of it.
    async fn attempt(
        &self,
        turns: Turns,
        permit: Permit<'_>,
        terms: &Terms<'_>,
        deadline: Instant,
        spent: &mut Spent,
    ) -> Result<(Turns, Judged), Failure> {
        let estimate = Estimate { all: turns.tokens_estimate(), prompt: turns.prompt_estimate() };
        let (model, started) = (turns.model().to_owned(), Instant::now());
        let left = deadline.saturating_duration_since(started);
        let came = terms.http.post(self.question_url(&model), self.headers(), turns.body(), left);
        let came = came.await;
        let latency = started.elapsed();
        let left_then = left.saturating_sub(latency);
        let pause_max = if terms.is_last { left_then.min(REST_HERE_MAX) } else { Duration::ZERO };
        let asked = turns.request().model.clone();
        let tell = |failure: Option<&Failure>, tokens: Tokens| {
            let provider = &*self.config.name;
            let attempt = Attempt { provider, model: &asked, failure, latency, tokens };
            terms.observer.attempted(&attempt);
        };
        spent.attempts = spent.attempts.saturating_add(1);
        let Some((turns, judged)) = terms.judges.judge(turns, came, pause_max, deadline).await
        else {
            // It answered: that there is no time to read the answer is no fault of its.
            permit.record(None, left);
            terms.purse.spend(estimate.all);
            let failure = timed_out(terms.limit);
            tell(Some(&failure), Tokens::default());
            return Err(failure);
        };
        permit.record(judged.failure.as_ref(), left);
        if judged.failure.is_none() {
            self.state().answers_to = Some(model);
        }
        terms.purse.spend(cost(&judged, estimate));
        tell(judged.failure.as_ref(), judged.tokens);
        spent.tokens = spent.tokens + judged.tokens;
        spent.corrected |= turns.has_corrected();
        Ok((turns, judged))
    }

    /// Finds out whether a backend that one principal's asks fail on is there for others: by itself, as
    /// no ask has to wait for it.
    fn clear_doubt(self: &Arc<Self>, http: &Arc<Http>) {
        if !std::mem::take(&mut self.state().is_in_doubt) {
            return;
        }
        let (backend, http) = (Arc::clone(self), Arc::clone(http));
        let look = async move {
            let is_away = match backend.probe(&http, LOOK_MAX).await {
                // One that is busy with what it was asked may be slow to say so.
                Ok(_) | Err(Failure::Timeout { .. }) => false,
                Err(failure) => matches!(shown(Some(&failure)), Shown::Fails | Shown::IsAway),
            };
            if is_away {
                let turn = backend.state().breaker.is_away(Instant::now());
                backend.tell(turn, "");
            }
        };
        tokio::spawn(look.in_current_span());
    }

    /// Logs what became of the breaker.
    fn tell(&self, turn: Turn, payer: &str) {
        let provider = &*self.config.name;
        match turn {
            Turn::None => {}
            Turn::Own => tracing::warn!(
                provider,
                principal = payer,
                "the model backend fails on one principal's questions, which are held back for a while"
            ),
            Turn::All => tracing::warn!(
                provider,
                "the model backend keeps failing and is left alone for a while"
            ),
            Turn::Closed => tracing::info!(provider, "the model backend works again"),
        }
    }

    /// Waits until the backend wants to be asked again, where that is worth it. Whoever wakes looks
    /// again: those before it may have been told of another rest.
    async fn wait_out_rest(&self, deadline: Instant, is_last: bool) -> Result<(), Failure> {
        let until = deadline.min(Instant::now() + REST_HERE_MAX);
        loop {
            let now = Instant::now();
            let Some(rest) = self.rest(now) else { return Ok(()) };
            if !is_last || now + rest > until {
                return Err(Failure::RateLimited { retry_after: Some(rest) });
            }
            let turn = self.rest_turn(now).unwrap_or_default();
            sleep(turn.min(until.saturating_duration_since(now))).await;
        }
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
}

/// Tokens that a request is expected to take.
#[derive(Clone, Copy)]
struct Estimate {
    all: u64,
    /// Tokens of its prompt.
    prompt: u64,
}

/// Tokens that a request is charged: as they were counted and, where a backend worked or may have and
/// counted none of them, or none of the prompt's, as they were estimated.
fn cost(judged: &Judged, estimate: Estimate) -> u64 {
    let Tokens { prompt, completion, thinking, total } = judged.tokens;
    let answer = completion.saturating_add(thinking);
    let counted = total.max(prompt.saturating_add(answer));
    let was_free = judged.failure.as_ref().is_some_and(Failure::is_free);
    match counted {
        _ if was_free => counted,
        0 => estimate.all,
        _ if counted == answer => answer.saturating_add(estimate.prompt),
        _ => counted,
    }
}

#[cfg(test)]
mod tests;
