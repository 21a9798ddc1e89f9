//! Tests of certificate files: replaced as a pair and one by one, and rejected with a reason.

use rcgen::generate_simple_self_signed;
use rustls::ClientConfig;

use super::*;
use crate::tls::{TrustAnchors, client_config, roots_in};

/// Certificate and key on disk.
pub(crate) struct Pair {
    dir: tempfile::TempDir,
}

impl Pair {
    pub fn new(name: &str) -> Pair {
        let pair = Pair { dir: tempfile::tempdir().expect("a directory") };
        let (chain, key) = made(name);
        pair.write("chain.pem", &chain);
        pair.write("key.pem", &key);
        pair
    }

    fn write(&self, name: &str, text: &str) {
        // Replaces the file as tools do, by a rename, so that length and time may stay the same.
        let new = self.dir.path().join("new");
        fs::write(&new, text).expect("written");
        fs::rename(new, self.dir.path().join(name)).expect("renamed");
    }

    pub fn files(&self) -> CertificatePaths {
        let path = |name: &str| self.dir.path().join(name);
        CertificatePaths { chain: path("chain.pem"), key: path("key.pem") }
    }

    /// Returns a client that trusts only this certificate and speaks `protocol`.
    pub fn client(&self, protocol: &[u8]) -> ClientConfig {
        let roots = roots_in(&self.files().chain).expect("a root");
        let config = client_config(TrustAnchors::Roots(roots)).expect("a client");
        let mut config = Arc::unwrap_or_clone(config);
        config.alpn_protocols = vec![protocol.to_vec()];
        config
    }
}

fn made(name: &str) -> (String, String) {
    let made = generate_simple_self_signed(vec![name.to_owned()]).expect("a certificate");
    (made.cert.pem(), made.signing_key.serialize_pem())
}

fn shown(certificate: &ReloadingCertificate) -> Vec<CertificateDer<'static>> {
    certificate.current.read().expect("not poisoned").cert.clone()
}

#[test]
fn a_changed_pair_is_shown_and_a_half_changed_one_is_not() {
    let pair = Pair::new("first.example");
    let certificate = ReloadingCertificate::open(pair.files()).expect("a pair");
    let first = shown(&certificate);
    assert!(!certificate.reload_if_changed().expect("unchanged"));
    let (chain, key) = made("second.example");
    pair.write("chain.pem", &chain);
    assert!(
        matches!(certificate.reload_if_changed(), Err(CertificateError::Pair(_))),
        "the key is missing"
    );
    assert_eq!(shown(&certificate), first);
    assert!(!certificate.reload_if_changed().expect("said once"));
    let file = pair.files().key;
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("a directory");
    for case in ["unreadable", "tried again"] {
        let found = certificate.reload_if_changed();
        assert!(matches!(found, Err(CertificateError::File { .. })), "{case}: {found:?}");
    }
    fs::remove_dir(&file).expect("removed");
    pair.write("key.pem", &key);
    assert!(certificate.reload_if_changed().expect("a pair again"));
    assert_ne!(shown(&certificate), first);
}

#[test]
fn what_cannot_be_served_is_refused_by_name() {
    let (chain, key) = made("first.example");
    let (_, foreign) = made("second.example");
    let half = &chain[..chain.len() / 2];
    let long = "#".repeat(FILE_BYTES_MAX as usize + 1);
    let pkcs8 = key.replace("PRIVATE KEY", "ENCRYPTED PRIVATE KEY");
    let old = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nAAAA\n\
               -----END RSA PRIVATE KEY-----\n";
    for (case, chain, key, told) in [
        ("no chain", "", key.as_str(), "no certificate found in the file: "),
        (
            "no base64",
            "-----BEGIN CERTIFICATE-----\n!\n-----END CERTIFICATE-----\n",
            &key,
            "cannot read certificates (a PEM block is no base64): ",
        ),
        ("half of it", half, &key, "cannot read certificates (its last PEM block has no end): "),
        ("too long", &long, &key, "cannot read certificates (it is longer than 1048576 bytes): "),
        ("no key", &chain, "", "cannot read a key (it has no PEM block of that kind): "),
        ("a locked key", &chain, &pkcs8, "cannot read a key (it is encrypted, and the server"),
        ("an old locked key", &chain, old, "cannot read a key (it is encrypted, and the server"),
        ("another's key", &chain, &foreign, "certificate and key do not match, "),
    ] {
        let pair = Pair::new("first.example");
        pair.write("chain.pem", chain);
        pair.write("key.pem", key);
        let error = ReloadingCertificate::open(pair.files()).expect_err(case).to_string();
        assert!(error.starts_with(told), "{case}: {error}");
    }
    let pair = Pair::new("first.example");
    fs::remove_file(pair.files().key).expect("removed");
    let error = ReloadingCertificate::open(pair.files()).expect_err("no file").to_string();
    assert!(error.starts_with("cannot read a key (No such file"), "{error}");
    // Opening a pipe waits for a writer, and a device may have no end.
    let pair = Pair::new("first.example");
    for place in ["/dev/zero", "/"] {
        let files = CertificatePaths { chain: place.into(), ..pair.files() };
        let error = ReloadingCertificate::open(files).expect_err("no file").to_string();
        assert!(error.starts_with("cannot read certificates (it is no regular file): "), "{error}");
    }
}

#[test]
fn a_certificate_out_of_its_time_is_told() {
    let mut wanted =
        rcgen::CertificateParams::new(vec!["first.example".to_owned()]).expect("a name");
    wanted.not_before = rcgen::date_time_ymd(2024, 1, 1);
    wanted.not_after = rcgen::date_time_ymd(2024, 4, 1);
    let key = rcgen::KeyPair::generate().expect("a key");
    let made = wanted.self_signed(&key).expect("a certificate");
    let day = 86_400;
    let begin = 1_704_067_200;
    for (case, at, told) in [
        ("the day before", begin - day, Some("it holds from Jan  1 00:00:00 2024 +00:00 on")),
        ("its first second", begin, None),
        ("its last second", begin + 91 * day, None),
        ("after it", begin + 91 * day + 1, Some("it held until Apr  1 00:00:00 2024 +00:00")),
    ] {
        let now = ASN1Time::from_timestamp(at).expect("a time");
        assert_eq!(out_of_time(made.der(), now).as_deref(), told, "{case}");
    }
    assert!(out_of_time(&CertificateDer::from(vec![0]), ASN1Time::now()).is_some());
}
