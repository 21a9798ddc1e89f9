//! Request to a model.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::OutputSchema;

/// A picture for a model.
#[derive(Clone, PartialEq, Eq)]
pub struct PromptImage {
    /// The JPEG.
    pub jpeg: Bytes,
    /// Text of the prompt about it, directly before it: its time in the media.
    pub caption: String,
}

/// Without the picture, which has no place in a log.
impl fmt::Debug for PromptImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptImage")
            .field("jpeg_bytes", &self.jpeg.len())
            .field("caption", &self.caption)
            .finish()
    }
}

media::named! {
    /// The programs that a caller can prefer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub enum ProviderKind {
        /// vLLM.
        Vllm = "vllm",
        /// SGLang.
        Sglang = "sglang",
        /// The Gemini API.
        Gemini = "gemini",
        /// mlx-vlm.
        Mlx = "mlx",
    }
}

/// One request to one model.
#[derive(Clone, Debug)]
pub struct InferenceRequest {
    /// The service's id of the model.
    pub model: String,
    /// The text, in front of the pictures.
    pub prompt: String,
    /// The pictures, each after its caption.
    pub images: Vec<PromptImage>,
    /// Most tokens of the answer; the backend's default when `None`.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; the backend's default when `None`.
    pub temperature: Option<f64>,
    /// Time for the whole, retries and fallbacks included, a third of what is left kept for
    /// fallbacks; each backend's own time when `None`.
    pub timeout: Option<Duration>,
    /// Schema that the answer must match.
    pub schema: Option<Arc<OutputSchema>>,
    /// Kind of backend to try first.
    pub primary: Option<ProviderKind>,
    /// True if another backend may answer when the first does not.
    pub allow_fallback: bool,
}

impl InferenceRequest {
    /// A request of `prompt` alone, the rest as backends have it by default, fallbacks included.
    pub fn new(model: impl Into<String>, prompt: impl Into<String>) -> InferenceRequest {
        InferenceRequest {
            model: model.into(),
            prompt: prompt.into(),
            images: Vec::new(),
            max_tokens: None,
            temperature: None,
            timeout: None,
            schema: None,
            primary: None,
            allow_fallback: true,
        }
    }
}
