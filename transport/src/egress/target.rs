//! URL to connect to, with its credentials split off.
//!
//! Unusual spellings of addresses (decimal, octal, hexadecimal) need no rule here, because the resolved
//! address is checked.

use std::fmt;

use base64::Engine;
use http::HeaderValue;
use url::{Position, Url};

use super::EgressError;
use crate::percent;

/// Longest URL, in bytes; a job remembers many.
const URL_BYTES_MAX: usize = 8192;

/// User name and password, hidden in `Debug`.
#[derive(Clone, PartialEq, Eq)]
pub struct UrlCredentials {
    /// User name.
    pub user: String,
    /// The password.
    pub password: String,
}

impl fmt::Debug for UrlCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("UrlCredentials(hidden)")
    }
}

impl UrlCredentials {
    pub(super) fn basic(&self) -> HeaderValue {
        let text = format!("{}:{}", self.user, self.password);
        let encoded = base64::engine::general_purpose::STANDARD.encode(text);
        let mut value = HeaderValue::try_from(format!("Basic {encoded}")).expect("base64 is ASCII");
        value.set_sensitive(true);
        value
    }
}

/// URL of a resource, without credentials, and the credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestUrl {
    url: Url,
    credentials: Option<UrlCredentials>,
}

impl RequestUrl {
    /// Parses an `http`, `https`, `rtsp` or `rtsps` URL.
    pub fn parse(text: &str) -> Result<RequestUrl, EgressError> {
        Url::parse(text).map_err(|_| EgressError::Malformed("it does not parse")).and_then(of)
    }

    /// Resolves `reference`, such as a redirect target, against this URL.
    pub(super) fn join(&self, reference: &str) -> Result<RequestUrl, EgressError> {
        let joined = self.url.join(reference);
        joined.map_err(|_| EgressError::Malformed("a redirect does not parse")).and_then(of)
    }

    /// Returns the URL without credentials and fragment.
    pub fn url(&self) -> &Url {
        &self.url
    }

    /// Returns the credentials that the URL held.
    pub fn credentials(&self) -> Option<&UrlCredentials> {
        self.credentials.as_ref()
    }

    /// Returns the host as the URL spells it, for names, headers and messages.
    pub fn host(&self) -> &str {
        self.url.host_str().expect("checked when it was read")
    }

    /// Returns the port, never 0.
    pub fn port(&self) -> u16 {
        self.url.port().unwrap_or(match self.url.scheme() {
            "http" => 80,
            "rtsp" => 554,
            "rtsps" => 322,
            _ => 443,
        })
    }

    /// Returns true if the connection is encrypted.
    pub fn is_secure(&self) -> bool {
        matches!(self.url.scheme(), "https" | "rtsps")
    }

    /// Returns true for the same encryption, host and port, which may share credentials.
    pub(super) fn is_beside(&self, other: &RequestUrl) -> bool {
        let key = |target: &RequestUrl| (target.is_secure(), target.port());
        key(self) == key(other) && self.host() == other.host()
    }

    /// Returns path and query, as in a request line.
    pub(super) fn path(&self) -> &str {
        &self.url[Position::BeforePath..Position::AfterQuery]
    }

    /// Returns the value of a `host` header.
    pub(super) fn authority(&self) -> &str {
        &self.url[Position::BeforeHost..Position::AfterPort]
    }
}

