//! Certificates that the client trusts over https: the system's, and those of a file.

use std::{fs, path::PathBuf};

use reqwest::{
    Certificate, Url,
    blocking::{Client, ClientBuilder},
    redirect::Policy,
};

use crate::{
    client::{CONNECT, root_cause},
    error::CliError,
};

/// Certificates that are trusted besides the system's.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct CaArgs {
    /// PEM file of certificates to trust besides the system's, where the server's address is https
    #[arg(long, global = true, env = "SIGHTLINE_CA", value_name = "FILE", help_heading = "Server")]
    pub ca: Option<PathBuf>,
}

impl CaArgs {
    /// Builds a client for `url` that trusts these certificates; `set` sets further options.
    pub fn client(
        &self,
        url: &Url,
        set: impl Fn(ClientBuilder) -> ClientBuilder,
    ) -> Result<Client, CliError> {
        let builder = || set(Client::builder());
        let built = match self.certificates()? {
            Some(certificates) => builder().tls_certs_merge(certificates).build(),
            None => builder().build(),
        };
        built
            // Plain HTTP needs no certificates, and a minimal system has none.
            .or_else(|error| match url.scheme() {
                "http" => builder().tls_certs_only([]).build(),
                _ => Err(error),
            })
            .map_err(|error| no_client(&error))
    }

    /// Builds an asynchronous client for `url` that trusts these certificates and follows no redirect.
    pub fn async_client(&self, url: &Url) -> Result<reqwest::Client, CliError> {
        let builder = match self.certificates()? {
            // Plain HTTP needs no certificates, and a minimal system has none.
            _ if url.scheme() == "http" => reqwest::Client::builder().tls_certs_only([]),
            Some(certificates) => reqwest::Client::builder().tls_certs_merge(certificates),
            None => reqwest::Client::builder(),
        };
        let builder = builder.connect_timeout(CONNECT).redirect(Policy::none()).no_proxy();
        builder.build().map_err(|error| no_client(&error))
    }

    /// Reads the certificates of the file, if one is named.
    fn certificates(&self) -> Result<Option<Vec<Certificate>>, CliError> {
        let Some(path) = &self.ca else { return Ok(None) };
        let text =
            fs::read(path).map_err(|source| CliError::Read { path: path.clone(), source })?;
        match Certificate::from_pem_bundle(&text) {
            Ok(certificates) if !certificates.is_empty() => Ok(Some(certificates)),
            _ => Err(CliError::Usage(format!("no certificates in PEM: {}", path.display()))),
        }
    }
}

/// Makes the error of a client that cannot be built.
fn no_client(error: &reqwest::Error) -> CliError {
    CliError::Usage(format!(
        "no HTTP client: {}; install the system's ca-certificates, or name a file with --ca",
        root_cause(error)
    ))
}

/// Returns an address without its credentials.
pub fn shown(url: &Url) -> String {
    let mut shown = url.clone();
    // Both fail only where the address can have none.
    shown.set_username("").ok();
    shown.set_password(None).ok();
    shown.to_string()
}

/// Returns true if `url` is http or https.
pub fn is_served(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}
