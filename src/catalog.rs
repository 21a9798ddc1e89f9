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
    /// Those of its family that ask for less, the most able first: what may answer in its place.
    pub fn fallbacks(self) -> impl Iterator<Item = Model> {
        let lesser = MODELS.into_iter().take_while(move |model| model.id != self.id);
        let lesser: Vec<Model> = lesser.filter(|model| model.family == self.family).collect();
        lesser.into_iter().rev()
    }
}

/// The curated model called `id`.
pub fn model(id: &str) -> Option<&'static str> {
    MODELS.into_iter().map(|model| model.id).find(|known| *known == id)
}

#[cfg(test)]
mod tests {
    use super::*;

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
