//! Settings of the span collector and of the filter of log lines.

use std::fmt;

use tracing_subscriber::EnvFilter;

use super::vars::without_credentials;
use super::*;

/// URL of a span collector, which may contain a password.
#[derive(Clone, PartialEq, Eq)]
pub struct TraceEndpoint(String);

impl TraceEndpoint {
    /// Returns the whole URL, password included.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for TraceEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_credentials(&self.0))
    }
}

pub(super) fn collector(text: &str) -> Result<TraceEndpoint, ValueError> {
    let uri: Option<http::Uri> = text.parse().ok();
    let fits = |uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
    };
    match uri.filter(fits) {
        Some(_) => Ok(TraceEndpoint(text.to_owned())),
        None => Err("must be the http or https URL of an OTLP/gRPC collector".into()),
    }
}

pub(super) fn filter(text: &str) -> Result<String, ValueError> {
    match EnvFilter::try_new(text) {
        Ok(_) => Ok(text.to_owned()),
        Err(error) => Err(format!("is not a log filter: {error}").into()),
    }
}
