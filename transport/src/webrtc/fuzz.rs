//! Invariants of the parsers of signalling and of datagrams for arbitrary bytes, and of TWCC feedback for arbitrary
//! arrival times.
//!
//! Called by fuzzers with generated input, and by tests with a stable compiler. Each returns how much of its input
//! was accepted: a corpus that is rejected would test little when mutated. Feedback is parsed as the draft requires
//! of a sender, independently of the writer.

use std::{
    collections::BTreeMap,
    net::{Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use aws_lc_rs::hmac;

use super::{
    dtls::client_hello::{self, HandshakeStage},
    fingerprint::CertificateFingerprint,
    rtcp,
    sdp::SdpOffer,
    sdp_answer::{IceCredentials, LocalParameters, negotiate, write},
    sdpfrag::{self, SdpFragment},
    srtp::{self, SrtpProfile},
    stun::BindingRequest,
    twcc::{EVERY, NAMED_MAX, TwccRecorder},
};

/// Most bytes of one report, which fits a datagram: two per arrival time, and two per seven statuses.
const REPORT_BYTES_MAX: usize = 8 + 2 * NAMED_MAX + 2 * NAMED_MAX.div_ceil(7);
/// Password with which checks of the corpus are signed.
const PASSWORD: &str = "a-password-of-the-server";

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
pub(super) fn material(profile: SrtpProfile) -> Vec<u8> {
    (0..profile.exported_bytes()).map(|byte| byte as u8 ^ 0x5A).collect()
}

/// Quarter milliseconds per unit of a report's reference time.
const REFERENCE: i64 = 256;

/// Every four bytes are a packet: a signed 16-bit increment of its number, and the time passed in tens of
/// microseconds, both big endian.
///
/// Reports are taken when due. Asserts that each received packet is reported within the rounding of its time,
/// and no other packet. Returns the number reported.
pub fn arrivals(bytes: &[u8]) -> usize {
    let start = Instant::now();
    let (mut arrivals, mut now, mut number) = (TwccRecorder::new(start), start, 0_u16);
    let mut came: BTreeMap<u16, Vec<Duration>> = BTreeMap::new();
    let mut told = 0;
    for packet in bytes.chunks_exact(4) {
        number = number.wrapping_add(u16::from_be_bytes([packet[0], packet[1]]));
        now += Duration::from_micros(10) * u32::from(u16::from_be_bytes([packet[2], packet[3]]));
        arrivals.packet(number, now);
        came.entry(number).or_default().push(now - start);
        told += reported(&mut arrivals, now, start, &came);
    }
    told += reported(&mut arrivals, now + EVERY, start, &came);
    assert_eq!(arrivals.deadline(), None, "all is told");
    told
}

fn reported(
    arrivals: &mut TwccRecorder,
    now: Instant,
    start: Instant,
    came: &BTreeMap<u16, Vec<Duration>>,
) -> usize {
    let mut told = 0;
    while let Some(report) = arrivals.report(now) {
        assert!(report.len() <= REPORT_BYTES_MAX, "{} bytes", report.len());
        let read = read(&report);
        assert!((1..=NAMED_MAX).contains(&read.len()), "{} packets", read.len());
        for (number, at) in read {
            let Some(quarters) = at else { continue };
            let at = |came: &Duration| (came.as_micros() as i64 - quarters * 250).abs() <= 250;
            let is_true = came.get(&number).is_some_and(|came| came.iter().any(at));
            assert!(is_true, "{number} did not come at {quarters}");
            told += 1;
        }
    }
    let due = arrivals.deadline();
    assert!(due.is_none_or(|at| at > now && at >= start), "something is due for ever");
    told
}

/// Returns the numbers of a report with their times since the origin in quarter milliseconds; `None` for a
/// lost packet (draft-holmer-rmcat-transport-wide-cc-extensions-01 3.1).
pub(super) fn read(report: &[u8]) -> Vec<(u16, Option<i64>)> {
    let word = |at: usize| u16::from_be_bytes([report[at], report[at + 1]]);
    let (first, count) = (word(0), usize::from(word(2)));
    let reference = u32::from_be_bytes([0, report[4], report[5], report[6]]);
    let (mut at, mut statuses) = (8, Vec::new());
    while statuses.len() < count {
        let chunk = word(at);
        at += 2;
        match chunk >> 14 {
            0 | 1 => {
                let run = usize::from(chunk & 0x1fff);
                assert!(run > 0, "a run of nothing");
                statuses.extend(std::iter::repeat_n(chunk >> 13 & 3, run));
            }
            2 => statuses.extend((0..14).map(|bit| chunk >> (13 - bit) & 1)),
            _ => statuses.extend((0..7).map(|symbol| chunk >> (12 - 2 * symbol) & 3)),
        }
    }
    statuses.truncate(count);
    let mut time = i64::from(reference) * REFERENCE;
    let mut told = Vec::with_capacity(count);
    for (status, place) in statuses.into_iter().zip(0u16..) {
        let delta = match status {
            0 => None,
            1 => Some(i64::from(report[at])),
            2 => Some(i64::from(word(at) as i16)),
            other => panic!("status {other}"),
        };
        at += usize::from(status);
        time += delta.unwrap_or(0);
        told.push((first.wrapping_add(place), delta.map(|_| time)));
    }
    assert_eq!(at, report.len(), "nothing is left over");
    told
}
