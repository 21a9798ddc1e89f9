//! Chain of backends: which are asked for a model, in which order, and which stand in for one.
//!
//! Every call ends by its deadline, and dropping it cancels the request under way. Admission (how many
//! calls at once) is not its business.

use std::{
    fmt,
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{
    sync::{Mutex, watch},
    time::sleep_until,
};

use crate::{
    Answer, Failed, InferError, ProviderKind, Purse, Request, TIMEOUT_DEFAULT, Tokens,
    backend::{Backend, Spent, Terms, Ungiven},
    circuit_breaker::Shut,
    config::{Api, BackendConfig},
    http::{Http, SetupError},
    names::Names,
    observe::Observer,
    probe::Probed,
    validation_pool::Judges,
};

/// The backends, in the order of their priorities.
pub struct Chain {
    pub(crate) backends: Vec<Arc<Backend>>,
    pub(crate) http: Arc<Http>,
    pub(crate) probed: Mutex<Option<Probed>>,
    judges: Judges,
    observer: Arc<dyn Observer>,
    /// Counts the trials of backends that ended.
    trials: Arc<watch::Sender<u64>>,
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain").field("backends", &self.backends).finish_non_exhaustive()
    }
}

impl Chain {
    /// The chain of `configs`; of equal priorities the earlier is asked first. `curated` gives the
    /// curated id of a model's name, for the backends that name no model and for what they list.
    pub fn new(
        mut configs: Vec<BackendConfig>,
        tls: rustls::ClientConfig,
        curated: impl Fn(&str) -> Option<&'static str> + Send + Sync + 'static,
    ) -> Result<Chain, SetupError> {
        configs.sort_by_key(|config| config.priority);
        let trials = Arc::new(watch::Sender::new(0));
        let names = Arc::new(Names::new(curated));
        let backend =
            |config| Arc::new(Backend::new(config, Arc::clone(&names), Arc::clone(&trials)));
        Ok(Chain {
            backends: configs.into_iter().map(backend).collect(),
            http: Arc::new(Http::new(tls)?),
            probed: Mutex::new(None),
            judges: Judges::default(),
            observer: Arc::new(()),
            trials,
        })
    }

    /// The same chain, telling `observer` of each attempt.
    #[must_use]
    pub fn observed_by(mut self, observer: Arc<dyn Observer>) -> Chain {
        self.observer = observer;
        self
    }

    /// Settings of the backends, in the order of their priorities.
    pub fn backends(&self) -> impl Iterator<Item = &BackendConfig> {
        self.backends.iter().map(|backend| &backend.config)
    }

    /// The backends that serve `model`, in the order they are asked.
    pub fn candidates(&self, model: &str) -> impl Iterator<Item = &BackendConfig> {
        self.serving(model).map(|backend| &backend.config)
    }

    /// Time until some backend that serves `model` can be asked; `None` when one can be now.
    pub fn rest(&self, model: &str) -> Option<Duration> {
        let now = Instant::now();
        let resting = self.serving(model).map(|backend| Some((backend.rest(now)?, backend)));
        let resting: Vec<_> = resting.collect::<Option<_>>()?;
        let (_, first) = resting.into_iter().min_by_key(|(rest, _)| *rest)?;
        first.rest_turn(now)
    }

    /// Waits while another's ask is to show whether one of the backends that `payer` could ask for
    /// `model` is back.
    pub async fn wait_for_trials(&self, model: &str, payer: &str) {
        let mut ended = self.trials.subscribe();
        loop {
            let now = Instant::now();
            let shut = self.serving(model).map(|backend| backend.shut(payer, now));
            // One that can be asked now is not waited past.
            let Some(shut) = shut.collect::<Option<Vec<_>>>() else { return };
            let tried = shut.into_iter().filter_map(|shut| match shut {
                Shut::Tried(given_up) => Some(given_up),
                Shut::Paused(_) => None,
            });
            let Some(given_up) = tried.min() else { return };
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

    /// The models that backends list and nobody curated, as far as they were looked at.
    pub fn listed_beside(&self) -> impl Iterator<Item = (String, Api)> {
        let listed = |backend: &Arc<Backend>| {
            let api = backend.config.api;
            backend.listed_beside().into_iter().map(move |name| (name, api))
        };
        self.backends.iter().flat_map(listed)
    }

    /// Backends to ask, in order: those of the kind asked for first. The flag says that the first
    /// of them already stands in for another.
    fn order(&self, request: &Request) -> Result<(Vec<&Arc<Backend>>, bool), InferError> {
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

    /// Checks that there is a backend that `request` may be put to.
    pub fn check(&self, request: &Request) -> Result<(), InferError> {
        self.order(request).map(drop)
    }

    /// Asks the backends for an answer, one after the other, each request paid from `purse`.
    pub async fn infer(&self, request: &Request, purse: &dyn Purse) -> Result<Answer, InferError> {
        self.put(request, purse, &mut true).await
    }

    /// The same; a model may be told what is wrong with its answer only while `may_correct`, which
    /// that ends: one correction is all that a question gets, of whichever model.
    pub(crate) async fn put(
        &self,
        request: &Request,
        purse: &dyn Purse,
        may_correct: &mut bool,
    ) -> Result<Answer, InferError> {
        let (order, stands_in) = self.order(request)?;
        let request = Arc::new(request.clone());
        let started = Instant::now();
        let mut failed = Vec::new();
        let (mut tokens, mut attempts) = (Tokens::default(), 0_u32);
        for (place, backend) in order.iter().enumerate() {
            let left = request.timeout.map(|all| all.saturating_sub(started.elapsed()));
            // The failures so far say what took the time.
            if left.is_some_and(|left| left.is_zero()) && !failed.is_empty() {
                break;
            }
            let is_last = place + 1 == order.len();
            let limit = limit(left, backend.config.timeout, is_last);
            let (http, observer, judges) = (&self.http, &*self.observer, &self.judges);
            let may = *may_correct;
            let terms = Terms { http, observer, judges, purse, limit, is_last, may_correct: may };
            let mut spent = Spent::default();
            let began = Instant::now();
            let given = backend.ask(&request, &terms, &mut spent).await;
            *may_correct &= !spent.corrected;
            tokens = tokens + spent.tokens;
            attempts = attempts.saturating_add(spent.attempts);
            let provider = Arc::clone(&backend.config.name);
            match given {
                Ok(given) => {
                    return Ok(Answer {
                        provider,
                        model: request.model.clone(),
                        fallback_used: stands_in || place > 0,
                        text: given.text,
                        json: given.json,
                        finish: given.finish,
                        latency: started.elapsed(),
                        tokens,
                        attempts,
                    });
                }
                Err(Ungiven::Failed(failure)) => {
                    let Spent { tokens, attempts, .. } = spent;
                    let latency = began.elapsed();
                    failed.push(Failed { provider, failure, tokens, attempts, latency });
                }
                Err(Ungiven::NoBudget) if failed.is_empty() => return Err(InferError::NoBudget),
                // The failures so far say what took the tokens.
                Err(Ungiven::NoBudget) => break,
            }
        }
        Err(InferError::Failed(failed))
    }
}

/// Time for one backend, where a question has `left` and the backend is given `own`.
fn limit(left: Option<Duration>, own: Option<Duration>, is_last: bool) -> Duration {
    // A backend that hangs must not use up the time of those that stand in for it.
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
            assert_eq!(limit(left, own, is_last), expected, "{name}");
        }
    }
}
