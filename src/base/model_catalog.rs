//! Names that a caller may use: analysis modes and models.

use std::collections::HashSet;

use media::Label;

media::named! {
    /// Thoroughness that is asked of an analysis.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub enum Mode {
        #[default]
        Balanced = "balanced",
        Detailed = "detailed",
        Efficiency = "efficiency",
        /// Uses the caller's own settings.
        Custom = "custom",
    }
}

media::named! {
    /// Hardware class that a model needs.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum ModelTier {
        /// Fewer than 10 billion parameters: one consumer GPU.
        Small = "small",
        /// 10 billion parameters or more: one or several data-centre GPUs.
        Medium = "medium",
        /// Hosted by its maker only.
        Cloud = "cloud",
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuratedModel {
    /// Id in the API.
    pub id: &'static str,
    /// Name under which the maker publishes the model, as stock servers list it.
    pub upstream: &'static str,
    pub tier: ModelTier,
}

const fn model_of(tier: ModelTier, id: &'static str, upstream: &'static str) -> CuratedModel {
    CuratedModel { id, upstream, tier }
}

/// Curated models, grouped by family, the first part of the id; within a family from the least to the most
/// capable.
pub const MODELS: [CuratedModel; 27] = {
    use ModelTier::{Cloud, Medium, Small};
    [
        model_of(Small, "qwen3-vl-2b", "Qwen/Qwen3-VL-2B-Instruct"),
        model_of(Small, "qwen3-vl-4b", "Qwen/Qwen3-VL-4B-Instruct"),
        model_of(Small, "qwen3-vl-8b", "Qwen/Qwen3-VL-8B-Instruct"),
        model_of(Medium, "qwen3-vl-30b-a3b", "Qwen/Qwen3-VL-30B-A3B-Instruct"),
        model_of(Medium, "qwen3-vl-32b", "Qwen/Qwen3-VL-32B-Instruct"),
        model_of(Medium, "qwen3-vl-235b-a22b", "Qwen/Qwen3-VL-235B-A22B-Instruct"),
        model_of(Small, "qwen2.5-vl-3b", "Qwen/Qwen2.5-VL-3B-Instruct"),
        model_of(Small, "qwen2.5-vl-7b", "Qwen/Qwen2.5-VL-7B-Instruct"),
        model_of(Medium, "qwen2.5-vl-32b", "Qwen/Qwen2.5-VL-32B-Instruct"),
        model_of(Medium, "qwen2.5-vl-72b", "Qwen/Qwen2.5-VL-72B-Instruct"),
        model_of(Small, "internvl3-1b", "OpenGVLab/InternVL3-1B"),
        model_of(Small, "internvl3-2b", "OpenGVLab/InternVL3-2B"),
        model_of(Small, "internvl3-8b", "OpenGVLab/InternVL3-8B"),
        model_of(Medium, "internvl3-14b", "OpenGVLab/InternVL3-14B"),
        model_of(Medium, "internvl3-38b", "OpenGVLab/InternVL3-38B"),
        model_of(Medium, "internvl3-78b", "OpenGVLab/InternVL3-78B"),
        model_of(Small, "gemma-3-4b", "google/gemma-3-4b-it"),
        model_of(Medium, "gemma-3-12b", "google/gemma-3-12b-it"),
        model_of(Medium, "gemma-3-27b", "google/gemma-3-27b-it"),
        model_of(Small, "smolvlm2-256m", "HuggingFaceTB/SmolVLM2-256M-Video-Instruct"),
        model_of(Small, "smolvlm2-500m", "HuggingFaceTB/SmolVLM2-500M-Video-Instruct"),
        model_of(Small, "smolvlm2-2.2b", "HuggingFaceTB/SmolVLM2-2.2B-Instruct"),
        model_of(Cloud, "gemini-2.0-flash", "models/gemini-2.0-flash"),
        model_of(Cloud, "gemini-2.5-flash-lite", "models/gemini-2.5-flash-lite"),
        model_of(Cloud, "gemini-2.5-flash", "models/gemini-2.5-flash"),
        model_of(Cloud, "gemini-2.5-pro", "models/gemini-2.5-pro"),
        model_of(Cloud, "gemini-3-pro", "gemini-3-pro-preview"),
    ]
};

impl CuratedModel {
    /// Returns the smaller models of the family, the most capable first, as allowed substitutes.
    pub fn fallbacks(self) -> impl Iterator<Item = CuratedModel> {
        let family = |id: &'static str| id.split('-').next();
        let lesser = MODELS.into_iter().take_while(|model| model.id != self.id);
        let lesser: Vec<CuratedModel> =
            lesser.filter(|model| family(model.id) == family(self.id)).collect();
        lesser.into_iter().rev()
    }
}

/// Returns the curated model with this id or upstream name.
pub fn model(name: &str) -> Option<CuratedModel> {
    MODELS.into_iter().find(|model| model.id == name || model.upstream == name)
}

/// Models that a caller can name: the curated ones, those configured for a backend, and those that
/// backends list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    others: Vec<(String, ModelTier)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CatalogEntry<'a> {
    pub id: &'a str,
    pub tier: ModelTier,
}

