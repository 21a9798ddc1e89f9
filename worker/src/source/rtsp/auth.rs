//! Responses to an RTSP server's challenge: Basic (RFC 7617) and Digest (RFC 2617, RFC 7616).

use base64::{Engine, prelude::BASE64_STANDARD};
use md5::Md5;
use sha2::{Digest, Sha256};

use super::error::{RtspError, quoted};
use crate::protocol::RtspCredentials;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Hash {
    Md5,
    Sha256,
}

impl Hash {
    fn of(self, text: &str) -> String {
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        match self {
            Hash::Md5 => hex(&Md5::digest(text)),
            Hash::Sha256 => hex(&Sha256::digest(text)),
        }
    }
}

/// Authentication scheme that a server asks for, ordered by strength.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Challenge {
    Basic,
    Digest(DigestChallenge),
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct DigestChallenge {
    hash: Hash,
    /// Algorithm as the server wrote it, if it did.
    algorithm: Option<String>,
    is_session: bool,
    realm: String,
    nonce: String,
    opaque: Option<String>,
    has_qop: bool,
}

/// Holds the credentials and the server's challenge, and makes the authorization headers.
#[derive(Default)]
pub(super) struct Authenticator {
    credentials: Option<RtspCredentials>,
    challenge: Option<Challenge>,
    /// Client nonce, and number of uses of the server's nonce.
    nonce: String,
    uses: u32,
}

impl Authenticator {
    pub(super) fn new(credentials: Option<RtspCredentials>, nonce: &str) -> Authenticator {
        Authenticator { credentials, nonce: nonce.to_owned(), ..Authenticator::default() }
    }

    /// Takes the challenge of a 401 response; fails if it cannot be answered, or the last answer was wrong.
    pub(super) fn take(&mut self, header: &str) -> Result<(), RtspError> {
        let Some(RtspCredentials { user, .. }) = &self.credentials else {
            return Err(RtspError::CredentialsRequired);
        };
        if user.contains(|letter: char| letter.is_control() || letter == '"') {
            return Err(RtspError::User);
        }
        let strongest = challenges(header).into_iter().max();
        let found = strongest.ok_or_else(|| RtspError::Challenge { challenge: quoted(header) })?;
        // The same nonce again, or none at all: the last response was wrong.
        if self.challenge.as_ref() == Some(&found) {
            return Err(RtspError::Unauthorized);
        }
        (self.challenge, self.uses) = (Some(found), 0);
        Ok(())
    }

    /// Returns the value of a request's `Authorization` header, once the server has sent a challenge.
    pub(super) fn header(&mut self, method: &str, uri: &str) -> Option<String> {
        let RtspCredentials { user, password } = self.credentials.as_ref()?;
        match self.challenge.as_ref()? {
            Challenge::Basic => {
                let text = BASE64_STANDARD.encode(format!("{user}:{password}"));
                Some(format!("Basic {text}"))
            }
            Challenge::Digest(challenge) => {
                self.uses += 1;
                Some(challenge.answer(user, password, method, uri, &self.nonce, self.uses))
            }
        }
    }
}

impl DigestChallenge {
    fn answer(
        &self,
        user: &str,
        password: &str,
        method: &str,
        uri: &str,
        ours: &str,
        uses: u32,
    ) -> String {
        let DigestChallenge { hash, realm, nonce, .. } = self;
        let mut secret = hash.of(&format!("{user}:{realm}:{password}"));
        if self.is_session {
            secret = hash.of(&format!("{secret}:{nonce}:{ours}"));
        }
        let request = hash.of(&format!("{method}:{uri}"));
        let (proof, quality) = if self.has_qop {
            let proof = format!("{secret}:{nonce}:{uses:08x}:{ours}:auth:{request}");
            (proof, format!(", qop=auth, nc={uses:08x}, cnonce=\"{ours}\""))
        } else if self.is_session {
            (format!("{secret}:{nonce}:{request}"), format!(", cnonce=\"{ours}\""))
        } else {
            (format!("{secret}:{nonce}:{request}"), String::new())
        };
        let response = hash.of(&proof);
        let algorithm =
            self.algorithm.as_ref().map(|name| format!(", algorithm={name}")).unwrap_or_default();
        let opaque =
            self.opaque.as_ref().map(|text| format!(", opaque=\"{text}\"")).unwrap_or_default();
        format!(
            "Digest username=\"{user}\", realm=\"{realm}\", nonce=\"{nonce}\", uri=\"{uri}\", \
             response=\"{response}\"{algorithm}{opaque}{quality}"
        )
    }
}

/// Returns those challenges of `Scheme name=value, name="value", Scheme name=value` that can be answered.
fn challenges(header: &str) -> Vec<Challenge> {
    let mut found: Vec<(&str, Vec<(&str, &str)>)> = Vec::new();
    let mut rest = header;
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let end = rest.find([' ', '\t', ',', '=']).unwrap_or(rest.len());
        if end == 0 {
            return found.iter().filter_map(|(scheme, values)| challenge(scheme, values)).collect();
        }
        let (name, after) = rest.split_at(end);
        rest = after.trim_start_matches([' ', '\t']);
        let Some(value) = rest.strip_prefix('=') else {
            found.push((name, Vec::new()));
            continue;
        };
        let value = value.trim_start_matches([' ', '\t']);
        let (value, after) = match value.strip_prefix('"') {
            Some(quoted) => quoted.split_once('"').unwrap_or((quoted, "")),
            None => value.split_at(value.find([' ', '\t', ',']).unwrap_or(value.len())),
        };
        if let Some((_, parameters)) = found.last_mut() {
            parameters.push((name, value));
        }
        rest = after;
    }
}

