//! Trickled candidates and ICE restarts of a peer: `application/trickle-ice-sdpfrag` (RFC 8840) or one bare
//! candidate line.
//!
//! A lite agent sends no checks (RFC 8445 2.5), so only the grammar of candidates is checked: the address in
//! use is the source of an authenticated request.

use std::net::SocketAddr;

use super::{
    SdpFragError,
    sdp::credential,
    sdp_answer::{IceCredentials, write_candidates},
};

pub(super) const FRAGMENT_BYTES_MAX: usize = 16 * 1024;
const CANDIDATES_MAX: usize = 64;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct SdpFragment {
    pub(super) ufrag: Option<String>,
    pub(super) pwd: Option<String>,
    pub(super) candidates: usize,
    /// True if no more candidates follow.
    pub(super) ended: bool,
}

impl SdpFragment {
    /// Parses a fragment or a bare candidate line.
    pub(super) fn parse(text: &str) -> Result<SdpFragment, SdpFragError> {
        if text.len() > FRAGMENT_BYTES_MAX {
            return Err(SdpFragError::TooLong(FRAGMENT_BYTES_MAX));
        }
        let mut fragment = SdpFragment::default();
        for (at, line) in text.lines().enumerate() {
            let broken = |problem| SdpFragError::Malformed { line: at + 1, problem };
            if line.chars().any(char::is_control) {
                return Err(broken("a control character"));
            }
            if line.is_empty() {
                continue;
            }
            // A bare line has the form of `RTCIceCandidate.candidate`.
            if line.starts_with("candidate:") {
                fragment.attribute(line).map_err(broken)?;
            } else if let Some(attribute) = line.strip_prefix("a=") {
                fragment.attribute(attribute).map_err(broken)?;
            } else if line.as_bytes().get(1) != Some(&b'=') {
                return Err(broken("neither an attribute nor a candidate"));
            }
            if fragment.candidates > CANDIDATES_MAX {
                return Err(SdpFragError::TooMany(CANDIDATES_MAX));
            }
        }
        if fragment == SdpFragment::default() {
            return Err(SdpFragError::Missing("candidate, end of candidates or credentials"));
        }
        Ok(fragment)
    }

    fn attribute(&mut self, attribute: &str) -> Result<(), &'static str> {
        let (name, value) = attribute.split_once(':').unwrap_or((attribute, ""));
        match name {
            "ice-ufrag" => same(&mut self.ufrag, credential(value.trim(), 4)?)?,
            "ice-pwd" => same(&mut self.pwd, credential(value.trim(), 22)?)?,
            "end-of-candidates" => self.ended = true,
            // Browsers signal the end of candidates by an empty one.
            "candidate" if value.is_empty() => self.ended = true,
            "candidate" => {
                check(value)?;
                self.candidates += 1;
            }
            _ => {}
        }
        Ok(())
    }
}

/// Stores a credential; sections of one transport must repeat the same value.
fn same(kept: &mut Option<String>, value: String) -> Result<(), &'static str> {
    match kept {
        Some(kept) if *kept != value => Err("credentials of two transports"),
        _ => {
            *kept = Some(value);
            Ok(())
        }
    }
}

/// Checks a candidate (RFC 8839 5.1): foundation, component, transport, priority, address, port, `typ`, type.
fn check(candidate: &str) -> Result<(), &'static str> {
    let parts: Vec<&str> = candidate.split(' ').take(8).collect();
    let [foundation, component, _, priority, address, port, typ, _] = parts[..] else {
        return Err("a candidate has eight parts or more");
    };
    let fits = (1..=32).contains(&foundation.len())
        && component.parse::<u16>().is_ok_and(|component| (1..=256).contains(&component))
        && priority.parse::<u32>().is_ok()
        && !address.is_empty()
        && port.parse::<u16>().is_ok()
        && typ == "typ";
    if fits { Ok(()) } else { Err("a part of the candidate is not what it should be") }
}

/// Writes the answer to a restart: new credentials and all candidates (RFC 9725 4.3.3).
pub(super) fn write(credentials: &IceCredentials, mid: &str, candidates: &[SocketAddr]) -> String {
    let mut text = format!(
        "a=ice-lite\r\na=ice-ufrag:{}\r\na=ice-pwd:{}\r\nm=video 9 UDP/TLS/RTP/SAVPF 0\r\na=mid:{mid}\r\n",
        credentials.ufrag, credentials.pwd
    );
    write_candidates(&mut text, candidates);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANDIDATE: &str =
        "candidate:1387637174 1 udp 2122260223 192.0.2.1 61764 typ host generation 0 ufrag EsAw";

    #[test]
    fn fragments_are_read() {
        let full = format!(
            "a=group:BUNDLE 0 1\r\nm=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=mid:0\r\n\
             a=ice-ufrag:EsAw\r\na=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\na={CANDIDATE}\r\n\
             a=end-of-candidates\r\n"
        );
        let read = SdpFragment::parse(&full).expect("RFC 9725's own example is read");
        assert_eq!(read.ufrag.as_deref(), Some("EsAw"));
        assert_eq!(read.pwd.as_deref(), Some("P2uYro0UCOQ4zxjKXaWCBui1"));
        assert_eq!((read.candidates, read.ended), (1, true));

        let bare = SdpFragment::parse(CANDIDATE).expect("a bare candidate is read");
        assert_eq!((bare.candidates, bare.ended, bare.ufrag), (1, false, None));
        let with_prefix =
            SdpFragment::parse(&format!("a={CANDIDATE}\n")).expect("so is one with a=");
        assert_eq!(with_prefix.candidates, 1);
        let none = SdpFragment::parse("candidate:").expect("no more of them");
        assert_eq!((none.candidates, none.ended), (0, true));
    }

    #[test]
    fn what_is_no_fragment_is_refused() {
        let line = |text: &str| match SdpFragment::parse(text) {
            Err(SdpFragError::Malformed { line, .. }) => Some(line),
            _ => None,
        };
        let cases = [
            ("no attribute", "hello", Some(1)),
            ("too few parts", "candidate:1 1 udp 1 192.0.2.1 1 typ", Some(1)),
            ("a port out of range", "candidate:1 1 udp 1 192.0.2.1 70000 typ host", Some(1)),
            ("no type", "candidate:1 1 udp 1 192.0.2.1 1 kind host", Some(1)),
            ("a short password", "a=ice-ufrag:abcd\na=ice-pwd:short", Some(2)),
            ("two transports", "a=ice-ufrag:abcd\na=ice-ufrag:efgh", Some(2)),
            ("a control character", "a=mid:\u{1}", Some(1)),
        ];
        for (name, text, expected) in cases {
            assert_eq!(line(text), expected, "{name}");
        }
        assert!(matches!(SdpFragment::parse(""), Err(SdpFragError::Missing(_))));
        let many = format!("a={CANDIDATE}\n").repeat(CANDIDATES_MAX + 1);
        assert_eq!(SdpFragment::parse(&many), Err(SdpFragError::TooMany(CANDIDATES_MAX)));
        let long = "a".repeat(FRAGMENT_BYTES_MAX + 1);
        assert_eq!(SdpFragment::parse(&long), Err(SdpFragError::TooLong(FRAGMENT_BYTES_MAX)));
    }
}
