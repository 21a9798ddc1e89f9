//! TLS client configurations and trust anchors.
//!
//! Every TLS client of the server is configured here, so that all use the same crypto provider and protocol
//! versions. Knows no application protocol.

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

/// Error of loading trusted certificates.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum TrustError {
    /// The file is missing, unreadable or not PEM.
    #[error("no certificates can be read ({reason}): {path}")]
    File { path: PathBuf, reason: String },
    #[error("no certificate found in the file: {0}")]
    Empty(PathBuf),
    /// The library rejects its own defaults, which is a bug.
    #[error("no TLS client can be made: {0}")]
    Setup(#[from] rustls::Error),
}

/// Servers that a client trusts.
#[derive(Clone, Debug)]
pub enum TrustAnchors {
    /// Servers with a certificate issued by these roots for the dialled name.
    Roots(RootCertStore),
    /// Any server: encrypted, but the host is not verified.
    InsecureAcceptAny,
}

/// Loads the system's certificates and those in the PEM file `extra`.
///
/// The result is empty if there are none; such a client can reach no host.
pub fn roots(extra: Option<&Path>) -> Result<RootCertStore, TrustError> {
    let mut roots = match extra {
        Some(path) => roots_in(path)?,
        None => RootCertStore::empty(),
    };
    let native = rustls_native_certs::load_native_certs();
    for error in &native.errors {
        tracing::warn!(%error, "a trusted certificate of the system cannot be read");
    }
    roots.add_parsable_certificates(native.certs);
    Ok(roots)
}

/// Loads the certificates of a PEM file, at least one.
pub fn roots_in(path: &Path) -> Result<RootCertStore, TrustError> {
    let unreadable = |reason: String| TrustError::File { path: path.to_owned(), reason };
    let mut roots = RootCertStore::empty();
    let listed = CertificateDer::pem_file_iter(path).map_err(|e| unreadable(e.to_string()))?;
    for certificate in listed {
        let certificate = certificate.map_err(|error| unreadable(error.to_string()))?;
        roots.add(certificate).map_err(|error| unreadable(error.to_string()))?;
    }
    if roots.is_empty() { Err(TrustError::Empty(path.to_owned())) } else { Ok(roots) }
}

/// Creates a client configuration that trusts `trust` and has no client certificate.
pub fn client_config(trust: TrustAnchors) -> Result<Arc<ClientConfig>, TrustError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?;
    let config = match trust {
        TrustAnchors::Roots(roots) => builder.with_root_certificates(roots).with_no_client_auth(),
        TrustAnchors::InsecureAcceptAny => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(InsecureAcceptAny(provider)))
            .with_no_client_auth(),
    };
    Ok(Arc::new(config))
}

/// Verifier that accepts every certificate, but requires the handshake to be signed with its key.
#[derive(Debug)]
struct InsecureAcceptAny(Arc<CryptoProvider>);

impl ServerCertVerifier for InsecureAcceptAny {
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

#[cfg(test)]
mod tests {
    use rustls::{ClientConnection, ServerConfig, ServerConnection};

    use super::*;

    #[test]
    fn a_file_of_roots_is_whole_or_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = rcgen::generate_simple_self_signed(["host.example".to_owned()]).expect("one");
        let good = made.cert.pem();
        let broken = good.replacen("MII", "!!!", 1);
        let rows: [(&str, Option<&str>, &str); 5] = [
            ("missing.pem", None, "no certificates can be read"),
            ("empty.pem", Some(""), "no certificate found in the file"),
            ("text.pem", Some("not PEM at all"), "no certificate found in the file"),
            ("broken.pem", Some(&broken), "no certificates can be read"),
            ("good.pem", Some(&good), ""),
        ];
        for (name, content, expected) in rows {
            let path = dir.path().join(name);
            if let Some(content) = content {
                std::fs::write(&path, content).expect("written");
            }
            for found in [roots_in(&path), roots(Some(&path))] {
                match found {
                    Ok(roots) => assert!(expected.is_empty() && !roots.is_empty(), "{name}"),
                    Err(error) => {
                        let said = error.to_string();
                        assert!(!expected.is_empty() && said.contains(expected), "{name}: {said}");
                        assert!(said.ends_with(name), "the path comes last: {said}");
                    }
                }
            }
        }
    }

    fn is_believed(trust: TrustAnchors, certificate: &rcgen::CertifiedKey<rcgen::KeyPair>) -> bool {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let key = certificate.signing_key.serialize_der().try_into().expect("a key");
        let server = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)
            .expect("a server");
        let config = client_config(trust).expect("a client");
        let name = "host.example".try_into().expect("a name");
        let mut client = ClientConnection::new(config, name).expect("a client");
        let mut server = ServerConnection::new(Arc::new(server)).expect("a server");
        while client.is_handshaking() {
            let mut wire = Vec::new();
            client.write_tls(&mut wire).expect("in memory");
            server.read_tls(&mut wire.as_slice()).expect("in memory");
            server.process_new_packets().expect("the server has nothing against it");
            wire.clear();
            server.write_tls(&mut wire).expect("in memory");
            client.read_tls(&mut wire.as_slice()).expect("in memory");
            if client.process_new_packets().is_err() {
                return false;
            }
        }
        true
    }

    #[test]
    fn a_client_believes_its_roots_or_everybody() {
        let made = |name: &str| {
            rcgen::generate_simple_self_signed([name.to_owned()]).expect("a certificate")
        };
        let (own, stranger, misnamed) =
            (made("host.example"), made("host.example"), made("other.example"));
        let mut roots = RootCertStore::empty();
        for certificate in [&own, &misnamed] {
            roots.add(certificate.cert.der().clone()).expect("a root");
        }
        let rows = [(&own, true), (&stranger, false), (&misnamed, false)];
        for (certificate, expected) in rows {
            assert_eq!(is_believed(TrustAnchors::Roots(roots.clone()), certificate), expected);
            assert!(is_believed(TrustAnchors::InsecureAcceptAny, certificate));
        }
    }
}
