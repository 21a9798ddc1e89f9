//! Parser of SDP offers (RFC 8866, RFC 8829), as far as a receiver needs them.
//!
//! Promises that a parsed offer is bounded, holds no control characters, and that its credentials and
//! fingerprints are well formed. Ignores unknown lines. Does not decide about support.

use super::{OfferError, fingerprint::CertificateFingerprint};

/// Longest offer in bytes; Chromium's with every codec has 8 KiB.
pub(super) const OFFER_BYTES_MAX: usize = 64 * 1024;
/// Most `m=` sections; a meeting's offer may have many, a publisher's has two.
const SECTIONS_MAX: usize = 16;
/// Most lines of one attribute in a section: one for each payload type and feedback message.
const VALUES_MAX: usize = 512;

#[derive(Debug)]
pub(super) struct SdpOffer {
    pub(super) sections: Vec<MediaSection>,
    /// Media ids of the BUNDLE group, if any.
    pub(super) bundle: Option<Vec<String>>,
}

/// One `m=` section, including attributes inherited from the session.
#[derive(Debug)]
pub(super) struct MediaSection {
    /// Media kind: `audio`, `video` or `application`.
    pub(super) kind: String,
    /// Port; zero if the peer does not offer the section.
    pub(super) port: u16,
    /// Protocol, such as `UDP/TLS/RTP/SAVPF`.
    pub(super) proto: String,
    /// Formats in the peer's order of preference.
    pub(super) formats: Vec<String>,
    pub(super) attributes: SdpAttributes,
}

/// Attributes relevant to a receiver.
#[derive(Clone, Debug, Default)]
pub(super) struct SdpAttributes {
    pub(super) mid: Option<String>,
    pub(super) ufrag: Option<String>,
    pub(super) pwd: Option<String>,
    /// Fingerprints with a strong hash.
    pub(super) fingerprints: Vec<CertificateFingerprint>,
    /// True if the peer may be the DTLS client (`a=setup`, RFC 4145 4).
    pub(super) connects: Option<bool>,
    /// True for media that the offerer does not send (recvonly, inactive).
    pub(super) is_silent: bool,
    pub(super) rtcp_mux: bool,
    /// True for a section with port zero that shares another section's transport (RFC 8843 6).
    pub(super) bundle_only: bool,
    /// Payload type and `name/clock[/channels]`.
    pub(super) rtpmaps: Vec<(u8, String)>,
    /// Payload type and format parameters.
    pub(super) fmtps: Vec<(u8, String)>,
    /// Payload type (`None` for all) and feedback message.
    pub(super) feedbacks: Vec<(Option<u8>, String)>,
    /// `id[/direction] uri` of header extensions.
    pub(super) extmaps: Vec<(String, String)>,
    pub(super) ssrcs: Vec<u32>,
    /// SSRCs of the media and its RTX stream (RFC 5576, RFC 4588).
    pub(super) flows: Vec<(u32, u32)>,
}

impl MediaSection {
    fn parse(value: &str, session: &SdpAttributes) -> Result<MediaSection, &'static str> {
        let mut parts = value.split(' ').filter(|part| !part.is_empty());
        let mut next = || parts.next().ok_or("an m= line has kind, port, protocol and formats");
        let kind = token(next()?)?;
        // "9/2" would denote two ports, which WebRTC does not use.
        let port = next()?.parse().map_err(|_| "the port is not a number")?;
        let proto = token(next()?)?;
        let formats: Vec<String> = parts.map(token).collect::<Result<_, _>>()?;
        if formats.len() > VALUES_MAX {
            return Err("too many formats");
        }
        // Session-level values apply to every section; lists start empty.
        let attributes = SdpAttributes {
            ufrag: session.ufrag.clone(),
            pwd: session.pwd.clone(),
            fingerprints: session.fingerprints.clone(),
            connects: session.connects,
            is_silent: session.is_silent,
            rtcp_mux: session.rtcp_mux,
            ..SdpAttributes::default()
        };
        Ok(MediaSection { kind, port, proto, formats, attributes })
    }

    /// Returns true if the peer offers to send in this section.
    pub(super) fn sends(&self) -> bool {
        (self.port != 0 || self.attributes.bundle_only) && !self.attributes.is_silent
    }

    pub(super) fn rtpmap(&self, payload_type: u8) -> Option<&str> {
        find(&self.attributes.rtpmaps, payload_type)
    }

    pub(super) fn fmtp(&self, payload_type: u8) -> Option<&str> {
        find(&self.attributes.fmtps, payload_type)
    }

    pub(super) fn has_feedback(&self, payload_type: u8, message: &str) -> bool {
        self.attributes
            .feedbacks
            .iter()
            .any(|(of, offered)| of.is_none_or(|of| of == payload_type) && offered == message)
    }
}

fn find(values: &[(u8, String)], payload_type: u8) -> Option<&str> {
    values.iter().find(|(of, _)| *of == payload_type).map(|(_, value)| value.as_str())
}

