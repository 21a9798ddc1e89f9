//! The one way to the models: admission, then the backends, counted, traced and paid for.
//!
//! Promises that nobody asks a model without a place and a budget, that the place comes back
//! however the ask ends, and that an owner is told once a day when its tokens run low. Writes no
//! event but that one: what an answer means is for those who ask. Long because every part of an ask
//! is here.

mod days;

use std::{sync::Arc, time::Duration};

use infer::{
    Admission, Answer, Chain, Described, InferError, Permit, Probe, Request, SetupError, Tiered,
    Tokens,
    scheduler::{Ask, Class, Load, Refused, Use},
};
use media::{ErrorKind, RequestId, WallTime};
use timeline::{Event, TokenBudgetLow};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field::Empty};
use transport::tls::{Trust, TrustError, client_config, roots};

use crate::{
    catalog::Catalog,
    clock::wall_now,
    config::{Config, Principal},
    ledger::{Ledger, LedgerError},
    metrics::{Label, Metrics, RefusedAsk},
    session::registry::{Registry, Run},
    telemetry::SPANS,
};
use days::TokenDays;

const DAY_MS: i64 = 86_400_000;

/// Why inference cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum InferenceStartError {
    /// No client can be made.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The trusted certificates cannot be used.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// What was used of the day cannot be read.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum InferenceError {
    /// It was not let in.
    #[error("{0}")]
    Refused(#[from] Refused),
    /// It was asked, or could not be.
    #[error("{0}")]
    Infer(#[from] InferError),
}

impl InferenceError {
    /// The closed kind that decides what the caller is told.
    pub fn kind(&self) -> ErrorKind {
        match self {
            InferenceError::Refused(refused) => refused.kind(),
            InferenceError::Infer(error) => error.kind(),
        }
    }

    /// What kind of failure it is, in a word that is the same each time.
    pub fn class(&self) -> &'static str {
        match self {
            InferenceError::Refused(refused) => RefusedAsk::of(refused).value(),
            InferenceError::Infer(error) => class(error),
        }
    }

    /// Tokens that it took all the same.
    pub fn tokens(&self) -> Tokens {
        match self {
            InferenceError::Refused(_) => Tokens::default(),
            InferenceError::Infer(error) => error.tokens(),
        }
    }

    /// How long until it may be otherwise, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            InferenceError::Refused(Refused::DaySpent { .. }) => Some(until_midnight(wall_now())),
            _ => None,
        }
    }
}

/// Who asks, and for what.
#[derive(Clone)]
pub struct Asker {
    /// The request.
    pub request_id: RequestId,
    /// Who pays.
    pub principal: Principal,
    /// The run it is for; asks of one run take turns with those of others.
    pub run: Option<Arc<Run>>,
    /// Who waits for the answer.
    pub class: Class,
    /// How long it may wait for a place; the setting when `None`.
    pub patience: Option<Duration>,
}

impl Asker {
    fn ask(&self, image_bytes: u64, tokens: u64) -> Ask {
        let stream = self.run.as_ref().map_or("direct".to_owned(), |run| run.id().to_string());
        Ask {
            principal: self.principal.as_str().into(),
            stream: stream.into(),
            class: self.class,
            image_bytes,
            tokens,
            patience: self.patience,
        }
    }
}

/// The backends and the way to them.
pub struct Inference {
    chain: Chain,
    catalog: Arc<Catalog>,
    admission: Admission,
    days: Arc<TokenDays>,
    limit_per_day: u64,
    registry: Arc<Registry>,
    metrics: Arc<Metrics>,
}

impl Inference {
    /// Inference as `config` says.
    pub fn open(
        config: &Config,
        registry: Arc<Registry>,
        ledger: Ledger,
        metrics: Arc<Metrics>,
    ) -> Result<Inference, InferenceStartError> {
        let (backends, limits) = (&config.inference.backends, config.inference.limits);
        let configured = backends.iter().filter_map(|backend| {
            Some((backend.model.clone()?, backend.api == infer::Api::Gemini))
        });
        let catalog = Arc::new(Catalog::new(configured));
        let known = Arc::clone(&catalog);
        let tls = client_config(Trust::Roots(roots(config.egress.ca_path.as_deref())?))?;
        metrics.inference.name_providers(backends.iter().map(|backend| Arc::clone(&backend.name)));
        let chain = Chain::new(backends.clone(), (*tls).clone(), move |id| known.contains(id))?
            .observed_by(Arc::new(metrics.inference.clone()));
        let days = Arc::new(TokenDays::open(ledger, today())?);
        let (heard, counted) = (Arc::clone(&days), Arc::clone(&metrics));
        let on_use = move |found| {
            if heard.note(&found) {
                counted.token_budgets_low.inc();
                tracing::warn!(principal = %found.principal, used = found.used, limit = found.limit,
                    "the tokens of the day run low");
            }
        };
        let admission = Admission::new(limits, Box::new(today), Box::new(on_use));
        for (principal, day, used) in days.used() {
            admission.restore(principal, day, used);
        }
        let limit_per_day = limits.tokens_per_day;
        Ok(Inference { chain, catalog, admission, days, limit_per_day, registry, metrics })
    }

