//! SDP answer (RFC 8829 5.3, RFC 9725 4.4): accepts one video section, accepts and discards audio, rejects
//! all other sections.
//!
//! Promises that only offered parts are accepted, that all accepted sections share one transport, and that
//! the sections keep the offer's order. Simulcast and forward error correction are left out, so a peer sends
//! one plain stream.

use std::{fmt::Write as _, net::SocketAddr};

use super::{
    OfferError,
    codecs::{self, FEEDBACK, PayloadFormat, PayloadTypeMap, TRANSPORT_WIDE},
    fingerprint::CertificateFingerprint,
    sdp::{MediaSection, SdpAttributes, SdpOffer},
};

/// Header extension with the media id of a packet (RFC 8843 9.2).
const MID: &str = "urn:ietf:params:rtp-hdrext:sdes:mid";
/// Header extension with the transport-wide sequence number
/// (draft-holmer-rmcat-transport-wide-cc-extensions-01 2).
const NUMBER: &str = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
/// Audio encodings that only accompany another one.
const BESIDE: [&str; 3] = ["red", "telephone-event", "CN"];
/// Most announced SSRCs stored, for requesting the first keyframe.
const SOURCES_MAX: usize = 8;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IceCredentials {
    pub(super) ufrag: String,
    pub(super) pwd: String,
}

#[derive(Debug)]
pub(super) struct NegotiatedMedia {
    /// Accepted payload types of video, first choice first.
    pub(super) video: Vec<PayloadFormat>,
    pub(super) payloads: PayloadTypeMap,
    pub(super) remote: IceCredentials,
    /// Fingerprints of certificates that the peer may present.
    pub(super) fingerprints: Vec<CertificateFingerprint>,
    /// SSRCs of video announced in the offer.
    pub(super) ssrcs: Vec<u32>,
    /// True if the peer supports PLI (RFC 4585 6.3.1).
    pub(super) pli: bool,
    /// True if the peer supports FIR (RFC 5104 4.3.1).
    pub(super) fir: bool,
    /// True if the peer supports generic NACK (RFC 4585 6.2.1).
    pub(super) nack: bool,
    /// True if the peer supports REMB.
    pub(super) remb: bool,
    /// Id of the transport-wide sequence number extension, if transport-wide feedback is supported.
    pub(super) numbers: Option<u8>,
    /// Media id of the section that defines the transport, for fragments.
    pub(super) transport_mid: String,
    /// Index of the video section; index and payload type of the audio section, if accepted.
    taken: (usize, Option<(usize, u8)>),
}

pub(super) fn negotiate(offer: &SdpOffer) -> Result<NegotiatedMedia, OfferError> {
    let at = offer.sections.iter().position(|one| one.kind == "video" && one.sends());
    let at = at.ok_or(OfferError::NoVideo)?;
    let video = &offer.sections[at];
    let transport = transport(offer, video);
    check(&video.proto, &transport)?;
    let chosen = codecs::select(video)?;
    let audio = offer.sections.iter().position(|section| {
        section.kind == "audio" && section.sends() && bundled(offer, video, section)
    });
    let sound = audio.and_then(|audio| audio_section(&offer.sections[audio]));
    let remote = IceCredentials {
        ufrag: transport.ufrag.ok_or(OfferError::Missing("a=ice-ufrag"))?,
        pwd: transport.pwd.ok_or(OfferError::Missing("a=ice-pwd"))?,
    };
    let rtx: Vec<u32> = video.attributes.flows.iter().map(|(_, rtx)| *rtx).collect();
    let offers =
        |message: &str| chosen.iter().any(|payload| video.has_feedback(payload.number, message));
    Ok(NegotiatedMedia {
        payloads: PayloadTypeMap::new(&chosen, sound),
        remote,
        fingerprints: transport.fingerprints,
        ssrcs: video
            .attributes
            .ssrcs
            .iter()
            .filter(|ssrc| !rtx.contains(ssrc))
            .take(SOURCES_MAX)
            .copied()
            .collect(),
        pli: offers("nack pli"),
        fir: offers("ccm fir"),
        nack: offers("nack"),
        remb: offers("goog-remb"),
        numbers: twcc_extension_id(video).filter(|_| offers(TRANSPORT_WIDE)),
        transport_mid: video.attributes.mid.clone().unwrap_or_else(|| at.to_string()),
        taken: (at, audio.zip(sound)),
        video: chosen,
    })
}

