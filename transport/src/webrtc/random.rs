//! Identifiers and secrets from the system's random number generator.

use super::sdp_answer::IceCredentials;

/// Characters of RFC 8839 5.4; 64 of them, so that the low six bits of a byte choose evenly.
const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
/// Length of a user fragment: 48 bits, so that 10,000 sessions do not collide.
pub(super) const UFRAG_CHARS: usize = 8;
/// Length of a password: 144 bits; RFC 8445 5.3 requires 128.
const PWD_CHARS: usize = 24;

fn text<const N: usize>() -> Option<String> {
    let mut bytes = [0u8; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| char::from(ALPHABET[usize::from(byte & 63)])).collect())
}

/// Returns new ICE credentials; `None` if the system's generator fails.
pub(super) fn credentials() -> Option<IceCredentials> {
    Some(IceCredentials { ufrag: text::<UFRAG_CHARS>()?, pwd: text::<PWD_CHARS>()? })
}

/// Returns a new entity tag, quotes included.
pub(super) fn etag() -> Option<String> {
    Some(format!("\"{:016x}\"", number()?))
}

/// Returns 64 random bits.
pub(super) fn number() -> Option<u64> {
    let mut bytes = [0u8; 8];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(u64::from_ne_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_the_length_and_letters_of_ice() {
        let one = credentials().expect("random numbers");
        let other = credentials().expect("random numbers");
        assert_eq!((one.ufrag.len(), one.pwd.len()), (UFRAG_CHARS, PWD_CHARS));
        assert!(one.ufrag.bytes().chain(one.pwd.bytes()).all(|byte| ALPHABET.contains(&byte)));
        assert_ne!(one, other);
    }
}