impl Catalog {
    /// Creates a catalog of the curated models and `others`, flagged true if hosted by their maker only.
    /// Leaves out names that are not valid labels.
    pub fn new(others: impl IntoIterator<Item = (String, bool)>) -> Catalog {
        let (mut catalog, mut known) = (Catalog::default(), HashSet::new());
        for (id, is_cloud) in others {
            let is_new = model(&id).is_none() && !known.contains(&id);
            if is_new && id.parse::<Label>().is_ok() {
                let tier = if is_cloud { ModelTier::Cloud } else { tier_of(&id) };
                known.insert(id.clone());
                catalog.others.push((id, tier));
            }
        }
        catalog
    }

    /// Returns true if a caller can name the model `name`.
    pub fn contains(&self, name: &str) -> bool {
        model(name).is_some() || self.others.iter().any(|(known, _)| known == name)
    }

    /// Returns the ids of all models, curated ones first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.models().map(|model| model.id)
    }

    /// Returns all models, curated ones first.
    pub fn models(&self) -> impl Iterator<Item = CatalogEntry<'_>> {
        let curated =
            MODELS.into_iter().map(|model| CatalogEntry { id: model.id, tier: model.tier });
        let others = self.others.iter().map(|(id, tier)| CatalogEntry { id, tier: *tier });
        curated.chain(others)
    }
}

/// Derives the hardware class from the size in a model's id, such as `7b`; medium if there is none.
fn tier_of(id: &str) -> ModelTier {
    let id = id.to_ascii_lowercase();
    let mut sizes = id.split(['-', '_', ':', '/', ' ']).filter_map(|part| {
        let (number, unit) = part.split_at_checked(part.len().checked_sub(1)?)?;
        let size: f64 = number.parse().ok()?;
        match unit {
            "b" => Some(size),
            "m" => Some(size / 1000.0),
            _ => None,
        }
    });
    if sizes.next().is_some_and(|size| size < 10.0) { ModelTier::Small } else { ModelTier::Medium }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_models_join_the_curated_ones_once() {
        let configured = [
            ("house-7b", false, ModelTier::Small),
            ("org/House-VL-500M", false, ModelTier::Small),
            ("house-32b-it", false, ModelTier::Medium),
            ("house", false, ModelTier::Medium),
            ("far-1b", true, ModelTier::Cloud),
        ];
        let listed = configured.iter().map(|(id, is_cloud, _)| ((*id).to_owned(), *is_cloud));
        let again = [("house".to_owned(), false), ("google/gemma-3-4b-it".to_owned(), false)];
        let catalog = Catalog::new(listed.chain(again));
        assert_eq!(catalog.models().count(), MODELS.len() + configured.len());
        for (id, _, tier) in configured {
            let found = catalog.models().find(|model| model.id == id).expect("listed");
            assert_eq!((found.tier, catalog.contains(id)), (tier, true), "{id}");
        }
        assert!(catalog.contains("qwen3-vl-2b") && !catalog.contains("house-8b"));
        assert!(catalog.contains("Qwen/Qwen3-VL-8B-Instruct"), "as its makers call it");
    }

    #[test]
    fn ids_are_unique_and_fall_back_within_their_family_to_what_asks_for_less() {
        let fallbacks = |id: &str| -> Vec<&str> {
            let model = MODELS.into_iter().find(|model| model.id == id).expect("curated");
            model.fallbacks().map(|model| model.id).collect()
        };
        assert_eq!(fallbacks("qwen3-vl-8b"), ["qwen3-vl-4b", "qwen3-vl-2b"]);
        assert_eq!(fallbacks("gemma-3-27b"), ["gemma-3-12b", "gemma-3-4b"]);
        assert_eq!(fallbacks("smolvlm2-256m"), [""; 0]);
        for (at, found) in MODELS.into_iter().enumerate() {
            for name in [found.id, found.upstream] {
                let named = |known: CuratedModel| known.id == name || known.upstream == name;
                assert_eq!(MODELS.into_iter().position(named), Some(at), "{name}");
            }
        }
    }
}
