//! Where the database is: a libpq connection URL, with libpq's meaning of `sslmode`.
//!
//! `prefer` and `require` encrypt without knowing to whom, as in libpq; `verify-full` checks
//! the certificate and its name. Does not know what the database is for.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres::{Config, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::json::Problem;

/// Most time for a connection to stand.
const CONNECT: Duration = Duration::from_secs(5);

/// A database and how to reach it.
#[derive(Clone)]
pub struct Target {
    config: Config,
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Target(hidden)")
    }
}

impl Target {
    /// The target of a `postgres://` URL; what is wrong with one is said without repeating it.
    pub fn parse(url: &str) -> Result<Target, Problem> {
        const SHAPE: &str = "must be a URL such as \
                             postgres://user:password@host:5432/database?sslmode=verify-full";
        if !["postgres://", "postgresql://"].iter().any(|scheme| url.starts_with(scheme)) {
            return Err(SHAPE.into());
        }
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut mode, mut roots, mut kept) = ("prefer", None, Vec::new());
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            match pair.split_once('=') {
                Some(("sslmode", value)) => mode = value,
                Some(("sslrootcert", value)) => roots = Some(value),
                _ => kept.push(pair),
            }
        }
        let url = format!("{base}?{}", kept.join("&"));
        let mut config: Config = url.parse().map_err(|_| Problem::from(SHAPE))?;
        if config.get_hosts().is_empty() {
            return Err(SHAPE.into());
        }
        let (ssl, is_verified) = match mode {
            "disable" => (SslMode::Disable, false),
            "prefer" => (SslMode::Prefer, false),
            "require" => (SslMode::Require, false),
            "verify-full" => (SslMode::Require, true),
            _ => {
                return Err(
                    "has an sslmode that is none of disable, prefer, require, verify-full".into()
                );
            }
        };
        if roots.is_some() && !is_verified {
            return Err("has sslrootcert, which needs sslmode=verify-full".into());
        }
        config.ssl_mode(ssl);
        let tls = Arc::new(if is_verified { verified(roots)? } else { unverified() });
        Ok(Target { config, tls })
    }

    /// How the driver reaches the database, each statement limited to `timeout`.
    pub(super) fn connect(&self, timeout: Duration) -> (Config, MakeRustlsConnect) {
        let mut config = self.config.clone();
        let ms = timeout.as_millis();
        let limits = format!(
            "-c statement_timeout={ms} -c lock_timeout={ms} \
             -c idle_in_transaction_session_timeout={ms}"
        );
        // What the operator says comes last and wins.
        let options = match config.get_options() {
            Some(options) => format!("{limits} {options}"),
            None => limits,
        };
        config.options(options);
        if config.get_application_name().is_none() {
            config.application_name("sightline");
        }
        config.connect_timeout(CONNECT.min(timeout));
        config.tcp_user_timeout(timeout);
        (config, MakeRustlsConnect::new((*self.tls).clone()))
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn builder() -> rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier> {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has the default protocol versions")
}

fn verified(roots: Option<&str>) -> Result<ClientConfig, Problem> {
    let mut store = RootCertStore::empty();
    match roots {
        Some(path) => {
            let path = crate::percent::decode(path.as_bytes());
            let path = path.ok_or("has an sslrootcert that is not a path")?;
            add_file(&mut store, Path::new(&path))?;
        }
        None => {
            let found = rustls_native_certs::load_native_certs();
            store.add_parsable_certificates(found.certs);
        }
    }
    if store.is_empty() {
        return Err("asks for sslmode=verify-full, and no trusted certificate was found: install \
                    ca-certificates or set sslrootcert"
            .into());
    }
    Ok(builder().with_root_certificates(store).with_no_client_auth())
}

fn add_file(store: &mut RootCertStore, path: &Path) -> Result<(), Problem> {
    let unreadable = |error: &dyn fmt::Display| {
        Problem::from(format!(
            "has an sslrootcert that cannot be read: {error}: {}",
            path.display()
        ))
    };
    let found = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
    for certificate in found {
        let certificate = certificate.map_err(|error| unreadable(&error))?;
        store.add(certificate).map_err(|error| unreadable(&error))?;
    }
    Ok(())
}

fn unverified() -> ClientConfig {
    let verifier = Arc::new(AnyCertificate(provider()));
    builder().dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth()
}

/// Accepts whatever certificate the server shows, as libpq does below `verify-full`.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
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
    use super::*;

    #[test]
    fn urls_are_taken_or_refused_without_being_repeated() {
        let missing = "/nowhere/roots.pem";
        let table = [
            ("postgres://u:p@db.example/x", None),
            ("postgresql://u:p@db.example:5433/x?sslmode=disable", None),
            ("postgres://u@db.example/x?sslmode=require&connect_timeout=3", None),
            ("postgres:///x?host=/run/postgresql&user=u", None),
            ("mysql://u:hush@db.example/x", Some("must be a URL")),
            ("host=db.example password=hush", Some("must be a URL")),
            ("postgres:///x?user=u", Some("must be a URL")),
            ("postgres://u:hush@db.example:port/x", Some("must be a URL")),
            ("postgres://u:hush@db.example/x?color=red", Some("must be a URL")),
            ("postgres://u:hush@db.example/x?sslmode=verify-ca", Some("none of disable")),
            (
                "postgres://u:hush@h/x?sslrootcert=/nowhere/roots.pem",
                Some("needs sslmode=verify-full"),
            ),
            (
                "postgres://u:hush@h/x?sslmode=verify-full&sslrootcert=/nowhere/roots.pem",
                Some(missing),
            ),
        ];
        for (url, expected) in table {
            let found = Target::parse(url).err().map(|problem| problem.0);
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => {
                    assert!(found.contains(expected), "{url}: {found}");
                    assert!(!found.contains("hush"), "{url}: {found}");
                }
                (found, expected) => panic!("{url}: {found:?}, expected {expected:?}"),
            }
        }
        let target = Target::parse("postgres://u:hush@h/x").expect("valid");
        assert!(!format!("{target:?}").contains("hush"));
    }
}
