//! Chain of backends: order in which the backends are tried for a model, with fallbacks.
//!
//! Every call ends by its deadline, and dropping it cancels the request in flight. Does not limit the number
//! of concurrent calls.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, watch},
    time::sleep_until,
};

use crate::{
    BackendAttempt, BackendError, Completion, InferError, InferenceRequest, ProbeResult,
    ProviderKind, RequestCost, TIMEOUT_DEFAULT, TokenBudget,
    backend::{Backend, CallOptions, RequestUsage},
    circuit_breaker::BreakerOpen,
    config::{ApiProtocol, BackendConfig},
    http::{HttpClient, SetupError},
    validation_pool::ValidationPool,
};

/// Backends in the order of their priorities.
pub struct BackendChain {
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) http: Arc<HttpClient>,
    /// Results of the last probe of all backends, and its time.
    pub(crate) probed: Mutex<Option<(Instant, Arc<[ProbeResult]>)>>,
    validation: ValidationPool,
    observer: Box<dyn Fn(&BackendAttempt<'_>) + Send + Sync>,
    probes_ended: Arc<watch::Sender<u64>>,
}

impl BackendChain {
    /// Creates the chain; of equal priorities the earlier backend is tried first. `curated` returns the
    /// curated id of a model name.
    pub fn new(
        mut configs: Vec<BackendConfig>,
        tls: rustls::ClientConfig,
        curated: fn(&str) -> Option<&'static str>,
    ) -> Result<BackendChain, SetupError> {
        configs.sort_by_key(|config| config.priority);
        let trials = Arc::new(watch::Sender::new(0));
        let backend = |config| Arc::new(Backend::new(config, curated, Arc::clone(&trials)));
        Ok(BackendChain {
            backends: configs.into_iter().map(backend).collect(),
            http: Arc::new(HttpClient::new(tls)?),
            probed: Mutex::new(None),
            validation: ValidationPool::default(),
            observer: Box::new(|_: &BackendAttempt<'_>| {}),
            probes_ended: trials,
        })
    }

    /// Returns the chain with an observer of each attempt, called from the requester's task: must not block.
    #[must_use]
    pub fn observed_by(
        self,
        observer: impl Fn(&BackendAttempt<'_>) + Send + Sync + 'static,
    ) -> BackendChain {
        BackendChain { observer: Box::new(observer), ..self }
    }

    /// Returns the settings of the backends in the order of their priorities.
    pub fn backends(&self) -> impl Iterator<Item = &BackendConfig> {
        self.backends.iter().map(|backend| &backend.config)
    }

    /// Returns the backends that serve `model`, in the order in which they are tried.
    pub fn candidates(&self, model: &str) -> impl Iterator<Item = &BackendConfig> {
        self.serving(model).map(|backend| &backend.config)
    }

    /// Returns the time until a backend that serves `model` accepts requests; `None` if one accepts them now.
    pub fn retry_after(&self, model: &str) -> Option<Duration> {
        let now = Instant::now();
        let waiting = self.serving(model).map(|backend| Some((backend.retry_after(now)?, backend)));
        let waiting: Vec<_> = waiting.collect::<Option<_>>()?;
        let (_, first) = waiting.into_iter().min_by_key(|(wait, _)| *wait)?;
        first.next_slot(now)
    }

    /// Waits while another caller's probe request is in flight to the backends that `principal` could use for
    /// `model`.
    pub async fn wait_for_half_open(&self, model: &str, principal: &str) {
        let mut ended = self.probes_ended.subscribe();
        loop {
            let now = Instant::now();
            let open = self.serving(model).map(|backend| backend.breaker_state(principal, now));
            // A backend that admits requests ends the wait.
            let Some(open) = open.collect::<Option<Vec<_>>>() else { return };
            let half_open = open.into_iter().filter_map(|open| match open {
                BreakerOpen::HalfOpen(given_up) => Some(given_up),
                BreakerOpen::Open(_) => None,
            });
            let Some(given_up) = half_open.min() else { return };
            tokio::select! {
                // The sender lives as long as the chain.
                changed = ended.changed() => if changed.is_err() { return },
                () = sleep_until(given_up.into()) => {}
            }
        }
    }

    pub(crate) fn serving(&self, model: &str) -> impl Iterator<Item = &Arc<Backend>> {
        self.backends.iter().filter(move |backend| backend.serves(model))
    }

    /// Returns the listed models that are not curated, of the lists received so far.
    pub fn listed_uncurated(&self) -> impl Iterator<Item = (String, ApiProtocol)> {
        let listed = |backend: &Arc<Backend>| {
            let api = backend.config.api;
            backend.listed_uncurated().into_iter().map(move |name| (name, api))
        };
        self.backends.iter().flat_map(listed)
    }

    /// Returns the backends to try in order, those of the requested kind first, and true if the first one is
    /// already a fallback.
    fn order(&self, request: &InferenceRequest) -> Result<(Vec<&Arc<Backend>>, bool), InferError> {
        if self.backends.is_empty() {
            return Err(InferError::NoBackend);
        }
        let mut order: Vec<_> = self.serving(&request.model).collect();
        if order.is_empty() {
            return Err(InferError::NotServed { model: request.model.clone() });
        }
        let is_primary =
            |backend: &Backend, kind: ProviderKind| backend.config.api.provider() == Some(kind);
        let mut stands_in = false;
        if let Some(kind) = request.primary {
            order.sort_by_key(|backend| !is_primary(backend, kind));
            stands_in = !is_primary(order[0], kind);
            if stands_in && !request.allow_fallback {
                return Err(InferError::NoProvider { kind });
            }
        }
        if !request.allow_fallback {
            order.truncate(1);
        }
        Ok((order, stands_in))
    }

    /// Checks that a backend serves `request`.
    pub fn check(&self, request: &InferenceRequest) -> Result<(), InferError> {
        self.order(request).map(drop)
    }

    /// Tries the backends in order; each request is charged to `budget`.
    pub async fn infer(
        &self,
        request: &InferenceRequest,
        budget: &dyn TokenBudget,
    ) -> Result<Completion, InferError> {
        self.run(request, budget, &mut true).await
    }

    /// Does the same with at most one repair prompt per request, over all models; sending it clears
    /// `may_correct`.
    pub(crate) async fn run(
        &self,
        request: &InferenceRequest,
        budget: &dyn TokenBudget,
        may_correct: &mut bool,
    ) -> Result<Completion, InferError> {
        let (order, stands_in) = self.order(request)?;
        let request = Arc::new(request.clone());
        let started = Instant::now();
        let (mut failed, mut spent) = (Vec::new(), RequestCost::default());
        for (position, backend) in order.iter().enumerate() {
            let left = request.timeout.map(|all| all.saturating_sub(started.elapsed()));
            // The failures so far explain the time spent.
            if left.is_some_and(|left| left.is_zero()) && !failed.is_empty() {
                break;
            }
            let is_last = position + 1 == order.len();
            let options = CallOptions {
                http: &self.http,
                observer: &*self.observer,
                validation: &self.validation,
                budget,
                time_limit: time_limit(left, backend.config.timeout, is_last),
                is_last,
                may_correct: *may_correct,
            };
            let mut usage = RequestUsage::default();
            let began = Instant::now();
            let answer = backend.complete(&request, &options, &mut usage).await;
            *may_correct &= !usage.corrected;
            let cost = RequestCost { latency: began.elapsed(), ..usage.cost };
            spent = spent + cost;
            let provider = Arc::clone(&backend.config.name);
            match answer {
                Ok(answer) => {
                    return Ok(Completion {
                        provider,
                        model: request.model.clone(),
                        fallback_used: stands_in || position > 0,
                        text: answer.text,
                        json: answer.json,
                        finish: answer.finish,
                        cost: RequestCost { latency: started.elapsed(), ..spent },
                    });
                }
                Err(Some(failure)) => {
                    failed.push(BackendError { provider, failure, cost });
                }
                Err(None) => break,
            }
        }
        // The failures, if any, explain the tokens spent.
        Err(if failed.is_empty() { InferError::NoBudget } else { InferError::Failed(failed) })
    }
}

/// Returns the time limit of one backend; the request has `left`, the backend's own limit is `own`.
fn time_limit(left: Option<Duration>, own: Option<Duration>, is_last: bool) -> Duration {
    // A backend that hangs must not use up the time of its fallbacks.
    let share = left.map(|left| if is_last { left } else { left * 2 / 3 });
    [share, own].into_iter().flatten().min().unwrap_or(TIMEOUT_DEFAULT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_its_own_time_and_a_backend_no_more_than_it_is_given() {
        let secs = Duration::from_secs;
        let rows = [
            ("nobody says", None, None, true, TIMEOUT_DEFAULT),
            ("the question", Some(secs(120)), None, true, secs(120)),
            ("others stand in", Some(secs(120)), None, false, secs(80)),
            ("the backend", None, Some(secs(9)), true, secs(9)),
            ("both", Some(secs(120)), Some(secs(90)), false, secs(80)),
            ("the backend has less", Some(secs(120)), Some(secs(30)), true, secs(30)),
        ];
        for (name, left, own, is_last, expected) in rows {
            assert_eq!(time_limit(left, own, is_last), expected, "{name}");
        }
    }
}