impl SdpOffer {
    pub(super) fn parse(text: &str) -> Result<SdpOffer, OfferError> {
        if text.len() > OFFER_BYTES_MAX {
            return Err(OfferError::TooLong(OFFER_BYTES_MAX));
        }
        let mut session = SdpAttributes::default();
        let mut bundle = None;
        let mut sections: Vec<MediaSection> = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let broken = |problem| OfferError::Malformed { line: at + 1, problem };
            if line.chars().any(char::is_control) {
                return Err(broken("a control character"));
            }
            let Some((kind, value)) = line.split_once('=') else {
                if line.is_empty() {
                    continue;
                }
                return Err(broken("not a type, an equals sign and a value"));
            };
            if at == 0 && line != "v=0" {
                return Err(broken("an offer starts with v=0"));
            }
            match kind {
                "m" if sections.len() == SECTIONS_MAX => {
                    return Err(OfferError::TooMany(SECTIONS_MAX));
                }
                "m" => sections.push(MediaSection::parse(value, &session).map_err(broken)?),
                "a" => {
                    if let Some(mids) = value.strip_prefix("group:BUNDLE ") {
                        bundle = Some(mids.split(' ').map(str::to_owned).collect());
                        continue;
                    }
                    let into = match sections.last_mut() {
                        Some(section) => &mut section.attributes,
                        None => &mut session,
                    };
                    into.take(value).map_err(broken)?;
                }
                _ => {}
            }
        }
        if sections.is_empty() {
            return Err(OfferError::NoVideo);
        }
        Ok(SdpOffer { sections, bundle })
    }
}

/// Checks a word that may be repeated in the answer.
fn token(word: &str) -> Result<String, &'static str> {
    let fits = word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(word.to_owned()) } else { Err("a word is too long or not ASCII") }
}

/// Appends a value within the limit of a section.
fn push<T>(values: &mut Vec<T>, value: T) -> Result<(), &'static str> {
    if values.len() == VALUES_MAX {
        return Err("too many attributes of this name");
    }
    values.push(value);
    Ok(())
}

impl SdpAttributes {
    /// Parses one `a=` line; unknown attributes are ignored.
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        match name {
            "mid" => self.mid = Some(token(value)?),
            "ice-ufrag" => self.ufrag = Some(credential(value, 4)?),
            "ice-pwd" => self.pwd = Some(credential(value, 22)?),
            // Weaker hashes are skipped, as an offer may give several fingerprints of its certificate.
            "fingerprint" => {
                if let Some(fingerprint) = CertificateFingerprint::parse(value) {
                    push(&mut self.fingerprints, fingerprint)?;
                }
            }
            "setup" => {
                self.connects = Some(match value {
                    "active" | "actpass" => true,
                    "passive" | "holdconn" => false,
                    _ => return Err("setup is none of active, passive, actpass, holdconn"),
                });
            }
            "sendrecv" | "sendonly" => self.is_silent = false,
            "recvonly" | "inactive" => self.is_silent = true,
            "bundle-only" => self.bundle_only = true,
            "rtcp-mux" | "rtcp-mux-only" => self.rtcp_mux = true,
            "rtpmap" => push(&mut self.rtpmaps, numbered(value)?)?,
            "fmtp" => push(&mut self.fmtps, numbered(value)?)?,
            "rtcp-fb" => self.feedback(value)?,
            "extmap" => {
                if let Some((id, uri)) = value.split_once(' ') {
                    push(&mut self.extmaps, (id.to_owned(), uri.to_owned()))?;
                }
            }
            "ssrc" => self.source(value)?,
            "ssrc-group" => self.flow(value)?,
            _ => {}
        }
        Ok(())
    }

    fn feedback(&mut self, value: &str) -> Result<(), &'static str> {
        let (of, message) = value.split_once(' ').ok_or("feedback of nothing")?;
        let of = if of == "*" { None } else { Some(payload_type(of)?) };
        push(&mut self.feedbacks, (of, message.trim().to_owned()))
    }

    fn source(&mut self, value: &str) -> Result<(), &'static str> {
        let ssrc = value.split(' ').next().unwrap_or_default();
        let ssrc = ssrc.parse().map_err(|_| "an ssrc is not a number")?;
        if !self.ssrcs.contains(&ssrc) {
            push(&mut self.ssrcs, ssrc)?;
        }
        Ok(())
    }

    fn flow(&mut self, value: &str) -> Result<(), &'static str> {
        let Some(pair) = value.strip_prefix("FID ") else { return Ok(()) };
        let mut sources = pair.split(' ').map(str::parse::<u32>);
        match (sources.next(), sources.next()) {
            (Some(Ok(media)), Some(Ok(rtx))) => push(&mut self.flows, (media, rtx)),
            _ => Err("an FID group names two sources"),
        }
    }
}

/// Checks a user fragment or password: `least` to 256 characters.
pub(super) fn credential(value: &str, least: usize) -> Result<String, &'static str> {
    // Some clients use more characters than the grammar allows (RFC 8839 5.4). Printable ones are harmless,
    // but a colon would break the USERNAME of a check.
    let fits = (least..=256).contains(&value.len())
        && value.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
    if fits { Ok(value.to_owned()) } else { Err("not an ICE credential") }
}

fn payload_type(value: &str) -> Result<u8, &'static str> {
    let number = value.parse::<u8>().ok().filter(|number| *number < 128);
    number.ok_or("a payload type is a number below 128")
}

fn numbered(value: &str) -> Result<(u8, String), &'static str> {
    let (of, rest) = value.split_once(' ').ok_or("a payload type without a value")?;
    Ok((payload_type(of)?, rest.trim().to_owned()))
}

#[cfg(test)]
#[path = "sdp/tests.rs"]
pub(super) mod tests;
