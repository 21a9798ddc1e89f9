//! Reachability probes of the backends: at most one every few seconds, shared by all callers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{BackendChain, FailureKind, config::ApiProtocol};

/// Time for which a probe result is reused.
const FRESH: Duration = Duration::from_secs(5);
/// Time limit for one backend to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// Result of probing one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeResult {
    /// Name of the backend.
    pub name: Arc<str>,
    /// Protocol of the backend.
    pub api: ApiProtocol,
    /// True if the backend answered the request for its model list.
    pub reachable: bool,
    /// Latency of the probe; `None` if it failed.
    pub latency: Option<Duration>,
    /// Failure of the probe; for a reachable backend, that of the last request unless one has succeeded
    /// since.
    pub last_error: Option<FailureKind>,
    /// Names of the listed models; `None` if the backend gave no list.
    pub models: Option<Vec<String>>,
    /// Model name sent to the backend, if the backend is configured for one model.
    pub upstream_model: Option<String>,
}

/// State of a backend with respect to a model that its configuration serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Reachable, and lists the model or gives no list.
    Ready,
    /// Reachable, but lists only other models.
    NameNotServed,
    /// Unreachable.
    Unreachable,
}

/// Backend that serves a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serving {
    /// Name of the backend.
    pub name: Arc<str>,
    /// State of the backend with respect to the model.
    pub standing: Standing,
}

impl BackendChain {
    /// Returns the backends that serve `model`, in the order in which they are tried, and their state
    /// according to `probes`.
    pub fn standing(&self, model: &str, probes: &[ProbeResult]) -> Vec<Serving> {
        let serving = self.serving(model).map(|backend| {
            let name = Arc::clone(&backend.config.name);
            let standing = match probes.iter().any(|probe| probe.reachable && probe.name == name) {
                true if backend.lacks(&backend.upstream_model(model)) => Standing::NameNotServed,
                true => Standing::Ready,
                false => Standing::Unreachable,
            };
            Serving { name, standing }
        });
        serving.collect()
    }

    /// Probes the backends in the order of their priorities. Concurrent callers share one probe, which takes
    /// two seconds at most.
    pub async fn probe(&self) -> Arc<[ProbeResult]> {
        let mut probed = self.probed.lock().await;
        if let Some((_, probes)) = probed.as_ref().filter(|(at, _)| at.elapsed() < FRESH) {
            return Arc::clone(probes);
        }
        let probes = self.probe_all().await;
        *probed = Some((Instant::now(), Arc::clone(&probes)));
        probes
    }

    async fn probe_all(&self) -> Arc<[ProbeResult]> {
        let mut under_way = JoinSet::new();
        for (place, backend) in self.backends.iter().enumerate() {
            let (backend, http) = (Arc::clone(backend), Arc::clone(&self.http));
            under_way.spawn(async move {
                let (latency, models, failure) = match backend.probe(&http, LIMIT).await {
                    Ok((latency, models)) => (Some(latency), models, None),
                    Err(failure) => (None, None, Some(failure)),
                };
                let model = backend.config.model.as_ref();
                let probe = ProbeResult {
                    name: Arc::clone(&backend.config.name),
                    api: backend.config.api,
                    reachable: latency.is_some(),
                    latency,
                    last_error: failure.or_else(|| backend.last_failure()),
                    models,
                    upstream_model: model.map(|model| backend.upstream_model(model)),
                };
                (place, probe)
            });
        }
        let mut probes = under_way.join_all().await;
        probes.sort_by_key(|(place, _)| *place);
        probes.into_iter().map(|(_, probe)| probe).collect()
    }
}
