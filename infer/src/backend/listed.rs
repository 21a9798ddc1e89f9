//! Model lists of backends, and the model name that is sent to each backend.

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

/// Time for which a list, or the failure to get one, is relied on.
const LISTED_FRESH: Duration = Duration::from_secs(60);
const UNLISTED_FRESH: Duration = Duration::from_secs(5);

impl Backend {
    /// Returns true if the backend serves `model`. A configured model matches by any of its names; without
    /// one, the backend serves the curated models of its family and the uncurated ones that it lists.
    pub fn serves(&self, model: &str) -> bool {
        match (&self.config.model, (self.curated)(model)) {
            (Some(own), _) => self.is_same(own, model),
            (None, Some(id)) => self.config.api.serves_family(id),
            (None, None) => self.listed().iter().any(|listed| listed == model),
        }
    }

    /// Returns true if both names denote the same model.
    fn is_same(&self, one: &str, other: &str) -> bool {
        let id = (self.curated)(one);
        one == other || id.is_some() && id == (self.curated)(other)
    }

    /// Returns the models of the last list; empty if there is none.
    pub(super) fn listed(&self) -> Arc<[String]> {
        self.state().listed.clone().unwrap_or_default()
    }

    /// Returns the listed models that are not curated; none if the backend is configured for one model.
    pub fn listed_uncurated(&self) -> Vec<String> {
        if self.config.model.is_some() {
            return Vec::new();
        }
        let is_new = |name: &&String| (self.curated)(name).is_none();
        self.listed().iter().filter(is_new).cloned().collect()
    }

    /// Returns the name to send for `model`: the configured upstream name, else the name that the backend
    /// lists for the model, else the configured or requested one.
    pub fn upstream_model(&self, model: &str) -> String {
        if let Some(configured) = &self.config.upstream_model {
            return configured.clone();
        }
        let listed = self.listed();
        let same = || listed.iter().find(|listed| self.is_same(listed, model));
        let found = listed.iter().find(|listed| *listed == model).or_else(same);
        found.or(self.config.model.as_ref()).cloned().unwrap_or_else(|| model.to_owned())
    }

    /// Returns true if the backend lists models without `upstream` and has not answered to that name; some
    /// programs answer to names that they do not list.
    pub fn lacks(&self, upstream: &str) -> bool {
        let state = self.state();
        let is_listed = |listed: &Arc<[String]>| listed.iter().any(|listed| listed == upstream);
        let answers = state.answers_to.as_deref() == Some(upstream);
        !answers && state.listed.as_ref().is_some_and(|listed| !is_listed(listed))
    }

    /// Requests the model list, unless the last one is fresh or the configuration names the upstream model.
    /// Concurrent callers share one request.
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

    /// Requests the model list; returns the latency and the list, `None` if the backend has none.
    pub async fn probe(
        &self,
        http: &HttpClient,
        limit: Duration,
    ) -> Result<(Duration, Option<Vec<String>>), FailureKind> {
        let started = Instant::now();
        let mut url = self.config.base_url.endpoint(&["models"]);
        if self.config.api == ApiProtocol::Gemini {
            // The default page size is 50.
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
            // Some programs have no model list.
            404 | 405 | 501 => Ok((started.elapsed(), None)),
            429 => Err(FailureKind::RateLimited { retry_after: response.retry_after }),
            status => Err(FailureKind::http(status)),
        }
    }
}