fn of(mut url: Url) -> Result<RequestUrl, EgressError> {
    if url.as_str().len() > URL_BYTES_MAX {
        return Err(EgressError::Malformed("it is longer than 8192 bytes"));
    }
    if !matches!(url.scheme(), "http" | "https" | "rtsp" | "rtsps") {
        return Err(EgressError::Scheme(url.scheme().to_owned()));
    }
    if url.host_str().is_none_or(str::is_empty) {
        return Err(EgressError::Malformed("it names no host"));
    }
    if url.port() == Some(0) {
        return Err(EgressError::Malformed("port 0 is none"));
    }
    let decoded = |text: &str| {
        let broken = EgressError::Malformed("its credentials are not percent-encoded UTF-8");
        percent::decode(text.as_bytes()).ok_or(broken)
    };
    let credentials = match (url.username(), url.password()) {
        ("", None) => None,
        (user, password) => Some(UrlCredentials {
            user: decoded(user)?,
            password: decoded(password.unwrap_or_default())?,
        }),
    };
    let cleared = url.set_username("").and_then(|()| url.set_password(None));
    cleared.map_err(|()| EgressError::Malformed("its credentials cannot be taken out"))?;
    url.set_fragment(None);
    Ok(RequestUrl { url, credentials })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_a_target_or_says_why_not() {
        let long = format!("https://host/{}", "a".repeat(URL_BYTES_MAX));
        let rows = [
            ("https://host.example/a?b#c", Ok(("host.example", 443, "/a?b"))),
            ("HTTP://Host.Example", Ok(("host.example", 80, "/"))),
            ("rtsp://camera", Ok(("camera", 554, ""))),
            ("rtsps://camera/live", Ok(("camera", 322, "/live"))),
            ("https://[2001:db8::1]:8443/", Ok(("[2001:db8::1]", 8443, "/"))),
            ("https://2130706433/", Ok(("127.0.0.1", 443, "/"))),
            ("https://0x7f.1/", Ok(("127.0.0.1", 443, "/"))),
            ("https://a:b@host/", Ok(("host", 443, "/"))),
            ("https://", Err("malformed url: it does not parse")),
            ("https://host:0/", Err("malformed url: port 0 is none")),
            ("https://host:65536/", Err("malformed url: it does not parse")),
            ("rtsp:///live", Err("malformed url: it names no host")),
            (
                "https://%ff@host/",
                Err("malformed url: its credentials are not percent-encoded UTF-8"),
            ),
            (
                "https://%zz@host/",
                Err("malformed url: its credentials are not percent-encoded UTF-8"),
            ),
            (&long, Err("malformed url: it is longer than 8192 bytes")),
            ("file:///etc/passwd", Err("scheme not served: file")),
            ("data:,x", Err("scheme not served: data")),
        ];
        for (text, expected) in rows {
            let found = RequestUrl::parse(text);
            match (&found, expected) {
                (Ok(target), Ok(expected)) => {
                    assert_eq!((target.host(), target.port(), target.path()), expected, "{text}");
                }
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{text}"),
                _ => panic!("{text}: {found:?}"),
            }
        }
    }

    #[test]
    fn credentials_are_told_to_nobody_but_their_host() {
        let target = RequestUrl::parse("https://us%65r:p%40ss%3A@host/a").expect("a target");
        let credentials = target.credentials().expect("there");
        assert_eq!((credentials.user.as_str(), credentials.password.as_str()), ("user", "p@ss:"));
        assert_eq!(credentials.basic(), "Basic dXNlcjpwQHNzOg==");
        assert!(credentials.basic().is_sensitive());
        assert!(!format!("{target:?}").contains("p@ss"), "{target:?}");
        assert_eq!(target.url().as_str(), "https://host/a");
        let rows = [
            ("https://host/b", true),
            ("https://host:443/", true),
            ("https://HOST/", true),
            ("https://host:444/", false),
            ("http://host:443/", false),
            ("https://host.example/", false),
        ];
        for (text, expected) in rows {
            let other = RequestUrl::parse(text).expect("a target");
            assert_eq!(target.is_beside(&other), expected, "{text}");
        }
    }

    #[test]
    fn a_redirect_is_read_where_it_was_found() {
        let target = RequestUrl::parse("https://host/a/b?c").expect("a target");
        let rows = [
            ("d", "https://host/a/d"),
            ("/d?e", "https://host/d?e"),
            ("//other/d", "https://other/d"),
            ("http://other/d#f", "http://other/d"),
            ("?g", "https://host/a/b?g"),
        ];
        for (reference, expected) in rows {
            let joined = target.join(reference).expect("a target");
            assert_eq!(joined.url().as_str(), expected, "{reference}");
        }
        assert!(target.join("javascript:0").is_err() && target.join("https://").is_err());
    }
}
