//! API keys: kept as SHA-256 digests, compared in constant time.

use std::{collections::HashMap, fmt, sync::Arc};

use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::base::json::ValueError;

/// Identity that a request acts as: the owner of runs. Never the key itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Arc<str>);

impl Principal {
    /// Returns the principal of every request while keys are off.
    pub fn anonymous() -> Principal {
        Principal::named(ANONYMOUS)
    }

    /// Returns the principal called `name` in stored events.
    pub fn named(name: &str) -> Principal {
        Principal(name.into())
    }

    /// Returns the name used in events and logs.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

const ANONYMOUS: &str = "anonymous";

/// Accepted API keys.
#[derive(Clone, Default)]
pub struct ApiKeys(Vec<Key>);

#[derive(Clone)]
struct Key {
    digest: [u8; 32],
    principal: Principal,
    is_bare: bool,
}

/// Minimum length of a key; shorter ones can be guessed.
pub const KEY_BYTES_MIN: usize = 16;

impl fmt::Debug for ApiKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.0.iter().map(|key| key.principal.as_str())).finish()
    }
}

impl ApiKeys {
    /// Adds `name:key` or a bare key; [`ApiKeys::seal`] sets the principal of a bare key.
    pub fn add(&mut self, entry: &str) -> Result<(), ValueError> {
        let (name, key) = match entry.split_once(':') {
            Some((name, key)) => (Some(name), key),
            None => (None, entry),
        };
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("has a key that is empty or not visible ASCII".into());
        }
        if key.len() < KEY_BYTES_MIN {
            let whose = name.map_or_else(String::new, |name| format!(" (that of {name:?})"));
            return Err(format!(
                "has a key of fewer than {KEY_BYTES_MIN} characters{whose}, which can be guessed: \
                 make one with `openssl rand -hex 24`"
            )
            .into());
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
            None => Principal::named(&former(&digest)),
        };
        if self.0.iter().any(|known| known.digest == digest || known.principal == principal) {
            return Err("names a key or a key name twice".into());
        }
        self.0.push(Key { digest, principal, is_bare: name.is_none() });
        Ok(())
    }

    /// Derives the principal of each bare key from the key and the secret of the installation.
    pub fn seal(&mut self, secret: &[u8; 32]) {
        for key in self.0.iter_mut().filter(|key| key.is_bare) {
            let mut mac = Hmac::<Sha256>::new_from_slice(secret).expect("a key of any length");
            mac.update(&key.digest);
            let code = mac.finalize().into_bytes();
            key.principal = Principal::named(&format!("key-{}", crate::base::hex(&code[..16])));
        }
    }

    /// Maps the names that earlier versions recorded for bare keys to their principals.
    pub fn former(&self) -> HashMap<Principal, Principal> {
        let bare = self.0.iter().filter(|key| key.is_bare);
        bare.map(|key| (Principal::named(&former(&key.digest)), key.principal.clone())).collect()
    }

    /// Returns the number of keys, each of which has a principal of its own.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns true if no key is accepted.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the principal of `key`, in the same time for unknown and known keys.
    pub fn principal(&self, key: &[u8]) -> Option<&Principal> {
        let digest: [u8; 32] = Sha256::digest(key).into();
        let mut found = None;
        for key in &self.0 {
            if bool::from(key.digest.ct_eq(&digest)) {
                found = Some(&key.principal);
            }
        }
        found
    }
}

fn is_key_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(allowed)
}

/// Returns the name that earlier versions gave the principal of a bare key.
fn former(digest: &[u8; 32]) -> String {
    crate::base::hex(&digest[..6])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_its_principal_and_nothing_else_does() {
        let mut ring = ApiKeys::default();
        ring.add("alice:the-secret-of-alice").expect("named");
        ring.add("a-secret-without-name").expect("bare");
        let mut other = ring.clone();
        ring.seal(&[1; 32]);
        other.seal(&[2; 32]);
        let name = |ring: &ApiKeys, key: &str| {
            ring.principal(key.as_bytes()).map(|owner| owner.as_str().to_owned())
        };
        assert_eq!(name(&ring, "the-secret-of-alice").as_deref(), Some("alice"));
        let bare = name(&ring, "a-secret-without-name").expect("known");
        assert!(bare.len() == 36 && bare.starts_with("key-"), "{bare}");
        assert_ne!(name(&other, "a-secret-without-name"), Some(bare.clone()), "another secret");
        let former: Vec<_> = ring.former().into_iter().collect();
        assert_eq!(former, [(Principal::named("538c49f68c6e"), Principal::named(&bare))]);
        for unknown in ["", "secret", "the-secret-of-alice1", "alice", &bare] {
            assert_eq!(name(&ring, unknown), None, "{unknown}");
        }
    }

    #[test]
    fn entries_that_would_confuse_owners_or_can_be_guessed_are_refused() {
        let key = "0123456789abcdef";
        let named = |name: &str| format!("{name}:{key}-");
        let rows = [
            (String::new(), "empty"),
            ("a:".to_owned(), "empty"),
            (named(""), "key name"),
            (named("a b"), "key name"),
            (named("anonymous"), "reserved"),
            (named("one"), "twice"),
            (format!("x:{key}"), "twice"),
            ("0123456789abcd\u{e9}f".to_owned(), "visible ASCII"),
            ("bob:fifteen-bytes-k".to_owned(), "fewer than 16 characters (that of \"bob\")"),
            (
                "fifteen-bytes-k".to_owned(),
                "fewer than 16 characters, which can be guessed: make one with `openssl rand -hex 24`",
            ),
        ];
        for (entry, told) in rows {
            let mut ring = ApiKeys::default();
            ring.add(&format!("one:{key}")).expect("valid");
            let ValueError(problem) = ring.add(&entry).expect_err(&entry);
            assert!(problem.contains(told) && !problem.contains("fifteen"), "{entry}: {problem}");
        }
    }
}
