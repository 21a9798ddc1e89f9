//! Backends of the service: read from TOML text, or made of the two explicit URLs.
//!
//! Does not open the file nor read the environment: the text and a look-up of variables come in.
//! What is read is complete and checked; a key is in no message and in no debug output.

mod reader;
#[cfg(test)]
mod tests;
mod url;

use std::{fmt, sync::Arc, time::Duration};

use media::ErrorKind;

pub use self::url::{BaseUrl, UrlProblem};
use crate::ProviderKind;

/// Most backends of one file: each is probed and has state of its own.
pub const BACKENDS_MAX: usize = 64;
/// Time for one request to a backend that says nothing else.
pub const TIMEOUT_DEFAULT: Duration = Duration::from_secs(60);
/// Longest time that a backend may be given.
pub const TIMEOUT_MAX: Duration = Duration::from_secs(600);

/// A key, kept out of every log.
#[derive(Clone, PartialEq, Eq)]
pub struct ApiKey(String);

impl ApiKey {
    /// The key in `text`; `None` where it cannot stand in a header.
    pub fn new(text: String) -> Option<ApiKey> {
        let fits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        fits.then_some(ApiKey(text))
    }

    /// The key itself, for the header that it goes into.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ApiKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The programs behind the OpenAI protocol that differ in what this service uses of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenaiKind {
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// mlx-vlm.
    Mlx,
}

/// Protocol of a backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ApiProtocol {
    /// Chat completions; `None` is a program that was not named.
    Openai(Option<OpenaiKind>),
    /// The Gemini API.
    Gemini,
}

impl ApiProtocol {
    /// The `type` of the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            ApiProtocol::Openai(_) => "openai_compat",
            ApiProtocol::Gemini => "gemini",
        }
    }

    /// The kind by which a caller can prefer it; `None` where the program was not named.
    pub const fn provider(self) -> Option<ProviderKind> {
        match self {
            ApiProtocol::Openai(Some(OpenaiKind::Vllm)) => Some(ProviderKind::Vllm),
            ApiProtocol::Openai(Some(OpenaiKind::Sglang)) => Some(ProviderKind::Sglang),
            ApiProtocol::Openai(Some(OpenaiKind::Mlx)) => Some(ProviderKind::Mlx),
            ApiProtocol::Openai(None) => None,
            ApiProtocol::Gemini => Some(ProviderKind::Gemini),
        }
    }

    /// It serves the curated models of this family where it names no model of its own.
    pub(crate) fn serves_family(self, model: &str) -> bool {
        model.starts_with("gemini-") == (self == ApiProtocol::Gemini)
    }
}

/// Settings of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendConfig {
    /// Name in answers and metrics.
    pub name: Arc<str>,
    /// Protocol of the backend.
    pub api: ApiProtocol,
    /// Address of its API.
    pub base_url: BaseUrl,
    /// Key that it requires.
    pub api_key: Option<ApiKey>,
    /// The one model it serves, by the service's id; every curated one of its family when `None`.
    pub model: Option<String>,
    /// Name of that model at the backend.
    pub upstream_model: Option<String>,
    /// Smaller is tried earlier.
    pub priority: u32,
    /// Most time of one call, retries included; where it is not given, the request's own or else
    /// [`TIMEOUT_DEFAULT`].
    pub timeout: Option<Duration>,
}

/// Fault of a field.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldProblem {
    /// The text is not TOML.
    #[error("is not TOML: {0}")]
    Syntax(String),
    /// The format of the file has no such field.
    #[error("is unknown; known are {0}")]
    Unknown(&'static str),
    /// The field is not there.
    #[error("is missing")]
    Missing,
    /// The value is of another type.
    #[error("must be {0}")]
    Not(&'static str),
    /// The number is outside its range.
    #[error("must be an integer in [{0}, {1}]")]
    Range(u64, u64),
    /// Too many entries.
    #[error("has more than {0} entries")]
    TooMany(usize),
    /// A `${...}` names a variable that is not set, or is empty.
    #[error("refers to the variable {0}, which is not set")]
    Variable(String),
    /// A `${` without its end, or with something else than a name in it.
    #[error("holds a ${{ that is not closed or holds no variable name")]
    Reference,
    /// The URL cannot be used.
    #[error("{0}")]
    Url(UrlProblem),
    /// Another backend has the name.
    #[error("is the name of an earlier backend too")]
    Duplicate,
    /// The field says something only beside another.
    #[error("needs {0}")]
    Needs(&'static str),
}

/// Backends that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file}:{line}: {field} {problem}")]
pub struct ConfigError {
    /// The file's name, as it was given.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The field, such as `backends[1].base_url`.
    pub field: String,
    /// Fault of it.
    pub problem: FieldProblem,
}

impl ConfigError {
    /// The closed kind.
    pub const fn kind(&self) -> ErrorKind {
        ErrorKind::InvalidInput
    }
}

/// The two ways to name backends.
#[derive(Clone, Copy, Debug)]
pub struct BackendConfigs;

impl BackendConfigs {
    /// The backends that `text` declares, in the file's order. `${NAME}` in a string is what `lookup`
    /// says of NAME.
    pub fn parse(
        file_name: &str,
        text: &str,
        lookup: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Vec<BackendConfig>, ConfigError> {
        reader::read(file_name, text, lookup)
    }

    /// The backends at the two explicit URLs: vLLM is tried before SGLang.
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