    /// Keeps what is used of the day on disk, until `stop`.
    pub fn start(&self, stop: CancellationToken) {
        tokio::spawn(Arc::clone(&self.days).run(stop));
    }

    /// Writes what was used of the day; waits for the disk.
    pub fn flush(&self) {
        self.days.flush();
    }

    /// The models that a caller can name.
    pub fn catalog(&self) -> &Catalog {
        &self.catalog
    }

    /// Some backend is configured.
    pub fn is_configured(&self) -> bool {
        self.chain.backends().next().is_some()
    }

    /// The model of the first backend that names one, or else the first of the catalog that any
    /// backend serves.
    pub fn default_model(&self) -> Option<String> {
        let named = self.chain.backends().find_map(|backend| backend.model.clone());
        named.or_else(|| {
            let served = |id: &&str| self.chain.candidates(id).next().is_some();
            self.catalog.ids().find(served).map(str::to_owned)
        })
    }

    /// Whether each backend can be reached, at most five seconds ago.
    pub async fn probe(&self) -> Arc<[Probe]> {
        self.chain.probe().await
    }

    /// Names of the backends that serve `model`, in the order in which they are asked.
    pub fn providers(&self, model: &str) -> Vec<Arc<str>> {
        self.chain.candidates(model).map(|backend| Arc::clone(&backend.name)).collect()
    }

    /// What waits and what is under way.
    pub fn load(&self) -> Load {
        self.admission.load()
    }

    /// What `principal` has used of this day's tokens, and the limit; `None` without one.
    pub fn day(&self, principal: &Principal) -> Option<(u64, u64)> {
        let limit = self.limit_per_day;
        (limit > 0).then(|| (self.days.used_of(principal, today()), limit))
    }

    /// Asks a model, and a second one where the first is unsure, in one place.
    pub async fn describe(
        &self,
        asker: &Asker,
        tiered: &Tiered,
    ) -> Result<Described, InferenceError> {
        let first = &tiered.first;
        let (bytes, tokens) = (first.image_bytes(), first.tokens_estimate());
        // Either pass may take as many.
        let passes = 1 + u64::from(tiered.second_model.is_some());
        let reserved = tokens.saturating_mul(passes);
        let permit = self.enter(asker, &first.model, bytes, reserved).await?;
        let span = span(asker, first);
        let described = self.chain.describe(tiered).instrument(span.clone()).await;
        let answer = described.as_ref().map(|described| &described.answer);
        self.settle(asker, permit, tokens, answer, &span).await;
        Ok(described?)
    }

    /// Waits for a place of this size; an ask that nobody could answer does not wait.
    pub async fn enter(
        &self,
        asker: &Asker,
        model: &str,
        image_bytes: u64,
        tokens: u64,
    ) -> Result<Permit, InferenceError> {
        if !self.is_configured() {
            return Err(InferError::NoBackend.into());
        }
        if self.chain.candidates(model).next().is_none() {
            return Err(InferError::NotServed { model: model.to_owned() }.into());
        }
        let waiting = tracing::info_span!(target: SPANS, "admission", otel.status_code = Empty);
        let entered = self.admission.enter(asker.ask(image_bytes, tokens));
        match entered.instrument(waiting.clone()).await {
            Ok(permit) => {
                self.metrics.inference_wait_seconds.observe(permit.waited().as_secs_f64());
                Ok(permit)
            }
            Err(refused) => {
                waiting.record("otel.status_code", "ERROR");
                self.metrics.inference_refusals.of(RefusedAsk::of(&refused)).inc();
                if let Refused::DaySpent { used, .. } = refused {
                    self.tell_if_low(asker, used).await;
                }
                Err(refused.into())
            }
        }
    }

    /// Asks a model in a place that was waited for.
    pub async fn answer(
        &self,
        asker: &Asker,
        permit: Permit,
        request: &Request,
    ) -> Result<Answer, InferenceError> {
        let span = span(asker, request);
        let answer = self.chain.infer(request).instrument(span.clone()).await;
        self.settle(asker, permit, request.tokens_estimate(), answer.as_ref(), &span).await;
        Ok(answer?)
    }

    /// Gives a place back for what was spent in it.
    async fn settle(
        &self,
        asker: &Asker,
        permit: Permit,
        estimate: u64,
        answer: Result<&Answer, &InferError>,
        span: &Span,
    ) {
        match answer {
            Ok(answer) => {
                record(span, answer);
                permit.settle(charge(answer.tokens, answer.uncounted, estimate));
            }
            Err(error) => {
                span.record("otel.status_code", "ERROR");
                span.record("error.type", class(error));
                permit.settle(charge(error.tokens(), error.uncounted(), estimate));
            }
        }
        if let Some((used, _)) = self.day(&asker.principal) {
            self.tell_if_low(asker, used).await;
        }
    }