/// Returns the id of the transport-wide sequence number extension, if the section sends it.
fn twcc_extension_id(section: &MediaSection) -> Option<u8> {
    let (id, _) = section.attributes.extmaps.iter().find(|(_, uri)| uri == NUMBER)?;
    let (id, direction) = id.split_once('/').unwrap_or((id, "sendrecv"));
    // Ids above 14 need the two-byte form, which is rare; 15 ends the one-byte form.
    let id = id.parse().ok().filter(|id| (1..=14).contains(id))?;
    matches!(direction, "sendrecv" | "sendonly").then_some(id)
}

/// Returns the transport of a section: attributes that the section lacks come from the first section of its
/// bundle (RFC 8843 7.1.3, RFC 8829 5.2.1).
fn transport(offer: &SdpOffer, section: &MediaSection) -> SdpAttributes {
    let mut own = section.attributes.clone();
    let mid = offer.bundle.as_ref().and_then(|mids| mids.first());
    let is_tagged = |one: &&MediaSection| mid.is_some() && one.attributes.mid.as_ref() == mid;
    let tagged = offer.sections.iter().find(is_tagged);
    if let Some(tagged) = tagged.filter(|tagged| bundled(offer, tagged, section)) {
        let tagged = tagged.attributes.clone();
        // Both credentials come from one section, as mixed ones would not match.
        if own.ufrag.is_none() && own.pwd.is_none() {
            (own.ufrag, own.pwd) = (tagged.ufrag, tagged.pwd);
        }
        if own.fingerprints.is_empty() {
            own.fingerprints = tagged.fingerprints;
        }
        own.connects = own.connects.or(tagged.connects);
        own.rtcp_mux |= tagged.rtcp_mux;
    }
    own
}

/// Checks that a transport can carry media over DTLS-SRTP.
fn check(proto: &str, transport: &SdpAttributes) -> Result<(), OfferError> {
    if !matches!(proto, "UDP/TLS/RTP/SAVPF" | "UDP/TLS/RTP/SAVP" | "RTP/SAVPF") {
        return Err(OfferError::Unserved("video over another protocol than UDP/TLS/RTP/SAVPF"));
    }
    if !transport.rtcp_mux {
        return Err(OfferError::Unserved("RTCP on a port of its own"));
    }
    if transport.fingerprints.is_empty() {
        return Err(OfferError::Missing("a=fingerprint of SHA-256, SHA-384 or SHA-512"));
    }
    match transport.connects {
        Some(true) => Ok(()),
        Some(false) => Err(OfferError::Unserved("a DTLS client on this side")),
        None => Err(OfferError::Missing("a=setup")),
    }
}

/// Returns true if two sections share a transport.
fn bundled(offer: &SdpOffer, one: &MediaSection, other: &MediaSection) -> bool {
    let Some(bundle) = &offer.bundle else { return false };
    let listed = |section: &MediaSection| {
        section.attributes.mid.as_ref().is_some_and(|mid| bundle.contains(mid))
    };
    listed(one) && listed(other)
}

/// Returns the first payload type of an audio section that carries audio by itself; redundancy, tones and
/// comfort noise accompany another one (RFC 2198, RFC 4733, RFC 3389).
fn audio_section(section: &MediaSection) -> Option<u8> {
    let is_beside = |number: u8| {
        let name = section.rtpmap(number).and_then(|encoding| encoding.split('/').next());
        // 13 is comfort noise without an rtpmap (RFC 3551 6).
        name.map_or(number == 13, |name| BESIDE.iter().any(|one| one.eq_ignore_ascii_case(name)))
    };
    let is_sound = |number: &u8| *number < 128 && !(64..96).contains(number) && !is_beside(*number);
    section.formats.iter().filter_map(|format| format.parse().ok()).find(is_sound)
}

pub(super) struct LocalParameters<'a> {
    pub(super) credentials: &'a IceCredentials,
    pub(super) fingerprint: &'a CertificateFingerprint,
    /// Candidate addresses, first choice first.
    pub(super) candidates: &'a [SocketAddr],
    /// Id of the SDP session, below 2^63.
    pub(super) session: u64,
}

