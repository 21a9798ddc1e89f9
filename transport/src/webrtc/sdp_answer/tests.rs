//! Tests of answers and of rejected offers.

use media::Codec;

use super::*;
use crate::webrtc::{codecs::PayloadKind, sdp::tests::CHROMIUM};

pub(in crate::webrtc) fn answer(text: &str) -> Result<(NegotiatedMedia, String), OfferError> {
    let offer = SdpOffer::parse(text)?;
    let negotiated = negotiate(&offer)?;
    let credentials =
        IceCredentials { ufrag: "ours".to_owned(), pwd: "our password of 22 chars".to_owned() };
    let fingerprint = CertificateFingerprint::of(b"certificate");
    let candidates =
        ["192.0.2.7:4000".parse().expect("v4"), "[2001:db8::7]:4000".parse().expect("v6")];
    let local = LocalParameters {
        credentials: &credentials,
        fingerprint: &fingerprint,
        candidates: &candidates,
        session: 7,
    };
    let text = write(&offer, &negotiated, &local);
    Ok((negotiated, text))
}

fn section<'a>(text: &'a str, kind: &str) -> Vec<&'a str> {
    text.lines()
        .skip_while(|line| !line.starts_with(&format!("m={kind}")))
        .enumerate()
        .take_while(|(at, line)| *at == 0 || !line.starts_with("m="))
        .map(|(_, line)| line)
        .collect()
}

#[test]
fn chromium_gets_every_servable_codec_in_its_own_order() {
    let (negotiated, text) = answer(CHROMIUM).expect("it is answered");
    let numbers: Vec<u8> = negotiated.video.iter().map(|payload| payload.number).collect();
    // 107 and 114 precede 103: packetization mode 1 goes first among H.264. 109 is High 4:4:4.
    assert_eq!(numbers, [96, 107, 114, 103, 98, 45]);
    assert_eq!(negotiated.payloads.get(107), PayloadKind::Video(Codec::H264));
    assert_eq!(negotiated.payloads.get(108), PayloadKind::Rtx(107));
    assert_eq!(negotiated.payloads.get(111), PayloadKind::Audio);
    assert_eq!(negotiated.payloads.get(116), PayloadKind::Unknown);
    assert_eq!(negotiated.ssrcs, [1111], "a rtx source is not asked for keyframes");
    assert!(negotiated.pli && negotiated.fir && negotiated.nack && negotiated.remb);

    let video = section(&text, "video");
    assert_eq!(video[0], "m=video 9 UDP/TLS/RTP/SAVPF 96 97 107 108 114 103 104 98 99 45 46");
    for expected in [
        "a=mid:1",
        "a=recvonly",
        "a=rtcp-mux",
        "a=rtcp-mux-only",
        "a=setup:passive",
        "a=ice-ufrag:ours",
        "a=candidate:1 1 udp 2130706431 192.0.2.7 4000 typ host",
        "a=candidate:2 1 udp 2130706175 2001:db8::7 4000 typ host",
        "a=end-of-candidates",
        "a=extmap:4 urn:ietf:params:rtp-hdrext:sdes:mid",
        "a=rtcp-fb:96 nack pli",
        "a=rtcp-fb:96 goog-remb",
        "a=fmtp:107 level-asymmetry-allowed=1;packetization-mode=1;profile-level-id=42e01f",
        "a=fmtp:108 apt=107",
    ] {
        assert!(video.contains(&expected), "{expected} is missing in {video:#?}");
    }
    let absent =
        ["transport-cc", "toffset", "ulpfec", "red/90000", "simulcast", "a=ssrc", "fb:107"];
    for absent in absent {
        assert!(!text.contains(absent), "{absent} is in the answer");
    }
    assert!(text.contains("a=group:BUNDLE 0 1\r\n"));
    assert!(text.contains("a=ice-lite\r\n"));
    assert_eq!(section(&text, "audio")[0], "m=audio 9 UDP/TLS/RTP/SAVPF 111");
}

