//! `sightline certs`: makes a certificate for trying TLS and HTTP/3.

use std::{fs, io, path::PathBuf};

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Subcommand;
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, PublicKeyData};
use sha2::{Digest, Sha256};

use crate::{error::CliError, output::StdoutWriter, replace::replace};

/// Longest validity in days that browsers accept for a certificate pinned by its hash (WebTransport 3.1).
const DAYS: i64 = 13;

#[derive(clap::Args)]
pub struct CertsArgs {
    #[command(subcommand)]
    command: CertsCommand,
}

#[derive(Subcommand)]
enum CertsCommand {
    /// Make a self-signed certificate for development, valid for 13 days
    Dev(DevArgs),
}

#[derive(clap::Args)]
struct DevArgs {
    /// Directory that cert.pem and key.pem are written to
    #[arg(long, default_value = "certs")]
    out: PathBuf,
    /// Host name or address that the certificate is for; may be repeated
    #[arg(long = "name", default_values = ["localhost", "127.0.0.1", "::1"])]
    names: Vec<String>,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
}

pub fn run(args: &CertsArgs) -> Result<(), CliError> {
    let CertsCommand::Dev(args) = &args.command;
    let made = make(args)?;
    let mut out = StdoutWriter::stdout();
    out.line(format!("SERVICE_TLS_CERT_PATH={}", made.chain.display()))?;
    out.line(format!("SERVICE_TLS_KEY_PATH={}", made.key.display()))?;
    out.line(format!("# SHA-256 of the public key, for browsers: {}", made.pin))?;
    out.finish()
}

/// Files that were written, and the pin for browsers.
struct Made {
    chain: PathBuf,
    key: PathBuf,
    /// SHA-256 of the public key's DER, as Base64.
    pin: String,
}

fn make(args: &DevArgs) -> Result<Made, CliError> {
    let usage = |error: rcgen::Error| CliError::Usage(format!("no certificate for this: {error}"));
    let mut params = CertificateParams::new(args.names.clone()).map_err(usage)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "Sightline development");
    // Backdated by an hour, for clocks that differ.
    params.not_before = time::OffsetDateTime::now_utc() - time::Duration::hours(1);
    params.not_after = params.not_before + time::Duration::days(DAYS);
    let key = KeyPair::generate().map_err(usage)?;
    let certificate = params.self_signed(&key).map_err(usage)?;
    let pin = STANDARD.encode(Sha256::digest(key.subject_public_key_info()));
    let made = Made { chain: args.out.join("cert.pem"), key: args.out.join("key.pem"), pin };
    if !args.force {
        for path in [&made.chain, &made.key] {
            if path.symlink_metadata().is_ok() {
                let source =
                    io::Error::new(io::ErrorKind::AlreadyExists, "exists: --force replaces it");
                return Err(CliError::Write { path: path.clone(), source });
            }
        }
    }
    let unwritable = |source| CliError::Write { path: args.out.clone(), source };
    fs::create_dir_all(&args.out).map_err(unwritable)?;
    // By a rename: a server that reads them sees the old or the new one.
    replace(&made.chain, Some(0o644), |out| out.write_all(certificate.pem().as_bytes()))?;
    replace(&made.key, Some(0o600), |out| out.write_all(key.serialize_pem().as_bytes()))?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use std::{os::unix::fs::PermissionsExt, path::Path};

    use super::*;

    fn args(out: &Path, names: &[&str], force: bool) -> DevArgs {
        let names = names.iter().map(|&name| name.to_owned()).collect();
        DevArgs { out: out.to_owned(), names, force }
    }

    #[test]
    fn a_pair_is_written_once_and_replaced_only_when_asked() {
        let dir = tempfile::tempdir().expect("a directory");
        let out = dir.path().join("made/here");
        let first = make(&args(&out, &["localhost", "::1"], false)).expect("a pair");
        let read = |path: &Path| fs::read_to_string(path).expect("readable");
        let (chain, key) = (read(&first.chain), read(&first.key));
        assert!(chain.starts_with("-----BEGIN CERTIFICATE-----"), "{chain}");
        assert!(KeyPair::from_pem(&key).is_ok(), "a private key");
        assert!(make(&args(&out, &["localhost"], false)).is_err());
        assert_eq!(read(&first.key), key, "kept");
        fs::set_permissions(&first.key, fs::Permissions::from_mode(0o644)).expect("changed");
        let second = make(&args(&out, &["localhost"], true)).expect("replaced");
        assert_ne!(second.pin, first.pin);
        assert_ne!(read(&first.key), key);
        let mode = fs::metadata(&second.key).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_name_that_no_certificate_can_have_is_refused() {
        let dir = tempfile::tempdir().expect("a directory");
        let made = make(&args(dir.path(), &["höst.example"], false));
        assert!(matches!(made, Err(CliError::Usage(_))));
        assert_eq!(fs::read_dir(dir.path()).expect("readable").count(), 0);
    }
}
