//! Whom a TLS client believes: the system's roots and the operator's, or, where he says so, all.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};

/// Trusted certificates that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TrustError {
    /// The file is not there, or is not PEM.
    #[error("no certificates can be read ({reason}): {path}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file has none.
    #[error("holds no certificate: {0}")]
    Empty(PathBuf),
    /// The library refuses its own defaults: our bug.
    #[error("no TLS client can be made: {0}")]
    Setup(#[from] rustls::Error),
}

/// The certificates of the system, and those in the PEM file `extra`.
pub(super) fn roots(extra: Option<&Path>) -> Result<RootCertStore, TrustError> {
    let mut roots = RootCertStore::empty();
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a trusted certificate of the system cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    if let Some(path) = extra {
        let unreadable = |reason: String| TrustError::File { path: path.to_owned(), reason };
        let listed = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(e.to_string()))?;
        let mut count = 0;
        for certificate in listed {
            let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
            roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
            count += 1;
        }
        if count == 0 {
            return Err(TrustError::Empty(path.to_owned()));
        }
    }
    if roots.is_empty() {
        tracing::warn!(
            "no trusted certificate: no TLS host can be reached; install the system's \
             (ca-certificates) or set SERVICE_EGRESS_CA_PATH"
        );
    }
    Ok(roots)
}

/// A client that believes `roots`; `None` believes every certificate.
pub(super) fn client(roots: Option<RootCertStore>) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match roots {
        Some(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        None => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
            .with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Believes every certificate, and still wants its key to have signed the handshake.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
