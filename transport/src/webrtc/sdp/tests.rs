//! Tests of offers of real clients, and of malformed ones.

use super::*;

/// Main parts of a Chromium offer for a camera.
pub(in crate::webrtc) const CHROMIUM: &str = "v=0\r\n\
    o=- 5228595038118931041 2 IN IP4 127.0.0.1\r\n\
    s=-\r\n\
    t=0 0\r\n\
    a=group:BUNDLE 0 1\r\n\
    a=extmap-allow-mixed\r\n\
    a=msid-semantic: WMS stream\r\n\
    m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=rtcp:9 IN IP4 0.0.0.0\r\n\
    a=ice-ufrag:EsAw\r\n\
    a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\n\
    a=ice-options:trickle\r\n\
    a=fingerprint:sha-256 DA:39:A3:EE:5E:6B:4B:0D:32:55:BF:EF:95:60:18:90:AF:D8:07:09:DA:39:A3:EE:5E:6B:4B:0D:32:55:BF:EF\r\n\
    a=setup:actpass\r\n\
    a=mid:0\r\n\
    a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid\r\n\
    a=sendonly\r\n\
    a=rtcp-mux\r\n\
    a=rtpmap:111 opus/48000/2\r\n\
    a=rtcp-fb:111 transport-cc\r\n\
    a=fmtp:111 minptime=10;useinbandfec=1\r\n\
    a=rtpmap:63 red/48000/2\r\n\
    a=rtpmap:9 G722/8000\r\n\
    m=video 9 UDP/TLS/RTP/SAVPF 96 97 103 104 107 108 109 114 98 99 45 46 116 117 118\r\n\
    c=IN IP4 0.0.0.0\r\n\
    a=ice-ufrag:EsAw\r\n\
    a=ice-pwd:P2uYro0UCOQ4zxjKXaWCBui1\r\n\
    a=fingerprint:sha-256 DA:39:A3:EE:5E:6B:4B:0D:32:55:BF:EF:95:60:18:90:AF:D8:07:09:DA:39:A3:EE:5E:6B:4B:0D:32:55:BF:EF\r\n\
    a=setup:actpass\r\n\
    a=mid:1\r\n\
    a=extmap:14 urn:ietf:params:rtp-hdrext:toffset\r\n\
    a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid\r\n\
    a=sendonly\r\n\
    a=msid:stream track\r\n\
    a=rtcp-mux\r\n\
    a=rtcp-rsize\r\n\
    a=rtpmap:96 VP8/90000\r\n\
    a=rtcp-fb:96 goog-remb\r\n\
    a=rtcp-fb:96 transport-cc\r\n\
    a=rtcp-fb:96 ccm fir\r\n\
    a=rtcp-fb:96 nack\r\n\
    a=rtcp-fb:96 nack pli\r\n\
    a=rtpmap:97 rtx/90000\r\n\
    a=fmtp:97 apt=96\r\n\
    a=rtpmap:103 H264/90000\r\n\
    a=rtcp-fb:103 nack\r\n\
    a=rtcp-fb:103 nack pli\r\n\
    a=fmtp:103 level-asymmetry-allowed=1;packetization-mode=0;profile-level-id=42001f\r\n\
    a=rtpmap:104 rtx/90000\r\n\
    a=fmtp:104 apt=103\r\n\
    a=rtpmap:107 H264/90000\r\n\
    a=fmtp:107 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f\r\n\
    a=rtpmap:108 rtx/90000\r\n\
    a=fmtp:108 apt=107\r\n\
    a=rtpmap:109 H264/90000\r\n\
    a=fmtp:109 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=f4001f\r\n\
    a=rtpmap:114 H264/90000\r\n\
    a=fmtp:114 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=64001f\r\n\
    a=rtpmap:98 VP9/90000\r\n\
    a=fmtp:98 profile-id=0\r\n\
    a=rtpmap:99 rtx/90000\r\n\
    a=fmtp:99 apt=98\r\n\
    a=rtpmap:45 AV1/90000\r\n\
    a=fmtp:45 level-idx=5;profile=0;tier=0\r\n\
    a=rtpmap:46 rtx/90000\r\n\
    a=fmtp:46 apt=45\r\n\
    a=rtpmap:116 red/90000\r\n\
    a=rtpmap:117 rtx/90000\r\n\
    a=fmtp:117 apt=116\r\n\
    a=rtpmap:118 ulpfec/90000\r\n\
    a=ssrc-group:FID 1111 2222\r\n\
    a=ssrc:1111 cname:c\r\n\
    a=ssrc:1111 msid:stream track\r\n\
    a=ssrc:2222 cname:c\r\n";

#[test]
fn an_offer_of_chromium_is_read() {
    let offer = SdpOffer::parse(CHROMIUM).expect("it is a valid offer");
    assert_eq!(offer.bundle.as_deref(), Some(&["0".to_owned(), "1".to_owned()][..]));
    let [audio, video] = &offer.sections[..] else { panic!("two sections") };
    assert_eq!((audio.kind.as_str(), video.kind.as_str()), ("audio", "video"));
    assert!(video.sends());
    assert_eq!(video.rtpmap(107), Some("H264/90000"));
    assert_eq!(video.fmtp(108), Some("apt=107"));
    assert!(video.has_feedback(96, "nack pli"));
    assert!(!video.has_feedback(107, "nack pli"));
    assert_eq!(video.attributes.ssrcs, [1111, 2222]);
    assert_eq!(video.attributes.flows, [(1111, 2222)]);
    assert_eq!(video.attributes.setup, Some(DtlsSetup::ActPass));
    assert_eq!(video.attributes.fingerprints.len(), 1);
}

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
