//! Models that there are, their names, and the ones that backends have.

use std::sync::Arc;

use infer::{ApiProtocol, BackendChain, ProbeResult, Serving, Standing};

use super::Inference;
use crate::base::model_catalog::Catalog;

impl Inference {
    /// The models that a caller can name, as far as backends were looked at.
    pub fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read())
    }

    /// The models that a caller can name; where one of `names` is none of them, backends are looked at.
    pub async fn catalog_for(&self, names: &[&str]) -> Arc<Catalog> {
        let catalog = self.catalog();
        if names.iter().all(|name| catalog.contains(name)) {
            return catalog;
        }
        self.probe().await;
        self.catalog()
    }

    /// The model of the first backend that names one, or else the first of the catalog that any
    /// backend lists; `None` while none does.
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

    /// The first of the catalog that any backend serves, for all that its configuration says.
    pub fn served_model(&self) -> Option<String> {
        let served = |id: &&str| self.chain.candidates(id).next().is_some();
        self.catalog().ids().find(served).map(str::to_owned)
    }

    /// Reachability of each backend, at most five seconds ago.
    pub async fn probe(&self) -> Arc<[ProbeResult]> {
        let probes = self.chain.probe().await;
        *self.catalog.write() = Arc::new(known(&self.chain));
        probes
    }

    /// The backends that serve `model`, in the order in which they are asked, and what `probes` show of
    /// them.
    pub fn standing(&self, model: &str, probes: &[ProbeResult]) -> Vec<Serving> {
        self.chain.standing(model, probes)
    }

    /// Looks at the backends once and logs what they have; a name that is configured and that a backend
    /// does not list is a warning.
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

/// The models that `chain` is configured for, and those that its backends list.
pub(super) fn known(chain: &BackendChain) -> Catalog {
    let configured =
        chain.backends().filter_map(|backend| Some((backend.model.clone()?, backend.api)));
    let others = configured.chain(chain.listed_uncurated());
    Catalog::new(others.map(|(name, api)| (name, api == ApiProtocol::Gemini)))
}
