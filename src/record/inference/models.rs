//! Catalog of models, and the models that backends serve.

use std::sync::Arc;

use infer::{ApiProtocol, BackendChain, ProbeResult, Serving, Standing};

use super::Inference;
use crate::base::model_catalog::Catalog;

impl Inference {
    /// Returns the models that a caller can name, as of the last probe.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// Returns the models that a caller can name; probes the backends first if one of `names` is missing.
    pub async fn catalog_for(&self, names: &[&str]) -> Arc<Catalog> {
        let catalog = self.catalog();
        if names.iter().all(|name| catalog.contains(name)) {
            return catalog;
        }
        self.probe().await;
        self.catalog()
    }

    /// Returns the model of the first backend that is configured with one, else the first of the
    /// catalog that any backend lists; `None` if no backend lists any.
    pub async fn offered_model(&self) -> Option<String> {
        let named = self.chain.backends().find_map(|backend| backend.model.clone());
        if named.is_some() {
            return named;
        }
        let probes = self.probe().await;
        let is_ready = |serving: &Serving| serving.standing == Standing::Ready;
        let offered = |id: &&str| self.standing(id, &probes).iter().any(is_ready);
        self.catalog().ids().find(offered).map(str::to_owned)
    }

    /// Returns the first model of the catalog that a backend may serve by its configuration.
    pub fn served_model(&self) -> Option<String> {
        let served = |id: &&str| self.chain.candidates(id).next().is_some();
        self.catalog().ids().find(served).map(str::to_owned)
    }

    /// Returns the reachability of each backend, at most five seconds old.
    pub async fn probe(&self) -> Arc<[ProbeResult]> {
        let probes = self.chain.probe().await;
        *self.catalog.write() = Arc::new(known(&self.chain));
        probes
    }

    /// Returns the backends that serve `model`, in the order of their use, with the results of
    /// `probes`.
    pub fn standing(&self, model: &str, probes: &[ProbeResult]) -> Vec<Serving> {
        self.chain.standing(model, probes)
    }

    /// Probes the backends once and logs their models; warns if a backend does not list its
    /// configured model.
    pub(super) async fn tell_models(&self) {
        for ProbeResult {
            name, reachable, models, upstream_model: asked_for, last_error, ..
        } in &*self.probe().await
        {
            let error = last_error.as_ref().map(ToString::to_string);
            let lists = models.as_ref().map(|models| models.join(", "));
            let lacks = |model: &String| !models.as_ref().is_none_or(|all| all.contains(model));
            match asked_for {
                _ if !reachable => tracing::warn!(
                    provider = %name, error, "the model backend cannot be reached now"
                ),
                Some(model) if lacks(model) => tracing::warn!(
                    provider = %name, asked_for = model, lists,
                    "the model backend does not list the model that it is configured for"
                ),
                _ => tracing::info!(provider = %name, lists, "the model backend is there"),
            }
        }
    }
}

/// Catalog of the models that `chain` is configured for and that its backends list.
pub(super) fn known(chain: &BackendChain) -> Catalog {
    let configured =
        chain.backends().filter_map(|backend| Some((backend.model.clone()?, backend.api)));
    let others = configured.chain(chain.listed_uncurated());
    Catalog::new(others.map(|(name, api)| (name, api == ApiProtocol::Gemini)))
}
