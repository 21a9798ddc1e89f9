//! Protocols and certificates of the site, and reasons that they cannot be served.

use std::{io, net::SocketAddr, sync::Arc};

use transport::{CertificateError, CertificatePaths, ReloadingCertificate, TransportError};

/// Protocols and certificates of the site.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServingConfig {
    /// Certificate of HTTP/1.1 and HTTP/2; `None` serves them in clear text.
    pub tls: Option<CertificatePaths>,
    /// HTTP/3 beside them.
    pub h3: Option<Http3Config>,
}

/// Address and certificate of HTTP/3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Http3Config {
    /// UDP address and port.
    pub bind_addr: SocketAddr,
    /// Certificate that it shows.
    pub certificate: CertificatePaths,
}

impl ServingConfig {
    /// The pairs that are shown, and the settings that name them: first that of HTTP/1.1 and HTTP/2,
    /// then that of HTTP/3 where it is another.
    pub fn certificates(&self) -> impl Iterator<Item = (&CertificatePaths, &'static str)> {
        let tls =
            self.tls.iter().map(|files| (files, "SERVICE_TLS_CERT_PATH, SERVICE_TLS_KEY_PATH"));
        let h3 = self.h3.iter().map(|h3| &h3.certificate);
        let h3 = h3.filter(|files| self.tls.as_ref() != Some(files));
        tls.chain(h3.map(|files| (files, "SERVICE_H3_TLS_CERT_PATH, SERVICE_H3_TLS_KEY_PATH")))
    }
}

/// Reason that the site cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is not ours, or is taken.
    #[error("{setting}: {source}")]
    Transport {
        /// The setting that names it.
        setting: &'static str,
        /// Error of the system.
        source: TransportError,
    },
    /// A certificate cannot be shown.
    #[error("{settings}: {source}")]
    Certificate {
        /// The settings that name its files.
        settings: &'static str,
        /// Fault of the files.
        source: CertificateError,
    },
    /// The socket has no address.
    #[error("cannot read the local listening address: {0}")]
    Address(#[source] io::Error),
}

/// Reads every pair that is to be shown.
pub fn certificates(
    serving: &ServingConfig,
) -> Result<Vec<Arc<ReloadingCertificate>>, ListenError> {
    let open = |(files, settings): (&CertificatePaths, _)| {
        ReloadingCertificate::open(files.clone())
            .map_err(|source| ListenError::Certificate { settings, source })
    };
    serving.certificates().map(open).collect()
}
