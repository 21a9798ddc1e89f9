//! The offer: SDP (RFC 8866) as WebRTC uses it (RFC 8829), as far as a receiver needs it.
//!
//! Promises that a parsed offer is bounded, holds no control characters, and that its credentials
//! and fingerprints are well formed. Skips what it does not know. Does not decide what is served.

use super::{OfferError, fingerprint::CertificateFingerprint};

/// Longest offer in bytes; Chromium's with every codec has 8 KiB.
pub(super) const OFFER_BYTES_MAX: usize = 64 * 1024;
/// Most `m=` sections; a meeting's offer may have many, a publisher's has two.
const SECTIONS_MAX: usize = 16;
/// Most lines of one attribute in a section: one for every payload type and feedback of it.
const VALUES_MAX: usize = 512;

/// A parsed offer.
#[derive(Debug)]
pub(super) struct SdpOffer {
    /// The `m=` sections in order.
    pub(super) sections: Vec<MediaSection>,
    /// Media ids of the BUNDLE group, when there is one.
    pub(super) bundle: Option<Vec<String>>,
}

/// One `m=` section with what it inherits from the session.
#[derive(Debug)]
pub(super) struct MediaSection {
    /// `audio`, `video`, `application`.
    pub(super) kind: String,
    /// Zero: the peer does not offer it.
    pub(super) port: u16,
    /// `UDP/TLS/RTP/SAVPF` and its kin.
    pub(super) proto: String,
    /// Formats in the peer's order of preference.
    pub(super) formats: Vec<String>,
    /// Its attributes.
    pub(super) attributes: SdpAttributes,
}

/// The attributes that a receiver reads.
#[derive(Clone, Debug, Default)]
pub(super) struct SdpAttributes {
    pub(super) mid: Option<String>,
    pub(super) ufrag: Option<String>,
    pub(super) pwd: Option<String>,
    /// Those with a hash that is strong enough.
    pub(super) fingerprints: Vec<CertificateFingerprint>,
    pub(super) setup: Option<DtlsSetup>,
    pub(super) direction: Option<MediaDirection>,
    pub(super) rtcp_mux: bool,
    /// Offered, though its port is zero: it shares another section's transport (RFC 8843 6).
    pub(super) bundle_only: bool,
    /// Payload type and `name/clock[/channels]`.
    pub(super) rtpmaps: Vec<(u8, String)>,
    /// Payload type and parameters.
    pub(super) fmtps: Vec<(u8, String)>,
    /// Payload type (none: all) and feedback message.
    pub(super) feedbacks: Vec<(Option<u8>, String)>,
    /// `id[/direction] uri` of header extensions.
    pub(super) extmaps: Vec<(String, String)>,
    /// Announced sources, first one first.
    pub(super) ssrcs: Vec<u32>,
    /// Media source and its retransmission source (RFC 5576, RFC 4588).
    pub(super) flows: Vec<(u32, u32)>,
}

/// Role in opening the DTLS association (RFC 4145 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DtlsSetup {
    Active,
    Passive,
    ActPass,
    HoldConn,
}

/// Direction of media, as the offerer sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MediaDirection {
    SendRecv,
    SendOnly,
    RecvOnly,
    Inactive,
}

impl MediaSection {
    /// Returns true where the peer offers to send on it.
    pub(super) fn sends(&self) -> bool {
        let direction = self.attributes.direction.unwrap_or(MediaDirection::SendRecv);
        (self.port != 0 || self.attributes.bundle_only)
            && matches!(direction, MediaDirection::SendRecv | MediaDirection::SendOnly)
    }

    /// The encoding of a payload type.
    pub(super) fn rtpmap(&self, payload_type: u8) -> Option<&str> {
        find(&self.attributes.rtpmaps, payload_type)
    }

    /// The parameters of a payload type.
    pub(super) fn fmtp(&self, payload_type: u8) -> Option<&str> {
        find(&self.attributes.fmtps, payload_type)
    }

    /// Returns true where a feedback message is offered for a payload type.
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
    /// Reads an offer.
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
                    return Err(OfferError::TooMany { what: "sections", max: SECTIONS_MAX });
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

impl MediaSection {
    fn parse(value: &str, session: &SdpAttributes) -> Result<MediaSection, &'static str> {
        let mut parts = value.split(' ').filter(|part| !part.is_empty());
        let mut next = || parts.next().ok_or("an m= line has kind, port, protocol and formats");
        let kind = token(next()?)?;
        // "9/2" names two ports, which nothing in WebRTC does.
        let port = next()?.parse().map_err(|_| "the port is not a number")?;
        let proto = token(next()?)?;
        let formats: Vec<String> = parts.map(token).collect::<Result<_, _>>()?;
        if formats.len() > VALUES_MAX {
            return Err("too many formats");
        }
        // What is given once for the session holds for every section; lists start empty.
        let attributes = SdpAttributes {
            ufrag: session.ufrag.clone(),
            pwd: session.pwd.clone(),
            fingerprints: session.fingerprints.clone(),
            setup: session.setup,
            direction: session.direction,
            rtcp_mux: session.rtcp_mux,
            ..SdpAttributes::default()
        };
        Ok(MediaSection { kind, port, proto, formats, attributes })
    }
}

/// A word that may stand in our answer.
fn token(word: &str) -> Result<String, &'static str> {
    let fits = word.len() <= 64 && word.bytes().all(|byte| byte.is_ascii_graphic());
    if fits { Ok(word.to_owned()) } else { Err("a word is too long or not ASCII") }
}

/// Pushes within the bound of a section.
fn push<T>(values: &mut Vec<T>, value: T) -> Result<(), &'static str> {
    if values.len() == VALUES_MAX {
        return Err("too many attributes of this name");
    }
    values.push(value);
    Ok(())
}

impl SdpAttributes {
    /// Takes one `a=` line; unknown ones are skipped.
    fn take(&mut self, line: &str) -> Result<(), &'static str> {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.trim();
        match name {
            "mid" => self.mid = Some(token(value)?),
            "ice-ufrag" => self.ufrag = Some(credential(value, 4)?),
            "ice-pwd" => self.pwd = Some(credential(value, 22)?),
            // Weaker hashes are skipped: an offer may name its certificate by several.
            "fingerprint" => {
                if let Some(fingerprint) = CertificateFingerprint::parse(value) {
                    push(&mut self.fingerprints, fingerprint)?;
                }
            }
            "setup" => self.setup = Some(DtlsSetup::parse(value)?),
            "sendrecv" => self.direction = Some(MediaDirection::SendRecv),
            "sendonly" => self.direction = Some(MediaDirection::SendOnly),
            "recvonly" => self.direction = Some(MediaDirection::RecvOnly),
            "inactive" => self.direction = Some(MediaDirection::Inactive),
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

impl DtlsSetup {
    fn parse(value: &str) -> Result<DtlsSetup, &'static str> {
        match value {
            "active" => Ok(DtlsSetup::Active),
            "passive" => Ok(DtlsSetup::Passive),
            "actpass" => Ok(DtlsSetup::ActPass),
            "holdconn" => Ok(DtlsSetup::HoldConn),
            _ => Err("setup is none of active, passive, actpass, holdconn"),
        }
    }
}

/// A user fragment or password: `least` to 256 characters of RFC 8839 5.4.
pub(super) fn credential(value: &str, least: usize) -> Result<String, &'static str> {
    // Some clients use more characters than the grammar has; a printable one breaks nothing, and a
    // colon would break the USERNAME of a check.
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
