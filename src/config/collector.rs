//! Where spans are exported to.

use std::fmt;

use super::vars::without_credentials;
use crate::json::Problem;

/// The URL of a collector of spans, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct Collector(String);

impl Collector {
    /// The URL with everything in it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&without_credentials(&self.0))
    }
}

pub(super) fn collector(text: &str) -> Result<Option<Collector>, Problem> {
    let uri: Option<http::Uri> = text.parse().ok();
    let fits = |uri: &http::Uri| {
        matches!(uri.scheme_str(), Some("http" | "https")) && uri.authority().is_some()
    };
    match uri.filter(fits) {
        _ if text.is_empty() => Ok(None),
        Some(_) => Ok(Some(Collector(text.to_owned()))),
        None => Err("must be the http or https URL of an OTLP/gRPC collector".into()),
    }
}
