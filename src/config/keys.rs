//! API keys: kept as SHA-256 digests, compared in constant time.

use std::{fmt, sync::Arc};

use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::json::Problem;

/// Who a request acts as: the owner of runs, never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// The principal of every request while keys are off.
    pub fn anonymous() -> Principal {
        Principal::named(ANONYMOUS)
    }

    /// The principal called `name` in stored events.
    pub fn named(name: &str) -> Principal {
        Principal(name.into())
    }

    /// The name in events and logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const ANONYMOUS: &str = "anonymous";

/// The keys that are accepted.
#[derive(Clone, Default)]
pub struct KeyRing {
    keys: Vec<([u8; 32], Principal)>,
    /// Whose keys are short, and where they were read.
    short: Vec<(Principal, &'static str)>,
}

/// A key of fewer bytes can be guessed.
const KEY_BYTES_MIN: usize = 16;

impl fmt::Debug for KeyRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(_, principal)| principal.as_str())).finish()
    }
}

impl KeyRing {
    /// Adds `name:key` or a bare key, whose principal is the start of its digest; `variable` is
    /// where it was read.
    pub fn add(&mut self, entry: &str, variable: &'static str) -> Result<(), Problem> {
        let (name, key) = match entry.split_once(':') {
            Some((name, key)) => (Some(name), key),
            None => (None, entry),
        };
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has a key that is empty or not visible ASCII".into());
        }
        let digest: [u8; 32] = Sha256::digest(key).into();
        let principal = match name {
            Some(name) if !is_key_name(name) => {
                return Err(
                    "has a key name that is not 1 to 64 letters, digits, '-', '_', '.'".into()
                );
            }
            Some(ANONYMOUS) => return Err("uses the reserved key name \"anonymous\"".into()),
            Some(name) => Principal::named(name),
            None => Principal::named(&fingerprint(&digest)),
        };
        if self.keys.iter().any(|(known, owner)| *known == digest || *owner == principal) {
            return Err("names a key or a key name twice".into());
        }
        if key.len() < KEY_BYTES_MIN {
            self.short.push((principal.clone(), variable));
        }
        self.keys.push((digest, principal));
        Ok(())
    }

    /// What there is to say against the keys.
    pub fn warnings(&self) -> impl Iterator<Item = String> {
        self.short.iter().map(|(principal, variable)| {
            let name = principal.as_str();
            format!("{variable}: the key of {name} is shorter than {KEY_BYTES_MIN} bytes")
        })
    }

    /// No key is accepted.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// The principal of `key`; takes as long for an unknown key as for any known one.
    pub fn principal(&self, key: &[u8]) -> Option<&Principal> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let mut found = None;
        for (known, principal) in &self.keys {
            if bool::from(known.ct_eq(&digest)) {
                found = Some(principal);
            }
        }
        found
    }
}

fn is_key_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

fn fingerprint(digest: &[u8; 32]) -> String {
    crate::hex(&digest[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_principal_and_nothing_else_does() {
        let mut ring = KeyRing::default();
        ring.add("alice:secret-1", "HERE").expect("named");
        ring.add("secret-2", "HERE").expect("bare");
        let name =
            |key: &str| ring.principal(key.as_bytes()).map(|owner| owner.as_str().to_owned());
        assert_eq!(name("secret-1").as_deref(), Some("alice"));
        assert_eq!(name("secret-2").as_deref(), Some("f4b6bb654812"));
        for unknown in ["", "secret", "secret-11", "alice", "alice:secret-1"] {
            assert_eq!(name(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn a_short_key_is_warned_about_by_name() {
        let mut ring = KeyRing::default();
        ring.add("alice:fifteen-bytes-k", "HERE").expect("named");
        ring.add("bob:sixteen-bytes-key", "THERE").expect("named");
        ring.add("carol:short", "THERE").expect("named");
        let warnings: Vec<String> = ring.warnings().collect();
        assert_eq!(
            warnings,
            [
                "HERE: the key of alice is shorter than 16 bytes",
                "THERE: the key of carol is shorter than 16 bytes",
            ]
        );
    }

    #[test]
    fn entries_that_would_confuse_owners_are_refused() {
        let cases = ["", "a:", ":k", "a b:k", "anonymous:k", "one:other", "x:key-1", "k\u{e9}y"];
        for case in cases {
            let mut ring = KeyRing::default();
            ring.add("one:key-1", "HERE").expect("valid");
            assert!(ring.add(case, "HERE").is_err(), "{case}");
        }
    }
}
