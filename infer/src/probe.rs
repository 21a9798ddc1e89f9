//! Which backends can be reached: asked for at most every few seconds, however many want to know.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::task::JoinSet;

use crate::{
    Chain, Failure,
    config::{Api, BackendConfig},
    listing,
};

/// How long a probe's result is good for.
const FRESH: Duration = Duration::from_secs(5);
/// Time for one backend to answer.
const LIMIT: Duration = Duration::from_secs(2);

/// What a backend's probe showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Name of the backend.
    pub name: Arc<str>,
    /// What it speaks.
    pub api: Api,
    /// It listed its models.
    pub reachable: bool,
    /// How long that took.
    pub latency: Option<Duration>,
    /// Why it cannot be reached; where it can, how the last request to it failed, unless one has
    /// succeeded since.
    pub last_error: Option<Failure>,
    /// What it listed; `None` where that was no list.
    pub models: Option<Vec<String>>,
}

impl Probe {
    /// It can be reached and has `model`, which `config`, its configuration, has it serve.
    pub fn offers(&self, config: &BackendConfig, model: &str) -> bool {
        let is_it = *self.name == *config.name;
        is_it && self.reachable && listing::has(config, self.models.as_deref(), model)
    }
}

/// Probes of one moment.
#[derive(Clone, Debug)]
pub(crate) struct Probed {
    at: Instant,
    probes: Arc<[Probe]>,
}

impl Chain {
    /// Whether the backends can be reached, in the order of their priorities. Callers that come
    /// together wait for one probe; it takes two seconds at most.
    pub async fn probe(&self) -> Arc<[Probe]> {
        let mut probed = self.probed.lock().await;
        if let Some(last) = probed.as_ref().filter(|last| last.at.elapsed() < FRESH) {
            return Arc::clone(&last.probes);
        }
        let probes = self.probe_all().await;
        *probed = Some(Probed { at: Instant::now(), probes: Arc::clone(&probes) });
        probes
    }

    async fn probe_all(&self) -> Arc<[Probe]> {
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
                (
                    place,
                    Probe { name, api, reachable: latency.is_some(), latency, last_error, models },
                )
            });
        }
        let mut probes = under_way.join_all().await;
        probes.sort_by_key(|(place, _)| *place);
        probes.into_iter().map(|(_, probe)| probe).collect()
    }
}
