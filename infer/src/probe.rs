//! Probes of the backends: at most one every few seconds, for any number of callers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{BackendChain, FailureKind, config::ApiProtocol};

/// Time for which a probe's result is used.
const FRESH: Duration = Duration::from_secs(5);
/// Time for one backend to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Result of a backend's probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Name of the backend.
    pub name: Arc<str>,
    /// Protocol of the backend.
    pub api: ApiProtocol,
    /// It listed its models.
    pub reachable: bool,
    /// Latency of the probe.
    pub latency: Option<Duration>,
    /// Failure of the probe; where it can be reached, of the last request to it, unless one has
    /// succeeded since.
    pub last_error: Option<FailureKind>,
    /// Names of the models that it listed; `None` where that was no list.
    pub models: Option<Vec<String>>,
    /// Model name that is sent to it, where it is configured for a model.
    pub upstream_model: Option<String>,
}

/// State of a backend towards a model that it serves by its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It can be reached and has the model, as far as it says what it has.
    Ready,
    /// It can be reached and lists other models.
    NameNotServed,
    /// It cannot be reached.
    Unreachable,
}

/// A backend that serves a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Name of the backend.
    pub name: Arc<str>,
    /// State of the backend towards the model.
    pub standing: Standing,
}

/// Probes of one moment.
#[derive(Clone, Debug)]
pub(crate) struct ProbeCache {
    at: Instant,
    probes: Arc<[ProbeResult]>,
}

impl BackendChain {
    /// The backends that serve `model`, in the order in which they are tried, and what `probes` show of
    /// them.
    pub fn standing(&self, model: &str, probes: &[ProbeResult]) -> Vec<Serving> {
        let standing = |name: &str, lacks: bool| {
            let probe = probes.iter().find(|probe| *probe.name == *name);
            match probe.is_some_and(|probe| probe.reachable) {
                true if lacks => Standing::NameNotServed,
                true => Standing::Ready,
                false => Standing::Unreachable,
            }
        };
        let serving = self.serving(model).map(|backend| {
            let name = Arc::clone(&backend.config.name);
            let standing = standing(&name, backend.lacks(&backend.upstream_model(model)));
            Serving { name, standing }
        });
        serving.collect()
    }

    /// Probes the backends, in the order of their priorities. Callers that come together wait for
    /// one probe; it takes two seconds at most.
    pub async fn probe(&self) -> Arc<[ProbeResult]> {
        let mut probed = self.probed.lock().await;
        if let Some(last) = probed.as_ref().filter(|last| last.at.elapsed() < FRESH) {
            return Arc::clone(&last.probes);
        }
        let probes = self.probe_all().await;
        *probed = Some(ProbeCache { at: Instant::now(), probes: Arc::clone(&probes) });
        probes
    }

    async fn probe_all(&self) -> Arc<[ProbeResult]> {
        let mut under_way = JoinSet::new();
        for (place, backend) in self.backends.iter().enumerate() {
            let (backend, http) = (Arc::clone(backend), Arc::clone(&self.http));
            under_way.spawn(async move {
                let shown = backend.probe(&http, LIMIT).await;
                let (shown, failure) = match shown {
                    Ok(shown) => (Some(shown), None),
                    Err(failure) => (None, Some(failure)),
                };
                let last_error = failure.or_else(|| backend.last_failure());
                let (name, api) = (Arc::clone(&backend.config.name), backend.config.api);
                let (latency, models) =
                    shown.map_or((None, None), |(latency, models)| (Some(latency), models));
                let model = backend.config.model.as_ref();
                let asked_for = model.map(|model| backend.upstream_model(model));
                let reachable = latency.is_some();
                let probe = ProbeResult {
                    name,
                    api,
                    reachable,
                    latency,
                    last_error,
                    models,
                    upstream_model: asked_for,
                };
                (place, probe)
            });
        }
        let mut probes = under_way.join_all().await;
        probes.sort_by_key(|(place, _)| *place);
        probes.into_iter().map(|(_, probe)| probe).collect()
    }
}
