//! The server's certificate: read from PEM files, shown to every client, read again on change.
//!
//! Promises that a pair that does not hold, or was replaced by half, changes nothing: clients see
//! the last good pair, and connections that are open keep what they have.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, SystemTime},
};

use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::time::MissedTickBehavior;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Where a certificate and its key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// The chain in PEM, the server's own first.
    pub chain: PathBuf,
    /// The private key in PEM.
    pub key: PathBuf,
}

/// Why a certificate cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// A file is not there, or is not PEM.
    #[error("cannot read {what} ({reason}): {path}")]
    File {
        /// What the file should hold.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// Why not.
        reason: String,
    },
    /// The file of the chain holds none.
    #[error("holds no certificate: {0}")]
    Empty(PathBuf),
    /// The key is not the certificate's, or of no kind that is served.
    #[error("the certificate and the key do not serve together: {0}")]
    Pair(#[source] rustls::Error),
}

/// What tells one state of the files from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Stamp([(Option<SystemTime>, u64, u64); 2]);

/// A certificate and its key, replaced together.
#[derive(Debug)]
pub struct Certificate {
    files: CertificateFiles,
    current: RwLock<Arc<CertifiedKey>>,
    seen: Mutex<Stamp>,
}

impl Certificate {
    /// Reads the pair.
    pub fn open(files: CertificateFiles) -> Result<Arc<Certificate>, CertificateError> {
        // Before the reading: a change in between is then seen as one.
        let stamp = stamp(&files)?;
        let current = RwLock::new(Arc::new(read(&files)?));
        Ok(Arc::new(Certificate { files, current, seen: Mutex::new(stamp) }))
    }

    /// Where it is read from.
    pub fn files(&self) -> &CertificateFiles {
        &self.files
    }

    /// Reads the pair again if its files have changed since; true when another pair is shown now.
    pub fn look(&self) -> Result<bool, CertificateError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let stamp = stamp(&self.files)?;
        if *seen == stamp {
            return Ok(false);
        }
        *seen = stamp;
        let pair = Arc::new(read(&self.files)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(true)
    }

    /// Looks at the files now and then, and never ends.
    pub async fn watch(self: Arc<Certificate>) {
        let mut tick = tokio::time::interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let certificate = Arc::clone(&self);
            // Files may lie on a disk that hangs.
            match tokio::task::spawn_blocking(move || certificate.look()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("another certificate is in use"),
                Ok(Err(error)) => tracing::error!(%error, "the certificate in use is kept"),
                Err(error) => tracing::error!(%error, "looking at the certificate died"),
            }
        }
    }

    /// TLS that shows this certificate and speaks `protocols` (RFC 7301), the preferred first.
    ///
    /// Early data is off: what a request does must not be done twice.
    pub fn server_config(
        self: &Arc<Certificate>,
        protocols: &[&[u8]],
    ) -> Result<ServerConfig, CertificateError> {
        let mut config = ServerConfig::builder_with_provider(aws_lc_rs::default_provider().into())
            .with_safe_default_protocol_versions()
            .map_err(CertificateError::Pair)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as Arc<dyn ResolvesServerCert>);
        config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
        Ok(config)
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

fn read(files: &CertificateFiles) -> Result<CertifiedKey, CertificateError> {
    let refused = |what, path: &Path| {
        let path = path.to_owned();
        move |error: pem::Error| CertificateError::File { what, path, reason: error.to_string() }
    };
    let chain = CertificateDer::pem_file_iter(&files.chain)
        .and_then(|listed| listed.collect::<Result<Vec<_>, _>>())
        .map_err(refused("certificates", &files.chain))?;
    if chain.is_empty() {
        return Err(CertificateError::Empty(files.chain.clone()));
    }
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(refused("a key", &files.key))?;
    CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider())
        .map_err(CertificateError::Pair)
}

fn stamp(files: &CertificateFiles) -> Result<Stamp, CertificateError> {
    let of = |what, path: &Path| {
        let unreadable = |error: io::Error| CertificateError::File {
            what,
            path: path.to_owned(),
            reason: error.to_string(),
        };
        let found = fs::metadata(path).map_err(unreadable)?;
        Ok((found.modified().ok(), found.len(), std::os::unix::fs::MetadataExt::ino(&found)))
    };
    Ok(Stamp([of("certificates", &files.chain)?, of("a key", &files.key)?]))
}

#[cfg(test)]
pub(crate) mod tests;