#[test]
fn packets_are_numbered_where_both_the_number_and_the_feedback_are_offered() {
    let uri = "http://www.ietf.org/id/draft-holmer-rmcat-transport-wide-cc-extensions-01";
    let numbered = |id: &str| {
        let toffset = "a=extmap:14 urn:ietf:params:rtp-hdrext:toffset\r\n";
        CHROMIUM.replace(toffset, &format!("a=extmap:{id} {uri}\r\n"))
    };
    let without = |text: String| text.replace(" transport-cc\r\n", " other\r\n");
    let rows = [
        ("offered", numbered("3"), Some(3)),
        ("one way", numbered("3/sendonly"), Some(3)),
        ("the other way", numbered("3/recvonly"), None),
        ("of a name that is none", numbered("15"), None),
        ("no number", CHROMIUM.to_owned(), None),
        ("no feedback", without(numbered("3")), None),
    ];
    for (name, offer, expected) in rows {
        let (negotiated, text) = answer(&offer).expect("it is answered");
        assert_eq!(negotiated.numbers, expected, "{name}");
        let video = section(&text, "video");
        let is_numbered = video.contains(&format!("a=extmap:3 {uri}").as_str());
        let is_fed_back = video.contains(&"a=rtcp-fb:96 transport-cc");
        assert_eq!((is_numbered, is_fed_back), (expected.is_some(), expected.is_some()), "{name}");
    }
}

#[test]
fn sections_stay_in_order_and_what_is_not_taken_is_refused() {
    let more = format!(
        "{CHROMIUM}m=application 9 UDP/DTLS/SCTP webrtc-datachannel\r\na=mid:2\r\n\
         m=video 9 UDP/TLS/RTP/SAVPF 96\r\na=mid:3\r\na=sendonly\r\na=rtpmap:96 VP8/90000\r\n"
    );
    let (_, text) = answer(&more).expect("it is answered");
    let heads: Vec<&str> = text.lines().filter(|line| line.starts_with("m=")).collect();
    assert_eq!(heads.len(), 4);
    assert!(heads[0].starts_with("m=audio 9 ") && heads[1].starts_with("m=video 9 "));
    assert_eq!(heads[2], "m=application 0 UDP/DTLS/SCTP webrtc-datachannel");
    assert_eq!(heads[3], "m=video 0 UDP/TLS/RTP/SAVPF 96");
    assert!(text.contains("a=group:BUNDLE 0 1\r\n"), "what is refused is in no group");
}

#[test]
fn sound_on_a_transport_of_its_own_is_refused() {
    let apart = CHROMIUM.replace("a=group:BUNDLE 0 1\r\n", "a=group:BUNDLE 1\r\n");
    let (negotiated, text) = answer(&apart).expect("it is answered");
    assert!(text.contains("m=audio 0 "));
    assert_eq!(negotiated.payloads.get(111), PayloadKind::Unknown);
}

#[test]
fn h264_and_its_kin_are_taken_by_profile() {
    let one = |encoding: &str, parameters: &str| {
        let (head, _) = CHROMIUM.split_once("a=rtpmap").expect("an encoding");
        let head = head.replace("m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9", "m=video 9 RTP/SAVPF 100");
        let fmtp = match parameters {
            "" => String::new(),
            parameters => format!("a=fmtp:100 {parameters}\r\n"),
        };
        let text = format!("{head}a=rtpmap:100 {encoding}\r\n{fmtp}");
        answer(&text).map(|(negotiated, _)| negotiated.video[0].codec)
    };
    let served = [
        ("H264/90000", "", Codec::H264),
        ("h264/90000", "Profile-Level-Id=42E01F; packetization-mode=0", Codec::H264),
        ("H264/90000", "profile-level-id=4d0032;packetization-mode=1", Codec::H264),
        ("H264/90000", "profile-level-id=640c34;packetization-mode=1", Codec::H264),
        ("H265/90000", "", Codec::H265),
        ("H265/90000", "level-id=93;profile-id=2;tier-flag=0;tx-mode=SRST", Codec::H265),
        ("VP9/90000", "profile-id=2", Codec::Vp9),
        ("AV1/90000", "", Codec::Av1),
    ];
    for (encoding, parameters, codec) in served {
        assert_eq!(one(encoding, parameters), Ok(codec), "{encoding} {parameters}");
    }
    let refused = [
        ("H264/90000", "profile-level-id=f4001f;packetization-mode=1"),
        ("H264/90000", "profile-level-id=6e001f;packetization-mode=1"),
        ("H264/90000", "profile-level-id=42e01f;packetization-mode=2"),
        ("H264/48000", ""),
        ("H265/90000", "profile-id=4"),
        ("VP9/90000", "profile-id=1"),
        ("AV1/90000", "profile=1"),
        ("ulpfec/90000", ""),
    ];
    for (encoding, parameters) in refused {
        let Err(OfferError::NoCodec { offered, served }) = one(encoding, parameters) else {
            panic!("{encoding} {parameters} is taken");
        };
        let name = encoding.split('/').next().unwrap_or_default();
        assert!(offered.contains(name) && offered.contains(parameters), "{offered}");
        assert!(served.contains("VP8"));
    }
}

