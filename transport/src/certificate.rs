//! Server certificate: loaded from PEM files, presented to every client, reloaded on change.
//!
//! Promises that an invalid pair, or one of which only one file was replaced, changes nothing: new clients
//! get the last valid pair, and open connections keep theirs.

use std::{
    fs,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use ::aws_lc_rs::digest;
use rustls::{
    ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, pem, pem::PemObject},
    server::{ClientHello, ResolvesServerCert},
    sign::CertifiedKey,
};
use tokio::time::MissedTickBehavior;
use x509_parser::{certificate::X509Certificate, prelude::FromDer, time::ASN1Time};

/// Interval between two checks of the files for changes.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Largest certificate or key file that is read, in bytes.
const FILE_BYTES_MAX: u64 = 1 << 20;
/// Expected contents of the two files.
const CHAIN: &str = "certificates";
const KEY: &str = "a key";

/// Paths of a certificate and its key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificatePaths {
    /// Certificate chain in PEM, the server's own certificate first.
    pub chain: PathBuf,
    /// Private key in PEM.
    pub key: PathBuf,
}

/// Error of loading a certificate.
#[derive(Debug, thiserror::Error)]
#[allow(missing_docs, reason = "the message of each says it")]
pub enum CertificateError {
    /// A file is missing, unreadable or not PEM.
    #[error("cannot read {what} ({reason}): {path}")]
    File { what: &'static str, path: PathBuf, reason: String },
    #[error("no certificate found in the file: {0}")]
    Empty(PathBuf),
    #[error(
        "certificate and key do not match, or the key is not RSA (2048 bits or more), ECDSA or \
         Ed25519: {0}"
    )]
    Pair(#[source] rustls::Error),
}

/// Certificate and key, replaced together.
#[derive(Debug)]
pub struct ReloadingCertificate {
    files: CertificatePaths,
    current: RwLock<Arc<CertifiedKey>>,
    /// Digests of the texts read last, to detect a change.
    seen: Mutex<[Vec<u8>; 2]>,
}

impl ReloadingCertificate {
    /// Loads the pair.
    pub fn open(files: CertificatePaths) -> Result<Arc<ReloadingCertificate>, CertificateError> {
        let texts = read(&files)?;
        let seen = Mutex::new(digests(&texts));
        let current = RwLock::new(Arc::new(pair(&files, texts)?));
        Ok(Arc::new(ReloadingCertificate { files, current, seen }))
    }

    /// Returns the paths of the files.
    pub fn files(&self) -> &CertificatePaths {
        &self.files
    }

