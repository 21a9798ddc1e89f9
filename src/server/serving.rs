//! Protocols and certificates of the listeners, and errors that prevent serving.

use std::{io, net::SocketAddr, sync::Arc};

use transport::{CertificateError, CertificatePaths, ReloadingCertificate, TransportError};

/// Protocols and certificates of the listeners.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingConfig {
    /// Certificate of HTTP/1.1 and HTTP/2; `None` serves them in clear text.
    pub tls: Option<CertificatePaths>,
    /// HTTP/3 listener; `None` serves no HTTP/3.
    pub h3: Option<Http3Config>,
}

/// Address and certificate of the HTTP/3 listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3Config {
    pub bind_addr: SocketAddr,
    pub certificate: CertificatePaths,
}

impl ServingConfig {
    /// Returns each distinct certificate with the settings that name its files: first that of HTTP/1.1
    /// and HTTP/2, then that of HTTP/3 if it differs.
    pub fn certificates(&self) -> impl Iterator<Item = (&CertificatePaths, &'static str)> {
        let tls =
            self.tls.iter().map(|files| (files, "SERVICE_TLS_CERT_PATH, SERVICE_TLS_KEY_PATH"));
        let h3 = self.h3.iter().map(|h3| &h3.certificate);
        let h3 = h3.filter(|files| self.tls.as_ref() != Some(files));
        tls.chain(h3.map(|files| (files, "SERVICE_H3_TLS_CERT_PATH, SERVICE_H3_TLS_KEY_PATH")))
    }
}

/// Error that prevents the server from listening.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    #[error("{setting}: {source}")]
    Transport { setting: &'static str, source: TransportError },
    #[error("{settings}: {source}")]
    Certificate { settings: &'static str, source: CertificateError },
    #[error("cannot read the local listening address: {0}")]
    Address(#[source] io::Error),
}

/// Loads every certificate of `serving`.
pub fn certificates(
    serving: &ServingConfig,
) -> Result<Vec<Arc<ReloadingCertificate>>, ListenError> {
    let open = |(files, settings): (&CertificatePaths, _)| {
        ReloadingCertificate::open(files.clone())
            .map_err(|source| ListenError::Certificate { settings, source })
    };
    serving.certificates().map(open).collect()
}
