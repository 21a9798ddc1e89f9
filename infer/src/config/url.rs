//! Base URL of a backend, with its version segment added if missing.

use std::fmt;

use reqwest::Url;

const NO_URL: &str = "is not a URL";

/// URL under which a backend's API begins, without a trailing slash.
#[derive(Clone, PartialEq, Eq)]
pub struct BaseUrl(Url);

impl BaseUrl {
    /// Parses the base URL of an OpenAI-compatible server, written with or without `/v1`. The error says what
    /// the URL does wrong, without the URL, which may hold a key.
    pub fn openai(text: &str) -> Result<BaseUrl, &'static str> {
        BaseUrl::versioned(text, "v1")
    }

    /// Parses the base URL of the Gemini API, written with or without `/v1beta`.
    pub fn gemini(text: &str) -> Result<BaseUrl, &'static str> {
        BaseUrl::versioned(text, "v1beta")
    }

    /// Parses `text` and appends `version` unless a path segment is a version already: gateways have paths
    /// such as `/v1beta/openai` and `/api/v3`.
    fn versioned(text: &str, version: &str) -> Result<BaseUrl, &'static str> {
        let mut url = Url::parse(text.trim()).map_err(|_| NO_URL)?;
        if !matches!(url.scheme(), "http" | "https") {
            return Err("must begin with http:// or https://");
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err("must not hold a user name or password; api_key is the place for a key");
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err("must not hold a query or a fragment");
        }
        let has_version = url.path().split('/').any(is_version);
        // An http URL always has segments: the parser rejects one without a host.
        let mut segments = url.path_segments_mut().map_err(|()| NO_URL)?;
        segments.pop_if_empty();
        if !has_version {
            segments.push(version);
        }
        drop(segments);
        Ok(BaseUrl(url))
    }

    /// Returns the URL of the path `segments` below the base URL.
    pub(crate) fn endpoint(&self, segments: &[&str]) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.extend(segments);
        }
        url
    }
}

impl fmt::Debug for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for BaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_str())
    }
}

/// Returns true for version segments such as `v1`, `v1beta` and `v3`.
fn is_version(segment: &str) -> bool {
    let number = segment.strip_prefix('v').unwrap_or_default();
    number.starts_with(|first: char| first.is_ascii_digit())
}