#[test]
fn what_cannot_be_served_is_named() {
    let cases = [
        ("no video", CHROMIUM.replace("m=video", "m=text"), OfferError::NoVideo),
        ("a receiver", CHROMIUM.replace("a=sendonly", "a=recvonly"), OfferError::NoVideo),
        ("no user fragment", strip("a=ice-ufrag"), OfferError::Missing("a=ice-ufrag")),
        ("no password", strip("a=ice-pwd"), OfferError::Missing("a=ice-pwd")),
        ("no setup", strip("a=setup"), OfferError::Missing("a=setup")),
        (
            "no fingerprint",
            strip("a=fingerprint"),
            OfferError::Missing("a=fingerprint of SHA-256, SHA-384 or SHA-512"),
        ),
        (
            "a DTLS server",
            CHROMIUM.replace("a=setup:actpass", "a=setup:passive"),
            OfferError::Unserved("a DTLS client on this side"),
        ),
        ("RTCP apart", strip("a=rtcp-mux"), OfferError::Unserved("RTCP on a port of its own")),
    ];
    for (name, text, expected) in cases {
        assert_eq!(answer(&text).err(), Some(expected), "{name}");
    }
}

fn strip(prefix: &str) -> String {
    let kept = CHROMIUM.lines().filter(|line| !line.starts_with(prefix));
    kept.map(|line| format!("{line}\r\n")).collect()
}

/// Returns Chromium's offer with `max-bundle`: the transport is described in the first section only.
fn bundle_only() -> String {
    let (sound, video) = CHROMIUM.split_once("m=video 9").expect("two sections");
    let transport = ["a=ice-", "a=fingerprint", "a=setup", "a=rtcp-mux"];
    let kept = video.lines().filter(|line| !transport.iter().any(|name| line.starts_with(name)));
    let video: String = kept.map(|line| format!("{line}\r\n")).collect();
    format!("{sound}m=video 0{}", video.replacen("\r\n", "\r\na=bundle-only\r\n", 1))
}

#[test]
fn a_bundled_section_takes_the_transport_of_the_first() {
    let (negotiated, text) = answer(&bundle_only()).expect("it is answered");
    assert_eq!(negotiated.remote.ufrag, "EsAw");
    assert_eq!(negotiated.remote.pwd, "P2uYro0UCOQ4zxjKXaWCBui1");
    assert_eq!(negotiated.fingerprints.len(), 1);
    assert!(text.contains("m=video 9 UDP/TLS/RTP/SAVPF 96 "));
    let cases = [
        ("in no group", "a=group:BUNDLE 0\r\n", "RTCP on a port of its own"),
        ("another is first", "a=group:BUNDLE 1 0\r\n", "RTCP on a port of its own"),
    ];
    for (name, group, why) in cases {
        let apart = bundle_only().replace("a=group:BUNDLE 0 1\r\n", group);
        let told = answer(&apart).err().map(|error| error.to_string());
        let expected = format!("the offer asks for {why}, which is not supported");
        assert_eq!(told, Some(expected), "{name}");
    }
    let half = bundle_only().replace("a=mid:1", "a=mid:1\r\na=ice-ufrag:half");
    let missing = OfferError::Missing("a=ice-pwd");
    assert_eq!(answer(&half).err(), Some(missing), "credentials are not mixed");
}

#[test]
fn sound_that_needs_another_beside_it_is_passed_over() {
    let cases = [
        ("as offered", "111 63 9", "111"),
        ("redundancy first", "63 111 9", "111"),
        ("redundancy, tones and noise", "63 110 13 9", "9"),
        ("a static type", "0 111", "0"),
    ];
    for (name, formats, expected) in cases {
        let text = CHROMIUM.replace(
            "m=audio 9 UDP/TLS/RTP/SAVPF 111 63 9\r\n",
            &format!("m=audio 9 UDP/TLS/RTP/SAVPF {formats}\r\n"),
        );
        let text = text.replace(
            "a=rtpmap:9 G722/8000\r\n",
            "a=rtpmap:9 G722/8000\r\na=rtpmap:110 telephone-event/48000\r\n",
        );
        let (negotiated, text) = answer(&text).expect("it is answered");
        let head = format!("m=audio 9 UDP/TLS/RTP/SAVPF {expected}");
        assert_eq!(section(&text, "audio")[0], head, "{name}");
        let number = expected.parse().expect("a number");
        assert_eq!(negotiated.payloads.get(number), PayloadKind::Audio, "{name}");
    }
}
