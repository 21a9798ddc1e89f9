//! The server that requests are sent to, and the caller's credentials.

use std::fmt;

use media::RunId;
use reqwest::{
    Url,
    header::{HeaderMap, HeaderName, HeaderValue},
};

use crate::{
    client::root_cause,
    error::CliError,
    output::printable,
    trust::{self, CaArgs},
};

/// Address of the server, and the caller's credentials.
#[derive(clap::Args, Clone)]
pub struct ServerArgs {
    /// Base URL of the server
    #[arg(
        long,
        global = true,
        env = "SIGHTLINE_SERVER",
        default_value = "http://127.0.0.1:8080",
        value_name = "URL",
        help_heading = "Server"
    )]
    pub server: String,
    /// API key; prefer the variable, arguments are visible to other users
    #[arg(
        long,
        global = true,
        env = "SIGHTLINE_API_KEY",
        hide_env_values = true,
        value_name = "KEY",
        help_heading = "Server"
    )]
    pub key: Option<String>,
    /// Tenant to name in each request, where the server wants one
    #[arg(
        long,
        global = true,
        env = "SIGHTLINE_TENANT_ID",
        value_name = "ID",
        help_heading = "Server"
    )]
    pub tenant: Option<String>,
    /// Certificates to trust
    #[command(flatten)]
    pub trust: CaArgs,
}

impl fmt::Debug for ServerArgs {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerArgs").field("server", &self.server).finish_non_exhaustive()
    }
}

/// Address of the server, and the headers of each request.
pub struct Target {
    pub base: Url,
    pub key: Option<HeaderValue>,
    tenant: Option<HeaderValue>,
}

impl Target {
    /// Checks the address and the header values.
    pub fn new(args: &ServerArgs) -> Result<Target, CliError> {
        let usage =
            |problem: &str| CliError::Usage(format!("{problem}: {}", printable(&args.server)));
        let mut base = Url::parse(&args.server)
            .map_err(|error| usage(&format!("the server address is no URL ({error})")))?;
        if !trust::is_served(&base) {
            return Err(usage("the server address must begin with http:// or https://"));
        }
        if !base.path().ends_with('/') {
            base.set_path(&format!("{}/", base.path()));
        }
        let mut key = args.key.as_deref().map(|key| header("API key", key)).transpose()?;
        key.iter_mut().for_each(|key| key.set_sensitive(true));
        let tenant = args.tenant.as_deref().map(|tenant| header("tenant", tenant)).transpose()?;
        Ok(Target { base, key, tenant })
    }

    /// Returns the server's address, for messages: without credentials.
    pub fn server(&self) -> String {
        trust::shown(&self.base)
    }

    /// Returns the error of a request without an answer.
    pub fn unreachable(&self, error: &reqwest::Error) -> CliError {
        CliError::Unreachable { server: self.server(), reason: root_cause(error) }
    }

    /// Returns the error of an answer that cannot be used.
    pub fn odd(&self, reason: impl ToString) -> CliError {
        CliError::Reply { server: self.server(), reason: reason.to_string() }
    }

    pub fn url(&self, path: &str) -> Result<Url, CliError> {
        self.base
            .join(path)
            .map_err(|error| CliError::Usage(format!("no such path: {path}: {error}")))
    }

    pub fn asked(&self, path: &str, query: &[(&str, String)]) -> Result<Url, CliError> {
        let mut url = self.url(path)?;
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        Ok(url)
    }

    /// Returns the headers with the caller's credentials.
    pub fn headers(&self) -> HeaderMap {
        let named = [("x-api-key", &self.key), ("x-tenant-id", &self.tenant)];
        let named = named.into_iter().filter_map(|(name, value)| Some((name, value.clone()?)));
        named.map(|(name, value)| (HeaderName::from_static(name), value)).collect()
    }
}

/// Returns the path of a run with `rest` appended; refuses ids that would lead elsewhere.
pub fn run_path(run: &str, rest: &str) -> Result<String, CliError> {
    let run: RunId =
        run.parse().map_err(|error| CliError::Usage(format!("{error}: {}", printable(run))))?;
    Ok(format!("v1/runs/{run}{rest}"))
}

/// Returns `text` as the value of a header; `what` names it in the error.
pub fn header(what: &str, text: &str) -> Result<HeaderValue, CliError> {
    HeaderValue::from_str(text).map_err(|_| {
        CliError::Usage(format!("the {what} holds characters that no header can carry"))
    })
}
