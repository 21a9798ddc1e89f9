//! Signing secret of webhooks: symmetric secret and signature of Standard Webhooks.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use crate::base::json::ValueError;

const PREFIX: &str = "whsec_";
/// Allowed bytes of a secret given by an owner.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Symmetric secret; only [`SigningSecret::reveal`] shows it.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl SigningSecret {
    /// Generates a secret with the operating system's generator.
    pub fn generate() -> SigningSecret {
        SigningSecret(crate::base::random_bytes::<32>().to_vec())
    }

    /// Parses `whsec_<base64>`.
    pub fn parse(text: &str) -> Result<SigningSecret, ValueError> {
        let bytes = text.strip_prefix(PREFIX).and_then(|encoded| STANDARD.decode(encoded).ok());
        let secret = bytes.filter(|bytes| BYTES.contains(&bytes.len())).map(SigningSecret);
        secret.ok_or_else(|| "must be whsec_ and the base64 of 24 to 64 bytes".into())
    }

    /// Returns `whsec_<base64>`: once for the owner, and for the ledger.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// Returns the value of `webhook-signature` for a message.
    pub fn sign(&self, id: &str, timestamp: i64, body: &[u8]) -> String {
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).expect("a key of any length");
        mac.update(format!("{id}.{timestamp}.").as_bytes());
        mac.update(body);
        format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Example of the Standard Webhooks specification.
    #[test]
    fn signatures_are_those_of_the_specification() {
        let secret =
            SigningSecret::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").expect("a secret");
        let signature =
            secret.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1_614_265_330, br#"{"test": 2432232314}"#);
        assert_eq!(signature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=");
    }

    #[test]
    fn secrets_have_a_form_and_hide() {
        let made = SigningSecret::generate();
        assert_eq!(SigningSecret::parse(&made.reveal()), Ok(made.clone()));
        assert_eq!(format!("{made:?}"), "Secret(hidden)");
        let of = |bytes: usize| format!("whsec_{}", STANDARD.encode(vec![7; bytes]));
        assert!(SigningSecret::parse(&of(24)).is_ok() && SigningSecret::parse(&of(64)).is_ok());
        for text in ["", "whsec_", "secret", &of(23), &of(65), &of(32)[1..], "whsec_!!!!"] {
            assert!(SigningSecret::parse(text).is_err(), "{text}");
        }
    }
}
