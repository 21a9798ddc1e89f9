//! Request to a model.

use std::{fmt, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::OutputSchema;

/// Picture of a prompt.
#[derive(Clone, PartialEq, Eq)]
pub struct PromptImage {
    /// The JPEG.
    pub jpeg: Bytes,
    /// Prompt text directly before the picture: its time in the media.
    pub caption: String,
}

/// Omits the picture, which does not belong into a log.
impl fmt::Debug for PromptImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PromptImage")
            .field("jpeg_bytes", &self.jpeg.len())
            .field("caption", &self.caption)
            .finish()
    }
}

media::named! {
    /// Backend programs that a caller can prefer.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    #[allow(missing_docs, reason = "the names say it")]
    pub enum ProviderKind {
        Vllm = "vllm",
        Sglang = "sglang",
        Gemini = "gemini",
        Mlx = "mlx",
    }
}

/// One request to one model.
#[derive(Clone, Debug)]
pub struct InferenceRequest {
    /// The service's id of the model.
    pub model: String,
    /// Prompt text, before the pictures.
    pub prompt: String,
    /// Pictures, each preceded by its caption.
    pub images: Vec<PromptImage>,
    /// Most tokens of the answer; `None` for the backend's default.
    pub max_tokens: Option<u32>,
    /// Sampling temperature; `None` for the backend's default.
    pub temperature: Option<f64>,
    /// Time limit of the whole request, retries and fallbacks included, a third of the rest reserved for
    /// fallbacks; `None` for each backend's own limit.
    pub timeout: Option<Duration>,
    /// Schema that the answer must match.
    pub schema: Option<Arc<OutputSchema>>,
    /// Kind of backend to try first.
    pub primary: Option<ProviderKind>,
    /// True if another backend may answer if the first one fails.
    pub allow_fallback: bool,
}

impl InferenceRequest {
    /// Creates a request of `prompt` alone, with the backends' defaults and with fallbacks.
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