fn challenge(scheme: &str, parameters: &[(&str, &str)]) -> Option<Challenge> {
    let value = |wanted: &str| {
        let named = parameters.iter().find(|(name, _)| name.eq_ignore_ascii_case(wanted));
        named.map(|(_, value)| (*value).to_owned())
    };
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("digest") {
        return None;
    }
    let algorithm = value("algorithm");
    let name = algorithm.as_deref().unwrap_or("MD5").to_ascii_uppercase();
    let (hash, is_session) = match name.as_str() {
        "MD5" => (Hash::Md5, false),
        "MD5-SESS" => (Hash::Md5, true),
        "SHA-256" => (Hash::Sha256, false),
        "SHA-256-SESS" => (Hash::Sha256, true),
        _ => return None,
    };
    let qop = value("qop");
    let has_qop = match &qop {
        None => false,
        Some(list) if list.split(',').any(|one| one.trim().eq_ignore_ascii_case("auth")) => true,
        // `auth-int` only, which hashes the body and is not used with RTSP.
        Some(_) => return None,
    };
    Some(Challenge::Digest(DigestChallenge {
        hash,
        algorithm,
        is_session,
        realm: value("realm")?,
        nonce: value("nonce")?,
        opaque: value("opaque"),
        has_qop,
    }))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn asked(user: &str, password: &str, header: &str) -> Result<Authenticator, RtspError> {
        let credentials = RtspCredentials { user: user.into(), password: password.into() };
        let ours = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        let mut authenticator = Authenticator::new(Some(credentials), ours);
        authenticator.take(header).map(|()| authenticator)
    }

    /// Examples of RFC 7616 3.9.1, RFC 2617 3.5 (without its client nonce) and RFC 7617 2.
    #[test]
    fn answers_are_those_of_the_standards() {
        let rfc7616 = |algorithm: &str| {
            format!(
                "Digest realm=\"http-auth@example.org\", qop=\"auth, auth-int\", \
                 algorithm={algorithm}, nonce=\"7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v\", \
                 opaque=\"FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS\""
            )
        };
        for (name, header, response) in [
            ("MD5", rfc7616("MD5"), "response=\"8ca523f5e9506fed4657c9700eebdbec\""),
            (
                "SHA-256",
                rfc7616("SHA-256"),
                "response=\"753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1\"",
            ),
        ] {
            let mut authenticator =
                asked("Mufasa", "Circle of Life", &header).expect("a known challenge");
            let answer = authenticator.header("GET", "/dir/index.html").expect("an answer");
            assert!(answer.contains(response), "{name}: {answer}");
            assert!(answer.contains("nc=00000001") && answer.contains("qop=auth,"), "{answer}");
            let again = authenticator.header("GET", "/dir/index.html").expect("an answer");
            assert!(again.contains("nc=00000002") && !again.contains(response), "{again}");
        }
        let mut basic = asked("Aladdin", "open sesame", "Basic realm=\"x\"").expect("known");
        let answer = basic.header("DESCRIBE", "rtsp://h/").expect("an answer");
        assert_eq!(answer, "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ==");
    }

    #[test]
    fn the_strongest_challenge_is_answered_and_only_once() {
        let both = "Basic realm=\"a, b\", Digest realm=r, nonce=\"n\", algorithm=MD5, \
                    Digest realm=r, nonce=\"n\", algorithm=SHA-256, Digest realm=r, nonce=q, \
                    algorithm=SHA-512-256";
        let mut authenticator = asked("u", "p", both).expect("known");
        let answer = authenticator.header("PLAY", "rtsp://h/").expect("an answer");
        assert!(answer.contains("algorithm=SHA-256"), "{answer}");
        assert!(matches!(authenticator.take(both), Err(RtspError::Unauthorized)));
        let newer = both.replace("\"n\"", "\"another\"");
        assert!(authenticator.take(&newer).is_ok(), "a nonce that has become stale");
        for header in ["", "Negotiate", "Digest realm=r", "Digest realm=r, nonce=n, qop=auth-int"] {
            let refused = asked("u", "p", header).err();
            assert!(matches!(refused, Some(RtspError::Challenge { .. })), "{header}");
        }
        let refused = asked("u\r\nSession: 1", "p", both).err();
        assert!(matches!(refused, Some(RtspError::User)), "{refused:?}");
        let mut nobody = Authenticator::new(None, "x");
        assert!(matches!(nobody.take(both), Err(RtspError::CredentialsRequired)));
        assert_eq!(nobody.header("PLAY", "rtsp://h/"), None);
    }

    proptest! {
        #[test]
        fn no_challenge_is_too_strange(header in "(Digest |Basic |,|=|\"|[a-z]{1,5}|\\PC){0,40}") {
            if let Ok(mut authenticator) = asked("u", "p", &header) {
                prop_assert!(authenticator.header("PLAY", "rtsp://h/").is_some());
            }
        }
    }
}
