//! Address of the database: a libpq connection URL, with libpq's meaning of `sslmode`.
//!
//! `prefer` and `require` encrypt without verifying the server, as in libpq; `verify-full` checks
//! the certificate and its name.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use rustls::{ClientConfig, RootCertStore};
use tokio_postgres::{Config, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;
use transport::tls::{self, TrustAnchors};

use crate::base::json::ValueError;

/// Maximum time to establish a connection.
const CONNECT: Duration = Duration::from_secs(5);

/// Address of a database, with credentials and TLS settings.
#[derive(Clone)]
pub struct DatabaseUrl {
    config: Config,
    tls: Arc<ClientConfig>,
}

impl fmt::Debug for DatabaseUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DatabaseUrl(hidden)")
    }
}

impl DatabaseUrl {
    /// Parses a `postgres://` URL. The error does not repeat the URL, which may contain a password.
    pub fn parse(url: &str) -> Result<DatabaseUrl, ValueError> {
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
        let mut config: Config = url.parse().map_err(|_| ValueError::from(SHAPE))?;
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
        let trust = if is_verified {
            TrustAnchors::Roots(trusted(roots)?)
        } else {
            TrustAnchors::InsecureAcceptAny
        };
        let tls = tls::client_config(trust).map_err(|error| format!("cannot be used: {error}"))?;
        Ok(DatabaseUrl { config, tls })
    }

    /// Returns the driver's configuration, with each statement limited to `timeout`.
    pub(super) fn connect(&self, timeout: Duration) -> (Config, MakeRustlsConnect) {
        let mut config = self.config.clone();
        let ms = timeout.as_millis();
        let limits = format!(
            "-c statement_timeout={ms} -c lock_timeout={ms} \
             -c idle_in_transaction_session_timeout={ms}"
        );
        // The operator's options come last and take precedence.
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

/// Loads the trusted root certificates from a file, or those of the system.
fn trusted(path: Option<&str>) -> Result<RootCertStore, ValueError> {
    let Some(path) = path else {
        let roots = tls::roots(None).map_err(|error| format!("cannot be used: {error}"))?;
        return if roots.is_empty() {
            Err("asks for sslmode=verify-full, and no trusted certificate was found: install \
                 ca-certificates or set sslrootcert"
                .into())
        } else {
            Ok(roots)
        };
    };
    let path = crate::base::percent::decode(path.as_bytes());
    let path = path.ok_or("has an sslrootcert that is not a path")?;
    let roots = tls::roots_in(Path::new(&path));
    Ok(roots.map_err(|error| format!("has an sslrootcert that cannot be used: {error}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_or_refused_without_being_repeated() {
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
            ("postgres://u:hush@h/x?sslrootcert=/no/pem", Some("needs sslmode=verify-full")),
            ("postgres://u:hush@h/x?sslmode=verify-full&sslrootcert=/no/pem", Some("/no/pem")),
        ];
        for (url, expected) in table {
            let found = DatabaseUrl::parse(url).err().map(|problem| problem.0);
            match (found, expected) {
                (None, None) => {}
                (Some(found), Some(expected)) => {
                    assert!(found.contains(expected), "{url}: {found}");
                    assert!(!found.contains("hush"), "{url}: {found}");
                }
                (found, expected) => panic!("{url}: {found:?}, expected {expected:?}"),
            }
        }
        let target = DatabaseUrl::parse("postgres://u:hush@h/x").expect("valid");
        assert!(!format!("{target:?}").contains("hush"));
    }
}
