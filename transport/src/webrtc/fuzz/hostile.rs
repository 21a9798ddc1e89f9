//! Invariants of the parsers of signalling and of datagrams, for arbitrary bytes.
//!
//! Each returns how much of its input was accepted: a corpus that is rejected would test little when mutated.

use std::net::{Ipv4Addr, SocketAddr};

use aws_lc_rs::hmac;

use crate::webrtc::{
    dtls::client_hello::{self, HandshakeStage},
    fingerprint::CertificateFingerprint,
    rtcp,
    sdp::SdpOffer,
    sdp_answer::{IceCredentials, LocalParameters, negotiate, write},
    sdpfrag::{self, SdpFragment},
    srtp::{self, SrtpProfile},
    stun::BindingRequest,
};

/// Password with which checks of the corpus are signed.
pub const PASSWORD: &str = "a-password-of-the-server";

/// Parses an SDP offer; asserts that the answer has a codec, and one section per offered section.
pub fn offer(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let Ok(offer) = SdpOffer::parse(&text) else { return 0 };
    let Ok(negotiated) = negotiate(&offer) else { return 0 };
    assert!(!negotiated.video.is_empty(), "{text}");
    let credentials = IceCredentials { ufrag: "abcd".to_owned(), pwd: PASSWORD.to_owned() };
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let local = LocalParameters {
        credentials: &credentials,
        fingerprint: &CertificateFingerprint::of(b"a certificate"),
        candidates: &[address],
        session: 1,
    };
    let answer = write(&offer, &negotiated, &local);
    let (sections, control) = (answer.matches("\r\nm=").count(), answer.replace("\r\n", ""));
    assert_eq!(sections, offer.sections.len(), "{answer}");
    assert!(!control.chars().any(char::is_control), "a line of the peer's: {answer:?}");
    assert!(answer.len() <= 2048 + 2 * text.len(), "{} bytes", answer.len());
    sections
}

/// Parses a trickle fragment; asserts that an answer with its credentials is well formed.
pub fn fragment(bytes: &[u8]) -> usize {
    let Ok(fragment) = SdpFragment::parse(&String::from_utf8_lossy(bytes)) else { return 0 };
    let ours = fragment.ufrag.zip(fragment.pwd).map(|(ufrag, pwd)| IceCredentials { ufrag, pwd });
    if let Some(credentials) = ours {
        let text = sdpfrag::write(&credentials, "0", &[]);
        assert_eq!(text.lines().count(), text.matches("\r\n").count(), "{text:?}");
    }
    fragment.candidates + usize::from(fragment.ended)
}

/// Parses a datagram as STUN; asserts that the responses have the length that they state.
pub fn stun(bytes: &[u8]) -> usize {
    let Ok(request) = BindingRequest::parse(bytes) else { return 0 };
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, PASSWORD.as_bytes());
    let from = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    let mut out = Vec::new();
    request.accept(from, &key, &mut out);
    if let Some(unknown) = request.unknown {
        out.clear();
        request.refuse_attribute(unknown, &key, &mut out);
    }
    assert_eq!(out.len() - 20, usize::from(u16::from_be_bytes([out[2], out[3]])));
    assert_eq!(out[4..20], bytes[4..20], "cookie and transaction are the request's");
    usize::from(request.is_signed_with(&key)) + usize::from(request.users().is_some())
}

/// Filters DTLS records during and after a handshake; asserts that the result is whole records and stable.
pub fn dtls(bytes: &[u8]) -> usize {
    let mut fragments = usize::from(client_hello::offers_gcm(bytes));
    for stage in
        [HandshakeStage::Shaking(0), HandshakeStage::Shaking(3), HandshakeStage::Established]
    {
        let mut numbers = 0;
        let Some(left) = client_hello::filter_records(bytes, stage, &mut numbers) else { continue };
        let again = client_hello::filter_records(&left.datagram, stage, &mut numbers);
        let again = again.expect("what is left are whole records");
        assert_eq!(again.fragments, left.fragments, "{stage:?}");
        assert!(left.datagram.len() <= bytes.len() + 13 * left.fragments as usize, "{stage:?}");
        fragments += left.fragments as usize;
    }
    fragments
}

/// Decrypts packets, each after a length byte whose top bit marks RTCP; the first byte selects the profile.
///
/// Asserts that a decrypted packet is part of the input and is rejected as a replay. RTCP is parsed.
pub fn srtp(bytes: &[u8]) -> usize {
    let Some((choice, mut rest)) = bytes.split_first() else { return 0 };
    let profile = if choice & 1 == 0 { SrtpProfile::Gcm } else { SrtpProfile::Sha1 };
    let Some((mut inbound, _)) = srtp::open(profile, &material(profile)) else { return 0 };
    let mut opened = 0;
    while let [length, after @ ..] = rest {
        let (packet, after) = after.split_at(usize::from(length & 0x7f).min(after.len()));
        rest = after;
        let (mut packet, mut again) = (packet.to_vec(), packet.to_vec());
        let most = packet.len();
        let (first, second) = if length >> 7 == 1 {
            let plain = inbound.control(&mut packet).map(|plain| (plain.len(), control(plain)));
            (plain.map(|(len, _)| len), inbound.control(&mut again).is_ok())
        } else {
            let plain = inbound.media(&mut packet).map(<[u8]>::len);
            (plain, inbound.media(&mut again).is_ok())
        };
        assert!(!(first.is_ok() && second), "a packet was opened twice");
        if let Ok(len) = first {
            assert!(len < most, "the tag is left");
            opened += 1;
        }
    }
    opened
}

/// Parses unencrypted compound RTCP; asserts that it yields no more events than its words can hold.
pub fn control(bytes: &[u8]) -> usize {
    let mut events = 0;
    rtcp::read(bytes, |_| events += 1);
    assert!(events <= bytes.len() / 4, "{events} events in {} bytes", bytes.len());
    events
}

/// Returns the keying material of the encrypted packets of the corpus.
pub(in crate::webrtc) fn material(profile: SrtpProfile) -> Vec<u8> {
    (0..profile.exported_bytes()).map(|byte| byte as u8 ^ 0x5A).collect()
}
