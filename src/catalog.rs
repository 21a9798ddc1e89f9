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

/// Ids of the curated models.
pub const MODELS: [&str; 27] = [
    "qwen3-vl-2b",
    "qwen3-vl-4b",
    "qwen3-vl-8b",
    "qwen3-vl-32b",
    "qwen3-vl-30b-a3b",
    "qwen3-vl-235b-a22b",
    "qwen2.5-vl-3b",
    "qwen2.5-vl-7b",
    "qwen2.5-vl-32b",
    "qwen2.5-vl-72b",
    "internvl3-1b",
    "internvl3-2b",
    "internvl3-8b",
    "internvl3-14b",
    "internvl3-38b",
    "internvl3-78b",
    "gemma-3-4b",
    "gemma-3-12b",
    "gemma-3-27b",
    "smolvlm2-256m",
    "smolvlm2-500m",
    "smolvlm2-2.2b",
    "gemini-2.0-flash",
    "gemini-2.5-flash-lite",
    "gemini-2.5-flash",
    "gemini-2.5-pro",
    "gemini-3-pro",
];

/// The curated model called `id`.
pub fn model(id: &str) -> Option<&'static str> {
    MODELS.into_iter().find(|model| *model == id)
}
