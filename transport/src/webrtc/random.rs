//! Identifiers and secrets from the system's random number generator.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::sdp_answer::IceCredentials;

fn bytes<const N: usize>() -> Option<[u8; N]> {
    let mut bytes = [0; N];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes)
}

/// Returns new ICE credentials; `None` if the system's generator fails. Base64 has the characters of RFC 8839 5.4.
/// A user fragment has 48 bits, so that 10,000 sessions do not collide, and a password 144; RFC 8445 5.3 requires 128.
pub(super) fn credentials() -> Option<IceCredentials> {
    let (ufrag, pwd) = (bytes::<6>()?, bytes::<18>()?);
    Some(IceCredentials { ufrag: STANDARD.encode(ufrag), pwd: STANDARD.encode(pwd) })
}

/// Returns a new entity tag, quotes included.
pub(super) fn etag() -> Option<String> {
    Some(format!("\"{:016x}\"", number()?))
}

/// Returns 64 random bits.
pub(super) fn number() -> Option<u64> {
    bytes().map(u64::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_have_the_length_and_letters_of_ice() {
        let one = credentials().expect("random numbers");
        let other = credentials().expect("random numbers");
        assert_eq!((one.ufrag.len(), one.pwd.len()), (8, 24));
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || b"+/".contains(&byte);
        assert!(one.ufrag.bytes().chain(one.pwd.bytes()).all(fits), "{one:?}");
        assert_ne!(one, other);
    }
}