pub(super) fn write(
    offer: &SdpOffer,
    negotiated: &NegotiatedMedia,
    local: &LocalParameters<'_>,
) -> String {
    let mut text = String::with_capacity(2048);
    let (video, audio) = negotiated.taken;
    line(&mut text, format_args!("v=0"));
    line(&mut text, format_args!("o=- {} 1 IN IP4 0.0.0.0", local.session));
    line(&mut text, format_args!("s=-"));
    line(&mut text, format_args!("t=0 0"));
    let taken = |at: &usize| *at == video || audio.is_some_and(|(audio, _)| audio == *at);
    if offer.bundle.is_some() {
        let mids: Vec<&str> = (0..offer.sections.len())
            .filter(taken)
            .filter_map(|at| offer.sections[at].attributes.mid.as_deref())
            .collect();
        line(&mut text, format_args!("a=group:BUNDLE {}", mids.join(" ")));
    }
    line(&mut text, format_args!("a=ice-lite"));
    for (at, section) in offer.sections.iter().enumerate() {
        if at == video {
            accept(&mut text, section, local, &video_formats(negotiated));
            write_video(&mut text, section, negotiated);
        } else if let Some((_, format)) = audio.filter(|(audio, _)| *audio == at) {
            accept(&mut text, section, local, &format.to_string());
            write_format(&mut text, section, format);
        } else {
            // A port of zero rejects a section (RFC 3264 6).
            write_head(&mut text, section, 0, &section.formats.join(" "));
            line(&mut text, format_args!("a=inactive"));
        }
    }
    text
}

fn line(text: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    text.write_fmt(arguments).expect("a string takes every line");
    text.push_str("\r\n");
}

fn video_formats(negotiated: &NegotiatedMedia) -> String {
    let numbers = negotiated
        .video
        .iter()
        .flat_map(|payload| std::iter::once(payload.number).chain(payload.rtx));
    numbers.map(|number| number.to_string()).collect::<Vec<_>>().join(" ")
}

fn write_head(text: &mut String, section: &MediaSection, port: u16, formats: &str) {
    line(text, format_args!("m={} {port} {} {formats}", section.kind, section.proto));
    line(text, format_args!("c=IN IP4 0.0.0.0"));
    if let Some(mid) = &section.attributes.mid {
        line(text, format_args!("a=mid:{mid}"));
    }
}

/// Writes the head of an accepted section, with the shared transport.
fn accept(text: &mut String, section: &MediaSection, local: &LocalParameters<'_>, formats: &str) {
    write_head(text, section, 9, formats);
    line(text, format_args!("a=recvonly"));
    line(text, format_args!("a=rtcp-mux"));
    line(text, format_args!("a=rtcp-mux-only"));
    line(text, format_args!("a=ice-ufrag:{}", local.credentials.ufrag));
    line(text, format_args!("a=ice-pwd:{}", local.credentials.pwd));
    line(text, format_args!("a=fingerprint:{}", local.fingerprint));
    line(text, format_args!("a=setup:passive"));
    write_candidates(text, local.candidates);
    for (id, uri) in &section.attributes.extmaps {
        if uri == MID {
            line(text, format_args!("a=extmap:{id} {uri}"));
        }
    }
}

/// Writes the host candidates and the end of them (RFC 8839 5.1, RFC 8838 8.2).
pub(super) fn write_candidates(text: &mut String, candidates: &[SocketAddr]) {
    for (at, address) in candidates.iter().enumerate() {
        // RFC 8445 5.1.2.1 with the type preference 126 of a host candidate and component 1.
        let local_preference = 65_535 - u32::try_from(at).unwrap_or(u32::MAX).min(65_535);
        let priority = (126 << 24) + (local_preference << 8) + 255;
        let (name, ip, port) = (at + 1, address.ip(), address.port());
        line(text, format_args!("a=candidate:{name} 1 udp {priority} {ip} {port} typ host"));
    }
    line(text, format_args!("a=end-of-candidates"));
}

fn write_video(text: &mut String, section: &MediaSection, negotiated: &NegotiatedMedia) {
    if let Some(id) = negotiated.numbers {
        line(text, format_args!("a=extmap:{id} {NUMBER}"));
    }
    let is_taken = |message| message != TRANSPORT_WIDE || negotiated.numbers.is_some();
    for payload in &negotiated.video {
        write_format(text, section, payload.number);
        for message in FEEDBACK.into_iter().filter(|message| is_taken(*message)) {
            if section.has_feedback(payload.number, message) {
                line(text, format_args!("a=rtcp-fb:{} {message}", payload.number));
            }
        }
        if let Some(rtx) = payload.rtx {
            write_format(text, section, rtx);
        }
    }
}

/// Writes the encoding and parameters of a payload type as offered; aiortc rejects an answer without the
/// parameters.
fn write_format(text: &mut String, section: &MediaSection, number: u8) {
    if let Some(encoding) = section.rtpmap(number) {
        line(text, format_args!("a=rtpmap:{number} {encoding}"));
    }
    if let Some(parameters) = section.fmtp(number) {
        line(text, format_args!("a=fmtp:{number} {parameters}"));
    }
}

#[cfg(test)]
#[path = "sdp_answer/tests.rs"]
pub(super) mod tests;
