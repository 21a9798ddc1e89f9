//! Invariants of every parser of signalling and of datagrams, for any bytes.
//!
//! Each gives how much of its input was of use: a corpus that is of none would test little when it is broken.

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

/// Password that checks of the corpus are signed with.
pub const PASSWORD: &str = "a-password-of-the-server";

/// An SDP offer: what is agreed on is answered in one section for each that was offered.
pub fn offer(bytes: &[u8]) -> usize {
    let text = String::from_utf8_lossy(bytes);
    let Ok(offer) = SdpOffer::parse(&text) else { return 0 };
    let Ok(negotiated) = negotiate(&offer) else { return 0 };
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

/// A fragment of trickled candidates: what is read of it fits into its answer's lines.
pub fn fragment(bytes: &[u8]) -> usize {
    let Ok(fragment) = SdpFragment::parse(&String::from_utf8_lossy(bytes)) else { return 0 };
    let ours = fragment.ufrag.zip(fragment.pwd).map(|(ufrag, pwd)| IceCredentials { ufrag, pwd });
    if let Some(credentials) = ours {
        let text = sdpfrag::write(&credentials, "0", &[]);
        assert_eq!(text.lines().count(), text.matches("\r\n").count(), "{text:?}");
    }
    fragment.candidates + usize::from(fragment.ended)
}

/// A datagram that RFC 7983 gives to STUN: its answers are messages whose length is what they say.
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

/// Records of DTLS, in a handshake and after it: what is left of them are whole records, and no more when they come again.
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

/// Sealed packets, each behind a byte with its length, whose top bit stands for RTCP: the first byte chooses the profile.
///
/// What was opened is a part of what came, and is not opened again. RTCP is read.
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

/// Compound RTCP in the clear: it says no more than its words can hold.
pub fn control(bytes: &[u8]) -> usize {
    let mut events = 0;
    rtcp::read(bytes, |_| events += 1);
    assert!(events <= bytes.len() / 4, "{events} events in {} bytes", bytes.len());
    events
}

/// Keying material of sealed packets of the corpus.
pub(in crate::webrtc) fn material(profile: SrtpProfile) -> Vec<u8> {
    (0..profile.exported_bytes()).map(|byte| byte as u8 ^ 0x5A).collect()
}
