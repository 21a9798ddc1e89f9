//! Names a caller may use: analysis modes and the curated models.

/// How thorough an analysis is asked to be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Neither of the others.
    #[default]
    Balanced,
    /// Detail before cost.
    Detailed,
    /// Cost before detail.
    Efficiency,
    /// As the caller's own settings say.
    Custom,
}

impl Mode {
    /// Every mode.
    pub const ALL: [Mode; 4] = [Mode::Balanced, Mode::Detailed, Mode::Efficiency, Mode::Custom];
    /// Every mode, for messages.
    pub const NAMES: &'static str = "balanced, detailed, efficiency, custom";

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Mode::Balanced => "balanced",
            Mode::Detailed => "detailed",
            Mode::Efficiency => "efficiency",
            Mode::Custom => "custom",
        }
    }

    /// The mode called `name`.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.as_str() == name)
    }
}

/// What a model asks of whoever runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tier {
    /// Fewer than ten thousand million parameters: one consumer GPU.
    Small,
    /// More than that: a data-centre GPU, or several.
    Medium,
    /// Run by its maker only.
    Cloud,
}

impl Tier {
    /// Every tier.
    pub const ALL: [Tier; 3] = [Tier::Small, Tier::Medium, Tier::Cloud];

    /// Name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Tier::Small => "small",
            Tier::Medium => "medium",
            Tier::Cloud => "cloud",
        }
    }
}

/// A curated model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Model {
    /// Id on the wire.
    pub id: &'static str,
    /// What it asks for.
    pub tier: Tier,
    family: Family,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    Qwen3Vl,
    Qwen25Vl,
    InternVl3,
    Gemma3,
    SmolVlm2,
    Gemini,
}

const fn model_of(family: Family, tier: Tier, id: &'static str) -> Model {
    Model { id, tier, family }
}

/// The curated models: families together, within a family from the least to the most able.
pub const MODELS: [Model; 27] = {
    use Family::{Gemini, Gemma3, InternVl3, Qwen3Vl, Qwen25Vl, SmolVlm2};
    use Tier::{Cloud, Medium, Small};
    [
        model_of(Qwen3Vl, Small, "qwen3-vl-2b"),
        model_of(Qwen3Vl, Small, "qwen3-vl-4b"),
        model_of(Qwen3Vl, Small, "qwen3-vl-8b"),
        model_of(Qwen3Vl, Medium, "qwen3-vl-30b-a3b"),
        model_of(Qwen3Vl, Medium, "qwen3-vl-32b"),
        model_of(Qwen3Vl, Medium, "qwen3-vl-235b-a22b"),
        model_of(Qwen25Vl, Small, "qwen2.5-vl-3b"),
        model_of(Qwen25Vl, Small, "qwen2.5-vl-7b"),
        model_of(Qwen25Vl, Medium, "qwen2.5-vl-32b"),
        model_of(Qwen25Vl, Medium, "qwen2.5-vl-72b"),
        model_of(InternVl3, Small, "internvl3-1b"),
        model_of(InternVl3, Small, "internvl3-2b"),
        model_of(InternVl3, Small, "internvl3-8b"),
        model_of(InternVl3, Medium, "internvl3-14b"),
        model_of(InternVl3, Medium, "internvl3-38b"),
        model_of(InternVl3, Medium, "internvl3-78b"),
        model_of(Gemma3, Small, "gemma-3-4b"),
        model_of(Gemma3, Medium, "gemma-3-12b"),
        model_of(Gemma3, Medium, "gemma-3-27b"),
        model_of(SmolVlm2, Small, "smolvlm2-256m"),
        model_of(SmolVlm2, Small, "smolvlm2-500m"),
        model_of(SmolVlm2, Small, "smolvlm2-2.2b"),
        model_of(Gemini, Cloud, "gemini-2.0-flash"),
        model_of(Gemini, Cloud, "gemini-2.5-flash-lite"),
        model_of(Gemini, Cloud, "gemini-2.5-flash"),
        model_of(Gemini, Cloud, "gemini-2.5-pro"),
        model_of(Gemini, Cloud, "gemini-3-pro"),
    ]
};

impl Model {
    /// Those of its family that ask for less, the most able first: what a caller may ask
    /// for in its place.
    pub fn fallbacks(self) -> impl Iterator<Item = Model> {
        let lesser = MODELS.into_iter().take_while(move |model| model.id != self.id);
        let lesser: Vec<Model> = lesser.filter(|model| model.family == self.family).collect();
        lesser.into_iter().rev()
    }
}

/// The curated model called `id`.
pub fn model(id: &str) -> Option<Model> {
    MODELS.into_iter().find(|model| model.id == id)
}

/// The models that a caller can name: the curated ones, and those that backends are configured for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Catalog {
    configured: Vec<(String, Tier)>,
}

/// A model of a [`Catalog`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed<'a> {
    /// Id on the wire.
    pub id: &'a str,
    /// What it asks for.
    pub tier: Tier,
}

impl Catalog {
    /// The curated models and the `configured` ones, each with whether only its maker runs it.
    pub fn new(configured: impl IntoIterator<Item = (String, bool)>) -> Catalog {
        let mut catalog = Catalog::default();
        for (id, is_cloud) in configured {
            if !catalog.contains(&id) {
                let tier = if is_cloud { Tier::Cloud } else { tier_of(&id) };
                catalog.configured.push((id, tier));
            }
        }
        catalog
    }

    /// Whether a caller can name `id`.
    pub fn contains(&self, id: &str) -> bool {
        model(id).is_some() || self.configured.iter().any(|(known, _)| known == id)
    }

    /// The ids of every model, the curated ones first.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.models().map(|model| model.id)
    }

    /// Every model, the curated ones first.
    pub fn models(&self) -> impl Iterator<Item = Listed<'_>> {
        let curated = MODELS.into_iter().map(|model| Listed { id: model.id, tier: model.tier });
        let configured = self.configured.iter().map(|(id, tier)| Listed { id, tier: *tier });
        curated.chain(configured)
    }
}

/// The tier that the size in a model's id tells, such as `7b`; medium where it tells none.
fn tier_of(id: &str) -> Tier {
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
    if sizes.next().is_some_and(|size| size < 10.0) { Tier::Small } else { Tier::Medium }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_models_join_the_curated_ones_once() {
        let configured = [
            ("house-7b", false, Tier::Small),
            ("org/House-VL-500M", false, Tier::Small),
            ("house-32b-it", false, Tier::Medium),
            ("house", false, Tier::Medium),
            ("far-1b", true, Tier::Cloud),
        ];
        let listed = configured.iter().map(|(id, is_cloud, _)| ((*id).to_owned(), *is_cloud));
        let again = [("house".to_owned(), false), ("qwen3-vl-2b".to_owned(), false)];
        let catalog = Catalog::new(listed.chain(again));
        assert_eq!(catalog.models().count(), MODELS.len() + configured.len());
        for (id, _, tier) in configured {
            let found = catalog.models().find(|model| model.id == id).expect("listed");
            assert_eq!((found.tier, catalog.contains(id)), (tier, true), "{id}");
        }
        assert!(catalog.contains("qwen3-vl-2b") && !catalog.contains("house-8b"));
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
            let first = MODELS.into_iter().position(|model| model.id == found.id);
            assert_eq!(first, Some(at), "{}", found.id);
            let prefix = found.id.split('-').next().expect("a name");
            assert!(found.fallbacks().all(|model| model.id.starts_with(prefix)), "{}", found.id);
        }
    }
}
