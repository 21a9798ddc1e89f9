//! Backends of the service, parsed from TOML text or made from the two explicit URLs.
//!
//! Neither opens the file nor reads the environment: callers pass the text and a look-up of variables. The
//! parsed settings are complete and checked; keys appear in no message and no debug output.

mod reader;
#[cfg(test)]
mod tests;
mod url;

use std::{fmt, sync::Arc, time::Duration};

pub use self::url::BaseUrl;
use crate::ProviderKind;

/// Most backends in one file; each is probed and has its own state.
pub const BACKENDS_MAX: usize = 64;
/// Default time limit of one call to a backend.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Longest time limit that a backend may be configured with.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// API key, kept out of every log.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// Creates a key; `None` if the text cannot stand in a header.
    pub fn new(text: String) -> Option<ApiKey> {
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(ApiKey(text))
    }

    /// Returns the key itself, for the header that carries it.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// OpenAI-compatible programs that differ in the features used here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum OpenaiKind {
    Vllm,
    Sglang,
    Mlx,
}

/// Protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiProtocol {
    /// OpenAI chat completions; `None` if the program is not named.
    Openai(Option<OpenaiKind>),
    /// The Gemini API.
    Gemini,
}

impl ApiProtocol {
    /// Returns the `type` of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApiProtocol::Openai(_) => "openai_compat",
            ApiProtocol::Gemini => "gemini",
        }
    }

    /// Returns the kind by which a caller can prefer the backend; `None` if the program is not named.
    pub const fn provider(self) -> Option<ProviderKind> {
        match self {
            ApiProtocol::Openai(Some(OpenaiKind::Vllm)) => Some(ProviderKind::Vllm),
            ApiProtocol::Openai(Some(OpenaiKind::Sglang)) => Some(ProviderKind::Sglang),
            ApiProtocol::Openai(Some(OpenaiKind::Mlx)) => Some(ProviderKind::Mlx),
            ApiProtocol::Openai(None) => None,
            ApiProtocol::Gemini => Some(ProviderKind::Gemini),
        }
    }

    /// Returns true if backends without a configured model serve the curated `model`, by its family.
    pub(crate) fn serves_family(self, model: &str) -> bool {
        model.starts_with("gemini-") == (self == ApiProtocol::Gemini)
    }
}

/// Settings of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct BackendConfig {
    /// Name of the backend in answers and metrics.
    pub name: Arc<str>,
    pub api: ApiProtocol,
    pub base_url: BaseUrl,
    pub api_key: Option<ApiKey>,
    /// The one model served, by the service's id; `None` serves all curated models of the family.
    pub model: Option<String>,
    pub upstream_model: Option<String>,
    /// Priority; a smaller number is tried earlier.
    pub priority: u32,
    /// Longest time of one call, retries included; if `None`, the request's own limit or else
    /// [`TIMEOUT_DEFAULT`].
    pub timeout: Option<Duration>,
}

/// Error of parsing the backends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field} {problem}")]
pub struct ConfigError {
    /// File name as passed in.
    pub file: String,
    /// Line number, from 1.
    pub line: usize,
    /// Path of the field, such as `backends[1].base_url`.
    pub field: String,
    /// Problem with the field, which is its subject.
    pub problem: String,
}

impl BackendConfig {
    /// Returns the backends at the two explicit URLs; vLLM is tried before SGLang.
    pub fn of_urls(vllm: Option<BaseUrl>, sglang: Option<BaseUrl>) -> Vec<BackendConfig> {
        let explicit =
            |kind: OpenaiKind, name: &str, priority: u32, base_url: BaseUrl| BackendConfig {
                name: name.into(),
                api: ApiProtocol::Openai(Some(kind)),
                base_url,
                api_key: None,
                model: None,
                upstream_model: None,
                priority,
                timeout: None,
            };
        let vllm = vllm.map(|url| explicit(OpenaiKind::Vllm, "vllm", 1, url));
        let sglang = sglang.map(|url| explicit(OpenaiKind::Sglang, "sglang", 2, url));
        vllm.into_iter().chain(sglang).collect()
    }
}
