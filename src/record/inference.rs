//! Access to the models: admission, then the backends, with metrics, traces and token accounting.
//!
//! Promises that no model is asked without a permit and a token budget, that the permit is released however
//! the request ends, and that an owner is told once a day when its tokens run low, on the first of its runs
//! that takes the event. Writes no other event: the requester records the answer.

mod daily_usage_store;
mod error;
mod models;
mod spans;
mod wait_budget;

use std::{
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use infer::{
    BackendChain, BackendConfig, Completion, InferError, InferenceAdmission, InferencePermit,
    InferenceRequest, TwoPassAnswer, TwoPassRequest,
    scheduler::{
        AdmissionError, AdmissionLimits, AdmissionRequest, DailyUsage, Priority, SchedulerLoad,
    },
};
use media::{RequestId, Seq, WallTime};
use parking_lot::RwLock;
use timeline::{Event, TokenBudgetLow};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, Span, field::Empty};
use transport::tls::{TrustAnchors, client_config, roots};

use crate::{
    base::{
        clock::wall_now,
        keys::Principal,
        meta_store::MetaStore,
        metrics::{Metrics, RefusalLabel},
        model_catalog::{self, Catalog},
        telemetry::SPANS,
    },
    runs::{
        lifecycle::RunState,
        registry::{Run, RunRegistry},
    },
};
use daily_usage_store::DailyUsageStore;
pub use error::{InferenceError, InferenceStartError};
pub use wait_budget::WaitBudget;

/// Settings of the model backends and of admission to them.
#[derive(Clone, Debug)]
pub struct InferenceConfig {
    /// Model backends; an empty list turns inference off.
    pub backends: Vec<BackendConfig>,
    pub limits: AdmissionLimits,
    /// Longest wait of a reasoning for backends that are unavailable.
    pub outage: Duration,
}

const DAY_MS: i64 = 86_400_000;

/// Requester of an inference, and the terms of its waits.
#[derive(Clone)]
pub struct Requester {
    pub request_id: RequestId,
    pub principal: Principal,
    /// Run that the request is for; runs are served in turn.
    pub run: Option<Arc<Run>>,
    /// Priority: a caller that waits, or a job.
    pub class: Priority,
    /// Longest wait for a permit; `None` selects the configured one.
    pub patience: Option<Duration>,
    /// True to spend that time also on waiting for a `Retry-After` or a half-open probe to end;
    /// false to return such a failure at once.
    pub waits_out: bool,
}

/// Client of the model backends, behind admission.
pub struct Inference {
    chain: BackendChain,
    catalog: RwLock<Arc<Catalog>>,
    admission: InferenceAdmission,
    days: Arc<DailyUsageStore>,
    limits: AdmissionLimits,
    registry: Arc<RunRegistry>,
    metrics: Arc<Metrics>,
}

impl Inference {
    /// Creates the client; trusts the certificates in `ca_path` besides the system's.
    pub fn open(
        config: &InferenceConfig,
        ca_path: Option<&Path>,
        registry: Arc<RunRegistry>,
        ledger: MetaStore,
        metrics: Arc<Metrics>,
    ) -> Result<Inference, InferenceStartError> {
        let (backends, limits) = (&config.backends, config.limits);
        let tls = client_config(TrustAnchors::Roots(roots(ca_path)?))?;
        metrics.inference.name_providers(backends.iter().map(|backend| Arc::clone(&backend.name)));
        let curated = |name: &str| model_catalog::model(name).map(|model| model.id);
        let observer = metrics.inference.clone();
        let chain = BackendChain::new(backends.clone(), (*tls).clone(), curated)?
            .observed_by(move |attempt| observer.attempted(attempt));
        let days = Arc::new(DailyUsageStore::open(ledger, today())?);
        let (heard, counted) = (Arc::clone(&days), Arc::clone(&metrics));
        let on_use = move |found| note(&heard, &counted, &found);
        let admission = InferenceAdmission::new(limits, Box::new(today), Box::new(on_use));
        for (principal, day, used) in days.used() {
            admission.restore(principal, day, used);
        }
        let catalog = RwLock::new(Arc::new(models::known(&chain)));
        Ok(Inference { chain, catalog, admission, days, limits, registry, metrics })
    }

