//! Trust of the client over https: the system's authorities, and those of a file.

use std::{fs, path::PathBuf};

use reqwest::{Certificate, Url, blocking::ClientBuilder};

use crate::error::CliError;

/// Certificates that are trusted besides the system's.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct Trust {
    /// PEM file of certificates to trust besides the system's, where the server's address is https
    #[arg(long, global = true, env = "SIGHTLINE_CA", value_name = "FILE", help_heading = "Server")]
    pub ca: Option<PathBuf>,
}

impl Trust {
    /// Adds them to the trust of `builder`.
    pub fn added_to(&self, builder: ClientBuilder) -> Result<ClientBuilder, CliError> {
        Ok(match self.certificates()? {
            Some(certificates) => builder.tls_certs_merge(certificates),
            None => builder,
        })
    }

    /// The certificates of the file, where one is named.
    pub fn certificates(&self) -> Result<Option<Vec<Certificate>>, CliError> {
        let Some(path) = &self.ca else { return Ok(None) };
        let text =
            fs::read(path).map_err(|source| CliError::Read { path: path.clone(), source })?;
        match Certificate::from_pem_bundle(&text) {
            Ok(certificates) if !certificates.is_empty() => Ok(Some(certificates)),
            _ => Err(CliError::Usage(format!("no certificates in PEM: {}", path.display()))),
        }
    }
}

/// Returns true if `url` has a scheme that servers speak.
pub fn is_served(url: &Url) -> bool {
    matches!(url.scheme(), "http" | "https")
}