    /// Says on the run's timeline that its owner's tokens of the day run low, once a day.
    async fn tell_if_low(&self, asker: &Asker, used: u64) {
        let (day, limit) = (today(), self.limit_per_day);
        let principal = asker.principal.as_str().into();
        // A refusal tells of a large request, and not yet that little is left.
        if !(Use { principal, day, used, limit }).is_low() {
            return;
        }
        let Some(run) = asker.run.as_ref().filter(|run| run.lifecycle().is_active()) else {
            return;
        };
        if !self.days.tell(&asker.principal, day) {
            return;
        }
        let low = Event::TokenBudgetLow(TokenBudgetLow {
            request_id: asker.request_id,
            principal_key: asker.principal.as_str().to_owned(),
            day: date(day),
            used_tokens: used,
            limit_tokens: self.limit_per_day,
        });
        if let Err(error) = self.registry.commit(run, vec![low]).await {
            self.days.untell(&asker.principal, day);
            tracing::warn!(run = %run.id(), %error, "low tokens are not on the run's timeline");
        }
    }
}

/// What a question is charged.
///
/// A backend that was cut off, or that counts no tokens, has worked and told nothing: each such
/// counts as it was estimated.
fn charge(counted: Tokens, uncounted: u32, estimate: u64) -> Tokens {
    let told = counted.total.max(counted.prompt.saturating_add(counted.completion));
    let total = told.saturating_add(estimate.saturating_mul(u64::from(uncounted)));
    Tokens { total, ..counted }
}

fn class(error: &InferError) -> &'static str {
    match error {
        InferError::Failed(failed) => failed.last().map_or("failed", |one| one.failure.class()),
        InferError::NoBackend => "no backend",
        InferError::NotServed { .. } => "not served",
        InferError::NoProvider { .. } => "no provider",
    }
}

/// The span of a question, in the words of OpenTelemetry's conventions for generative models.
fn span(asker: &Asker, request: &Request) -> Span {
    tracing::info_span!(
        target: SPANS,
        "inference",
        otel.name = format!("chat {}", request.model),
        otel.kind = "client",
        otel.status_code = Empty,
        "error.type" = Empty,
        gen_ai.operation.name = "chat",
        "gen_ai.output.type" = if request.schema.is_some() { "json" } else { "text" },
        gen_ai.provider.name = Empty,
        gen_ai.request.model = request.model,
        gen_ai.request.max_tokens = request.max_tokens,
        gen_ai.request.temperature = request.temperature,
        gen_ai.response.model = Empty,
        gen_ai.response.finish_reasons = Empty,
        gen_ai.usage.input_tokens = Empty,
        gen_ai.usage.output_tokens = Empty,
        images = request.images.len(),
        principal = asker.principal.as_str(),
        request_id = %asker.request_id,
        run = asker.run.as_ref().map(|run| run.id().to_string()),
    )
}

fn record(span: &Span, answer: &Answer) {
    span.record("gen_ai.provider.name", &*answer.provider);
    span.record("gen_ai.response.model", answer.model.as_str());
    span.record("gen_ai.response.finish_reasons", answer.finish.as_str());
    span.record("gen_ai.usage.input_tokens", answer.tokens.prompt);
    span.record("gen_ai.usage.output_tokens", answer.tokens.completion);
}

/// The number of the UTC day.
fn today() -> u64 {
    u64::try_from(wall_now().epoch_ms.div_euclid(DAY_MS)).unwrap_or_default()
}

fn date(day: u64) -> String {
    let epoch_ms = i64::try_from(day).unwrap_or_default().saturating_mul(DAY_MS);
    let mut text = WallTime { epoch_ms }.rfc3339();
    text.truncate("2026-01-31".len());
    text
}

fn until_midnight(now: WallTime) -> Duration {
    let left = DAY_MS - now.epoch_ms.rem_euclid(DAY_MS);
    Duration::from_millis(left.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use infer::Failure;

    use super::*;

    #[test]
    fn days_have_dates_and_ends() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(20_484), "2026-01-31");
        let at = |epoch_ms| until_midnight(WallTime { epoch_ms });
        assert_eq!(at(0), Duration::from_secs(86_400));
        assert_eq!(at(DAY_MS - 1), Duration::from_millis(1));
        assert_eq!(at(DAY_MS * 3 + 1000), Duration::from_secs(86_399));
    }

    #[test]
    fn what_a_backend_did_not_tell_is_charged_as_estimated() {
        let failed = |failure| {
            let tokens = Tokens { prompt: 4, completion: 1, thinking: 0, total: 5 };
            let (provider, attempts, latency) = ("a".into(), 1, Duration::ZERO);
            InferError::Failed(vec![infer::Failed { provider, failure, tokens, attempts, latency }])
        };
        let spent = |error: &InferError| charge(error.tokens(), error.uncounted(), 100).total;
        let after = Duration::from_secs(1);
        for (failure, expected) in [
            (Failure::Timeout { after }, 105),
            (Failure::Closed, 105),
            (Failure::Refused, 5),
            (Failure::Truncated, 5),
        ] {
            assert_eq!(spent(&failed(failure.clone())), expected, "{failure}");
        }
        assert_eq!(spent(&InferError::NoBackend), 0);
        let unsummed = Tokens { prompt: 4, completion: 2, ..Tokens::default() };
        assert_eq!(charge(unsummed, 2, 100).total, 206, "two were cut off before the answer");
    }
}