    /// Starts writing the daily usage to disk, until `stop`, and logs the models of the backends once.
    pub fn start(self: &Arc<Self>, stop: CancellationToken) {
        tokio::spawn(Arc::clone(&self.days).run(stop.clone()));
        let inference = Arc::clone(self);
        let look = async move { inference.tell_models().await };
        tokio::spawn(stop.run_until_cancelled_owned(look));
    }

    /// Writes the daily usage; blocks on the disk.
    pub fn flush(&self) {
        self.days.flush();
    }

    pub fn is_configured(&self) -> bool {
        self.chain.backends().next().is_some()
    }

    /// Names of the backends that serve `model`, in the order of their use.
    pub fn providers(&self, model: &str) -> Vec<Arc<str>> {
        self.chain.candidates(model).map(|backend| Arc::clone(&backend.name)).collect()
    }

    pub fn load(&self) -> SchedulerLoad {
        self.admission.load()
    }

    /// Default longest wait for a permit.
    pub fn wait(&self) -> Duration {
        self.limits.wait
    }

    /// Returns true if principals have a daily token budget: every request then needs a token limit.
    pub fn has_day_limit(&self) -> bool {
        self.limits.tokens_per_day > 0
    }

    /// Tokens that `principal` has used today; `None` without a limit.
    pub fn day(&self, principal: &Principal) -> Option<u64> {
        self.admission.used(&principal.as_str().into()).map(|found| found.used)
    }

    /// Asks a model, and a second one if the first is not confident enough, with one permit. Takes
    /// another permit after a wait for a `Retry-After` or a half-open probe.
    pub async fn describe(
        &self,
        asker: &Requester,
        tiered: &TwoPassRequest,
    ) -> Result<TwoPassAnswer, InferenceError> {
        let first = &tiered.first;
        let (bytes, tokens) = (first.image_bytes(), first.tokens_estimate());
        self.check(first, bytes, tokens)?;
        let mut waiting =
            WaitBudget::new(asker.patience.unwrap_or(self.limits.wait), asker.waits_out);
        loop {
            let entered = self.enter(asker, &first.model, bytes, tokens, &waiting).await;
            let permit = entered.map_err(|error| waiting.failed_with_earlier(error))?;
            let span = spans::begin(asker, first);
            let described = self.chain.describe(tiered, &permit).instrument(span.clone()).await;
            let answer = described.as_ref().map(|described| &described.answer);
            self.end(asker, permit, answer, &span).await;
            match described.map_err(|error| self.failed(asker, error, tokens)) {
                Err(error) if waiting.goes_on(&error) => {}
                Err(error) => return Err(waiting.failed_with_earlier(error)),
                Ok(described) => {
                    let answer = waiting.with_earlier(described.answer);
                    return Ok(TwoPassAnswer { answer, ..described });
                }
            }
        }
    }

    /// Refuses a request that no backend could ever answer.
    pub fn check(
        &self,
        request: &InferenceRequest,
        image_bytes: u64,
        tokens: u64,
    ) -> Result<(), InferenceError> {
        self.chain.check(request)?;
        self.limits.check(image_bytes, tokens).map_err(|refused| self.count(refused).into())
    }

    fn count(&self, refused: AdmissionError) -> AdmissionError {
        self.metrics.inference_refusals.of(RefusalLabel::of(&refused)).inc();
        refused
    }

    /// Waits for a permit for a request that has passed [`Inference::check`].
    pub async fn enter(
        &self,
        asker: &Requester,
        model: &str,
        image_bytes: u64,
        tokens: u64,
        waiting: &WaitBudget,
    ) -> Result<InferencePermit, InferenceError> {
        if waiting.is_on_trial {
            let ended = self.chain.wait_for_half_open(model, asker.principal.as_str());
            // Waiting for the probe has no result: the next request finds the backend open or closed.
            tokio::time::timeout(waiting.left(), ended).await.ok();
        }
        let rest = waiting.rest(self.chain.retry_after(model));
        let stream = asker.run.as_ref().map_or("direct".to_owned(), |run| run.id().to_string());
        let ask = AdmissionRequest {
            principal: asker.principal.as_str().into(),
            stream: stream.into(),
            priority: asker.class,
            image_bytes,
            tokens,
            wait_max: Some(waiting.left()),
            retry_after: rest,
        };
        let span = tracing::info_span!(target: SPANS, "admission", otel.status_code = Empty);
        let entered = self.admission.enter(ask).instrument(span.clone()).await;
        if entered.is_err() {
            span.record("otel.status_code", "ERROR");
        }
        // Before the request is sent, as it may be the one that uses up the rest of the budget.
        self.tell_if_low(asker).await;
        let permit = entered.map_err(|refused| self.count(refused))?;
        self.metrics.inference_wait_seconds.observe(permit.waited().as_secs_f64());
        Ok(permit)
    }

