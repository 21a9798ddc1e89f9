//! Certificate fingerprints in SDP (RFC 8122 5).

use aws_lc_rs::{constant_time::verify_slices_are_equal, digest};

/// Hash of a DER certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CertificateFingerprint {
    name: &'static str,
    algorithm: &'static digest::Algorithm,
    bytes: Vec<u8>,
}

/// Hash functions strong enough to identify a certificate; the first one is for answers.
const HASHES: [(&str, &digest::Algorithm); 3] =
    [("sha-256", &digest::SHA256), ("sha-384", &digest::SHA384), ("sha-512", &digest::SHA512)];

impl CertificateFingerprint {
    /// Returns the SHA-256 fingerprint of `certificate`, for answers.
    pub(super) fn of(certificate: &[u8]) -> CertificateFingerprint {
        let [(name, algorithm), ..] = HASHES;
        let bytes = digest::digest(algorithm, certificate).as_ref().to_vec();
        CertificateFingerprint { name, algorithm, bytes }
    }

    /// Parses the value of `a=fingerprint:`; `None` for a weaker hash or a wrong length.
    pub(super) fn parse(value: &str) -> Option<CertificateFingerprint> {
        let (name, hex) = value.trim().split_once(' ')?;
        let known = HASHES.into_iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        let (name, algorithm) = known?;
        let bytes = hex
            .trim()
            .split(':')
            .map(|pair| {
                let hex = pair.len() == 2 && pair.bytes().all(|byte| byte.is_ascii_hexdigit());
                hex.then(|| u8::from_str_radix(pair, 16).ok()).flatten()
            })
            .collect::<Option<Vec<u8>>>()?;
        let fits = bytes.len() == algorithm.output_len();
        fits.then_some(CertificateFingerprint { name, algorithm, bytes })
    }

    pub(super) fn matches(&self, certificate: &[u8]) -> bool {
        let digest = digest::digest(self.algorithm, certificate);
        verify_slices_are_equal(digest.as_ref(), &self.bytes).is_ok()
    }
}

impl std::fmt::Display for CertificateFingerprint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name)?;
        for (at, byte) in self.bytes.iter().enumerate() {
            let separator = if at == 0 { ' ' } else { ':' };
            write!(f, "{separator}{byte:02X}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_parsed_and_matches() {
        let certificate = b"not a certificate, and it need not be one";
        let printed = CertificateFingerprint::of(certificate).to_string();
        let parsed = CertificateFingerprint::parse(&printed).expect("our own is parsed");
        assert!(parsed.matches(certificate));
        assert!(!parsed.matches(b"another"));
        assert_eq!(
            CertificateFingerprint::parse(&printed.to_lowercase()),
            Some(parsed),
            "case is ignored"
        );
    }

    #[test]
    fn weak_and_broken_ones_are_refused() {
        let sha1 = format!("sha-1 {}", vec!["AB"; 20].join(":"));
        let short = format!("sha-256 {}", vec!["AB"; 31].join(":"));
        let odd = format!("sha-256 {}:+1", vec!["AB"; 31].join(":"));
        for value in ["", "sha-256", "sha-256 ", "sha-256 AB", &sha1, &short, &odd] {
            assert_eq!(CertificateFingerprint::parse(value), None, "{value}");
        }
    }
}
