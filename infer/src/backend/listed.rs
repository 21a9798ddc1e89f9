//! Lists of backends' models, and the model names that are sent to each backend.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use super::{Backend, LISTING_TIMEOUT};
use crate::{
    FailureKind,
    config::ApiProtocol,
    http::{HttpClient, NoResponse},
    model_list,
};

/// Time for which a backend's list is relied on, and the failure to get one.
const LISTED_FRESH: Duration = Duration::from_secs(60);
const UNLISTED_FRESH: Duration = Duration::from_secs(5);

impl Backend {
    /// It answers for `model`, by whichever of its names: for the one that it is configured for or,
    /// without one, for the curated ones of its family and for what it lists beside them.
    pub fn serves(&self, model: &str) -> bool {
        match (&self.config.model, self.names.curated(model)) {
            (Some(own), _) => self.names.is_same(own, model),
            (None, Some(id)) => self.config.api.serves_family(id),
            (None, None) => self.listed().iter().any(|listed| listed == model),
        }
    }

    /// The models that it listed at the last request for the list.
    pub(super) fn listed(&self) -> Arc<[String]> {
        self.state().listed.clone().unwrap_or_default()
    }

    /// The models that it lists and that are not curated, where it is configured for none of its own.
    pub fn listed_uncurated(&self) -> Vec<String> {
        if self.config.model.is_some() {
            return Vec::new();
        }
        let is_new = |name: &&String| self.names.curated(name).is_none();
        self.listed().iter().filter(is_new).cloned().collect()
    }

    /// Name to send for `model`: the one it is configured with, else the name that it lists for
    /// that model.
    pub fn upstream_model(&self, model: &str) -> String {
        if let Some(configured) = &self.config.upstream_model {
            return configured.clone();
        }
        let listed = self.listed();
        let same = || listed.iter().find(|listed| self.names.is_same(listed, model));
        let found = listed.iter().find(|listed| *listed == model).or_else(same);
        found.or(self.config.model.as_ref()).cloned().unwrap_or_else(|| model.to_owned())
    }

    /// It listed its models and the name `upstream` is not among them, nor has it answered to it: what
    /// programs list is not always what they answer to.
    pub fn lacks(&self, upstream: &str) -> bool {
        let state = self.state();
        let is_listed = |listed: &Arc<[String]>| listed.iter().any(|listed| listed == upstream);
        let answers = state.answers_to.as_deref() == Some(upstream);
        !answers && state.listed.as_ref().is_some_and(|listed| !is_listed(listed))
    }

    /// Requests its list of models, unless that was done a moment ago or the configuration names the
    /// model. Concurrent callers share one request.
    pub async fn refresh_listed(&self, http: &HttpClient) {
        if self.config.upstream_model.is_some() {
            return;
        }
        let mut looked = self.looked.lock().await;
        let is_fresh = looked.is_some_and(|(at, is_listed)| {
            at.elapsed() < if is_listed { LISTED_FRESH } else { UNLISTED_FRESH }
        });
        if !is_fresh {
            let listed = self.probe(http, LISTING_TIMEOUT).await;
            *looked = Some((Instant::now(), listed.is_ok()));
        }
    }

    /// Requests its list of models: the latency, and the list.
    pub async fn probe(
        &self,
        http: &HttpClient,
        limit: Duration,
    ) -> Result<(Duration, Option<Vec<String>>), FailureKind> {
        let started = Instant::now();
        let mut url = self.config.base_url.endpoint(&["models"]);
        if self.config.api == ApiProtocol::Gemini {
            // A page has fifty otherwise.
            url.query_pairs_mut().append_pair("pageSize", "1000");
        }
        let got = match http.get(url.clone(), self.headers(), limit).await {
            Err(NoResponse { is_stale: true, .. }) => {
                let left = limit.saturating_sub(started.elapsed());
                http.get(url, self.headers(), left).await
            }
            got => got,
        };
        let response = got.map_err(|lost| lost.failure)?;
        match response.status {
            200..=299 => {
                let listed = model_list::models(self.config.api, &response.body);
                self.state().listed = listed.clone().map(Arc::from);
                Ok((started.elapsed(), listed))
            }
            // Some list nothing.
            404 | 405 | 501 => Ok((started.elapsed(), None)),
            429 => Err(FailureKind::RateLimited { retry_after: response.retry_after }),
            status => Err(FailureKind::http(status)),
        }
    }
}
