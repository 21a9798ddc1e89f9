//! Secret that signs messages: Standard Webhooks' symmetric secret and its signature.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Prefix of a secret's text.
const PREFIX: &str = "whsec_";
/// Bytes of a secret that an owner brings.
const BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// A symmetric secret; shown by [`SigningSecret::reveal`] alone.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningSecret(Vec<u8>);

/// A text that is no secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be whsec_ and the base64 of 24 to 64 bytes")]
pub struct SecretError;

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(hidden)")
    }
}

impl SigningSecret {
    /// A new one from the operating system's generator.
    pub fn generate() -> SigningSecret {
        SigningSecret(crate::base::random_bytes::<32>().to_vec())
    }

    /// Reads `whsec_<base64>`.
    pub fn parse(text: &str) -> Result<SigningSecret, SecretError> {
        let encoded = text.strip_prefix(PREFIX).ok_or(SecretError)?;
        let bytes = STANDARD.decode(encoded).map_err(|_| SecretError)?;
        if BYTES.contains(&bytes.len()) { Ok(SigningSecret(bytes)) } else { Err(SecretError) }
    }

    /// `whsec_<base64>`: for its owner, once, and for the ledger.
    pub fn reveal(&self) -> String {
        format!("{PREFIX}{}", STANDARD.encode(&self.0))
    }

    /// The value of `webhook-signature` for a message.
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

    /// The example of the Standard Webhooks specification.
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
            assert_eq!(SigningSecret::parse(text), Err(SecretError), "{text}");
        }
    }
}
