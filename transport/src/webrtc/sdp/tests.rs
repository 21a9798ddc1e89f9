//! Tests of offers that are malformed or too long, and of what sections inherit.

use super::*;

/// Main parts of a Chromium offer for a camera, from the corpus of the fuzzer.
pub(in crate::webrtc) const CHROMIUM: &str = include_str!("../../../../fuzz/corpus/offer/chromium");

#[test]
fn what_stands_in_the_session_holds_for_every_section() {
    let text = "v=0\na=ice-ufrag:abcd\na=ice-pwd:0123456789012345678901\na=setup:active\n\
                a=recvonly\nm=video 9 UDP/TLS/RTP/SAVPF 96\nm=audio 9 UDP/TLS/RTP/SAVPF 0\n\
                a=sendonly\na=ice-ufrag:efgh\n";
    let offer = SdpOffer::parse(text).expect("it is a valid offer");
    assert_eq!(offer.sections[0].attributes.ufrag.as_deref(), Some("abcd"));
    assert!(!offer.sections[0].sends());
    assert_eq!(offer.sections[1].attributes.ufrag.as_deref(), Some("efgh"));
    assert!(offer.sections[1].sends());
}

#[test]
fn broken_offers_name_their_line() {
    let cases = [
        ("not SDP", "hello", 1),
        ("another version", "v=1", 1),
        ("a line without a type", "v=0\nhello", 2),
        ("a port that is none", "v=0\nm=video x UDP/TLS/RTP/SAVPF 96", 2),
        ("an m= line that ends early", "v=0\nm=video 9", 2),
        ("a payload type above 127", "v=0\nm=video 9 RTP 96\na=rtpmap:128 VP8/90000", 3),
        ("a short ufrag", "v=0\na=ice-ufrag:abc", 2),
        ("a colon in a ufrag", "v=0\na=ice-ufrag:ab:cd", 2),
        ("a setup that is none", "v=0\na=setup:both", 2),
        ("a control character", "v=0\na=mid:\u{7}", 2),
        ("an ssrc that is none", "v=0\na=ssrc:x cname:c", 2),
    ];
    for (name, text, expected) in cases {
        match SdpOffer::parse(text) {
            Err(OfferError::Malformed { line, .. }) => assert_eq!(line, expected, "{name}"),
            other => panic!("{name}: {other:?}"),
        }
    }
}

#[test]
fn offers_are_bounded() {
    let long = format!("v=0\n{}", "a=x\n".repeat(OFFER_BYTES_MAX / 4));
    assert_eq!(SdpOffer::parse(&long).err(), Some(OfferError::TooLong(OFFER_BYTES_MAX)));
    let sections = format!("v=0\n{}", "m=video 9 RTP 96\n".repeat(SECTIONS_MAX + 1));
    assert_eq!(SdpOffer::parse(&sections).err(), Some(OfferError::TooMany(SECTIONS_MAX)));
    let sources: String = (0..=VALUES_MAX).map(|ssrc| format!("a=ssrc:{ssrc} c:d\n")).collect();
    let sources = format!("v=0\nm=video 9 RTP 96\n{sources}");
    assert!(matches!(SdpOffer::parse(&sources), Err(OfferError::Malformed { .. })));
    assert_eq!(SdpOffer::parse("v=0\n").err(), Some(OfferError::NoVideo));
}