    pub async fn answer(
        &self,
        asker: &Requester,
        permit: InferencePermit,
        request: &InferenceRequest,
    ) -> Result<Completion, InferenceError> {
        let span = spans::begin(asker, request);
        let answer = self.chain.infer(request, &permit).instrument(span.clone()).await;
        self.end(asker, permit, answer.as_ref(), &span).await;
        answer.map_err(|error| self.failed(asker, error, request.tokens_estimate()))
    }

    /// Counts the tokens of an answer and releases the permit.
    async fn end(
        &self,
        asker: &Requester,
        permit: InferencePermit,
        answer: Result<&Completion, &InferError>,
        span: &Span,
    ) {
        spans::end(span, answer);
        if let Ok(answer) = answer {
            let work = self.metrics.owners.of(&asker.principal);
            work.tokens.fetch_add(answer.cost.tokens.total, Relaxed);
        }
        drop(permit);
        self.tell_if_low(asker).await;
    }

    /// Maps `error` to the caller's: a token budget that ran out after admission is refused as at
    /// admission.
    fn failed(&self, asker: &Requester, error: InferError, asked: u64) -> InferenceError {
        let spent = match self.admission.used(&asker.principal.as_str().into()) {
            Some(DailyUsage { used, limit, .. }) if error == InferError::NoBudget => {
                AdmissionError::DaySpent { used, asked, limit }
            }
            _ => return error.into(),
        };
        self.count(spent).into()
    }

    /// Records once a day that the owner's tokens run low: on the timeline of the requester's run
    /// or, without an active one, of the owner's youngest active run. Without any, a later request
    /// records it.
    async fn tell_if_low(&self, asker: &Requester) {
        let principal = &asker.principal;
        let used = self.admission.used(&principal.as_str().into());
        let Some(found) = used.filter(DailyUsage::is_low) else { return };
        note(&self.days, &self.metrics, &found);
        if self.days.was_told(principal, found.day) {
            return;
        }
        let own = asker.run.clone().filter(|run| run.lifecycle().is_active());
        let Some(run) = own.or_else(|| self.active_run(principal)) else { return };
        if !self.days.tell(principal, found.day) {
            return;
        }
        let low = Event::TokenBudgetLow(TokenBudgetLow {
            request_id: asker.request_id,
            principal_key: principal.as_str().to_owned(),
            day: date(found.day),
            used_tokens: found.used,
            limit_tokens: found.limit,
        });
        if let Err(error) = self.registry.commit(&run, vec![low]).await {
            self.days.untell(principal, found.day);
            tracing::warn!(run = %run.id(), %error, "could not record a token_budget_low event");
        }
    }

    /// Returns the youngest active run of `owner`.
    fn active_run(&self, owner: &Principal) -> Option<Arc<Run>> {
        let states = [RunState::Processing, RunState::Pending];
        states.into_iter().find_map(|state| {
            self.registry.list(owner, Some(state), Seq(u64::MAX), 1).0.into_iter().next()
        })
    }
}

/// Counts and logs once a day that a principal's tokens run low.
fn note(days: &DailyUsageStore, metrics: &Metrics, found: &DailyUsage) {
    if days.note(found) {
        metrics.token_budgets_low.inc();
        let DailyUsage { principal, used, reserved, limit, .. } = found;
        tracing::warn!(%principal, used, reserved, limit, "daily token budget is low");
    }
}

/// Days from the Unix epoch to today, in UTC.
fn today() -> u64 {
    u64::try_from(wall_now().epoch_ms.div_euclid(DAY_MS)).unwrap_or_default()
}

fn date(day: u64) -> String {
    let epoch_ms = i64::try_from(day).unwrap_or_default().saturating_mul(DAY_MS);
    WallTime { epoch_ms }.date()
}

fn until_midnight(now: WallTime) -> Duration {
    let left = DAY_MS - now.epoch_ms.rem_euclid(DAY_MS);
    Duration::from_millis(left.unsigned_abs())
}

#[cfg(test)]
mod tests {
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
}