    /// Reloads the pair if its files have changed; true if the pair was replaced.
    pub fn reload_if_changed(&self) -> Result<bool, CertificateError> {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let texts = read(&self.files)?;
        let found = digests(&texts);
        if *seen == found {
            return Ok(false);
        }
        // Wrong contents are reported once; files that cannot be read, at each check.
        *seen = found;
        let pair = Arc::new(pair(&self.files, texts)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = pair;
        Ok(true)
    }

    /// Checks the files periodically; never returns.
    pub async fn watch(self: Arc<ReloadingCertificate>) {
        let mut tick = tokio::time::interval(LOOK_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let certificate = Arc::clone(&self);
            // The check may block: the disk may hang.
            match tokio::task::spawn_blocking(move || certificate.reload_if_changed()).await {
                Ok(Ok(false)) => {}
                Ok(Ok(true)) => tracing::info!("TLS certificate reloaded"),
                Ok(Err(error)) => tracing::error!(%error, "the certificate in use is kept"),
                Err(error) => tracing::error!(%error, "looking at the certificate died"),
            }
        }
    }

    /// Returns a TLS configuration with this certificate and ALPN `protocols` (RFC 7301), preferred first.
    ///
    /// Early data is off, because a replayed request must not be executed twice.
    pub fn server_config(
        self: &Arc<ReloadingCertificate>,
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

impl ResolvesServerCert for ReloadingCertificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

/// Reads the PEM text of the chain and of the key.
fn read(files: &CertificatePaths) -> Result<[Vec<u8>; 2], CertificateError> {
    let text = |what, path: &Path| {
        contents(path).map_err(|error| unreadable(what, path, error.to_string()))
    };
    Ok([text(CHAIN, &files.chain)?, text(KEY, &files.key)?])
}

/// Parses the PEM text of `files`.
fn pair(
    files: &CertificatePaths,
    [chain, key]: [Vec<u8>; 2],
) -> Result<CertifiedKey, CertificateError> {
    let listed = CertificateDer::pem_slice_iter(&chain).collect::<Result<Vec<_>, _>>();
    let listed =
        listed.map_err(|error| unreadable(CHAIN, &files.chain, in_words(&error, &chain)))?;
    let Some(own) = listed.first() else {
        return Err(CertificateError::Empty(files.chain.clone()));
    };
    if let Some(why) = out_of_time(own, ASN1Time::now()) {
        let path = files.chain.display();
        tracing::warn!(%path, why, "clients will refuse the certificate");
    }
    let key = PrivateKeyDer::from_pem_slice(&key)
        .map_err(|error| unreadable(KEY, &files.key, in_words(&error, &key)))?;
    CertifiedKey::from_der(listed, key, &aws_lc_rs::default_provider())
        .map_err(CertificateError::Pair)
}

fn unreadable(what: &'static str, path: &Path, reason: String) -> CertificateError {
    CertificateError::File { what, path: path.to_owned(), reason }
}

/// Reads a regular file of bounded length; a pipe or a device could block the reader for ever.
fn contents(path: &Path) -> io::Result<Vec<u8>> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let mut text = Vec::new();
    fs::File::open(path)?.take(FILE_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!("it is longer than {FILE_BYTES_MAX} bytes")));
    }
    Ok(text)
}

/// Describes the PEM error of `text` for the person who made the file.
fn in_words(error: &pem::Error, text: &[u8]) -> String {
    // Marks of encryption in PKCS#8 and in OpenSSL's older format (RFC 7468 11, RFC 1421 4.6.1.1).
    let is_encrypted = [&b"BEGIN ENCRYPTED PRIVATE KEY"[..], b"Proc-Type: 4,ENCRYPTED"]
        .iter()
        .any(|mark| text.windows(mark.len()).any(|window| window == *mark));
    let words = match error {
        _ if is_encrypted => "it is encrypted, and the server asks for no passphrase",
        pem::Error::MissingSectionEnd { .. } => "its last PEM block has no end",
        pem::Error::IllegalSectionStart { .. } => "a line that begins a PEM block is malformed",
        pem::Error::Base64Decode(_) => "a PEM block is no base64",
        pem::Error::NoItemsFound => "it has no PEM block of that kind",
        _ => return error.to_string(),
    };
    words.to_owned()
}

/// Returns the reason why clients reject the certificate at `now`: not yet valid, expired or unreadable. The
/// server uses the certificate anyway: its clock may be wrong, and there is no other one.
fn out_of_time(own: &CertificateDer<'_>, now: ASN1Time) -> Option<String> {
    let validity = match X509Certificate::from_der(own) {
        Ok((_, parsed)) => parsed.validity().clone(),
        Err(error) => return Some(format!("its times cannot be read: {error}")),
    };
    if now < validity.not_before {
        Some(format!("it holds from {} on", validity.not_before))
    } else if now > validity.not_after {
        Some(format!("it held until {}", validity.not_after))
    } else {
        None
    }
}

fn digests(texts: &[Vec<u8>; 2]) -> [Vec<u8>; 2] {
    texts.each_ref().map(|text| digest::digest(&digest::SHA256, text).as_ref().to_vec())
}

#[cfg(test)]
pub(crate) mod tests;
