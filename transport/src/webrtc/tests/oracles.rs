//! Tests of STUN, SDP, RTP and RTCP against another implementation, in both directions.

use std::{
    io::Cursor,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::{Duration, Instant},
};

use bytes::Bytes;
use proptest::{collection::vec, option, prelude::*};
use rtc_rtcp::{
    goodbye::Goodbye,
    packet::{self as compound, Packet as Report},
    payload_feedbacks::{
        full_intra_request::FullIntraRequest, picture_loss_indication::PictureLossIndication,
        receiver_estimated_maximum_bitrate::ReceiverEstimatedMaximumBitrate,
    },
    receiver_report::ReceiverReport,
    sender_report::SenderReport,
    source_description::{SdesType, SourceDescription},
    transport_feedbacks::{
        transport_layer_cc::TransportLayerCc, transport_layer_nack::TransportLayerNack,
    },
};
use rtc_rtp::{header::Header, packet::Packet as Peer};
use rtc_sdp::description::session::SessionDescription;
use rtc_shared::marshal::Marshal;
use rtc_stun::{
    attributes::{self, ATTR_UNKNOWN_ATTRIBUTES},
    error_code::ErrorCodeAttribute,
    message::{BINDING_ERROR, BINDING_SUCCESS, Getter},
    xoraddr::XorMappedAddress,
};

use super::{
    fuzz,
    rtcp::{self, ReportBlock, RtcpEvent},
    sdp::{SdpOffer, tests::CHROMIUM},
    sdp_answer::tests::answer,
    stun::{
        BindingRequest,
        tests::{check, key, verified},
    },
    twcc::TwccRecorder,
};
use crate::rtp::{RtpPacket, extension};

const PASSWORD: &str = "a password of 22 chars";

#[test]
fn offers_and_answers_are_read_alike() {
    let read = |text: &str| SessionDescription::unmarshal(&mut Cursor::new(text)).expect("SDP");
    let (_, ours) = answer(CHROMIUM).expect("it is answered");
    let theirs = read(&ours);
    assert_eq!(theirs.marshal(), ours, "nothing is lost in it");
    let [audio, video] = &theirs.media_descriptions[..] else { panic!("two sections") };
    assert_eq!((&*audio.media_name.media, &*video.media_name.media), ("audio", "video"));
    let codecs = video.codecs();
    let named = |number: u8| codecs.get(&number).map(|codec| (&*codec.name, &*codec.fmtp));
    assert_eq!(named(96), Some(("VP8", "")));
    assert_eq!(named(108), Some(("rtx", "apt=107")));
    let offered = read(CHROMIUM).marshal();
    assert_eq!(answer(&offered).expect("it is answered").1, ours, "an offer that they wrote");
    let (one, other) = (SdpOffer::parse(CHROMIUM), SdpOffer::parse(&offered));
    let sections = |offer: Result<SdpOffer, _>| format!("{:?}", offer.expect("an offer").sections);
    assert_eq!(sections(one), sections(other));
}

#[test]
fn feedback_is_read_as_it_was_meant() {
    let (mut out, missing) = (Vec::new(), [65_534, 65_535, 3, 14, 15, 400]);
    let block = ReportBlock {
        ssrc: 7,
        fraction_lost: 3,
        lost: -1,
        highest: 1 << 20,
        ..ReportBlock::default()
    };
    rtcp::report(&mut out, 0x0123_4567, Some(block));
    rtcp::picture_loss(&mut out, 9, 7);
    rtcp::full_intra(&mut out, 9, 7, 3);
    rtcp::bit_rate(&mut out, 9, 7, 6_000_000);
    assert_eq!(rtcp::nack(&mut out, 9, 7, &missing), missing.len());
    let packets = compound::unmarshal(&mut &out[..]).expect("a compound packet");
    let [report, named, loss, intra, rate, negative] = &packets[..] else { panic!("six packets") };
    let blocks = &of::<ReceiverReport>(report).reports;
    let told =
        blocks.iter().map(|it| (it.ssrc, it.fraction_lost, it.total_lost, it.last_sequence_number));
    assert_eq!(told.collect::<Vec<_>>(), [(7, 3, 0xff_ffff, 1 << 20)]);
    let name = &of::<SourceDescription>(named).chunks[0].items[0];
    assert_eq!((name.sdes_type, &name.text[..]), (SdesType::SdesCname, &b"abcdefgh"[..]));
    assert_eq!(of::<PictureLossIndication>(loss).media_ssrc, 7);
    let intra = &of::<FullIntraRequest>(intra).fir[0];
    assert_eq!((intra.ssrc, intra.sequence_number), (7, 3));
    let rate = of::<ReceiverEstimatedMaximumBitrate>(rate);
    assert!((5_999_900.0..=6_000_000.0).contains(&rate.bitrate) && rate.ssrcs == [7], "{rate:?}");
    let pairs = &of::<TransportLayerNack>(negative).nacks;
    assert_eq!(pairs.len(), 3, "one for 17 numbers, over the wrap too");
    assert_eq!(pairs.iter().flat_map(|pair| pair.packet_list()).collect::<Vec<_>>(), missing);
}

/// Downcasts the packet to type `T`.
fn of<T: 'static>(packet: &impl AsRef<dyn Report>) -> &T {
    packet.as_ref().as_any().downcast_ref().unwrap_or_else(|| panic!("another kind"))
}

fn address() -> impl Strategy<Value = IpAddr> {
    let mapped = any::<Ipv4Addr>().prop_map(|ip| ip.to_ipv6_mapped().into());
    prop_oneof![any::<IpAddr>(), mapped]
}

proptest! {
    #[test]
    fn checks_and_responses_cross(
        ours in "[a-zA-Z0-9+/]{4,32}", theirs in "[a-zA-Z0-9+/]{4,32}",
        ip in address(), port: u16, nominates: bool, controlled: bool,
    ) {
        let role = match controlled {
            true => attributes::ATTR_ICE_CONTROLLED,
            false => attributes::ATTR_ICE_CONTROLLING,
        };
        let mut more = vec![(role.0, &[7; 8][..])];
        more.extend(nominates.then_some((attributes::ATTR_USE_CANDIDATE.0, &[][..])));
        let check = check(&format!("{ours}:{theirs}"), PASSWORD, &more);
        let request = BindingRequest::parse(&check).expect("a check");
        prop_assert_eq!(request.users(), Some((&*ours, &*theirs)));
        prop_assert_eq!((request.nominates, request.controlled), (nominates, controlled));
        prop_assert_eq!(request.unknown, None);
        let signed = [PASSWORD, "another"].map(|password| request.is_signed_with(&key(password)));
        prop_assert_eq!(signed, [true, false]);
        let answered = |write: &dyn Fn(&mut Vec<u8>)| {
            let mut out = vec![9, 9];
            write(&mut out);
            let message = verified(&out[2..], PASSWORD);
            assert_eq!(message.transaction_id.0[..], check[8..20]);
            message
        };
        let key = key(PASSWORD);
        let accepted = answered(&|out| request.accept(SocketAddr::new(ip, port), &key, out));
        prop_assert_eq!(accepted.typ, BINDING_SUCCESS);
        let mut seen = XorMappedAddress::default();
        seen.get_from(&accepted).expect("an address");
        prop_assert_eq!((seen.ip, seen.port), (ip.to_canonical(), port));
        let conflict = answered(&|out| request.refuse_role(&key, out));
        let unknown = answered(&|out| request.refuse_attribute(0x7fff, &key, out));
        for (refused, expected) in [(&conflict, 487), (&unknown, 420)] {
            let mut code = ErrorCodeAttribute::default();
            code.get_from(refused).expect("a code");
            prop_assert_eq!((refused.typ, code.code.0), (BINDING_ERROR, expected));
        }
        prop_assert_eq!(unknown.get(ATTR_UNKNOWN_ATTRIBUTES).expect("a list"), [0x7f, 0xff]);
    }

    #[test]
    fn media_packets_are_read_as_they_were_written(
        (marker, payload_type, sequence_number) in any::<(bool, u8, u16)>(),
        (timestamp, ssrc) in any::<(u32, u32)>(),
        csrc in vec(any::<u32>(), 0..16), number in option::of(1..15_u8),
        content in vec(any::<u8>(), 0..50),
    ) {
        let payload_type = payload_type & 0x7f;
        let mut header = Header {
            version: 2, marker, payload_type, sequence_number, timestamp, ssrc, csrc, ..Header::default()
        };
        if let Some(id) = number {
            header.set_extension(id, Bytes::from_static(&[1, 2])).expect("it fits");
            header.set_extension(id % 14 + 1, Bytes::from_static(&[3])).expect("it fits");
        }
        let bytes = Peer { header, payload: content.clone().into() }.marshal().expect("it fits");
        let sequence = sequence_number;
        let expected = RtpPacket { payload_type, ssrc, sequence, timestamp, marker, payload: &content };
        prop_assert_eq!(RtpPacket::parse(&bytes), Some(expected));
        for id in 1..15 {
            let value: Option<&[u8]> = match number {
                Some(number) if number == id => Some(&[1, 2]),
                Some(number) if number % 14 + 1 == id => Some(&[3]),
                _ => None,
            };
            prop_assert_eq!(extension(&bytes, id), value, "{}", id);
        }
    }

    #[test]
    fn reports_and_goodbyes_are_heard(
        ssrc: u32, ntp_time: u64, rtp_time: u32, sources in vec(any::<u32>(), 0..31),
    ) {
        let report = SenderReport { ssrc, ntp_time, rtp_time, ..SenderReport::default() };
        let goodbye = Goodbye { sources: sources.clone(), reason: Bytes::from_static(b"done") };
        let bytes = compound::marshal(&[Box::new(report), Box::new(goodbye)]).expect("it fits");
        let mut heard = Vec::new();
        rtcp::read(&bytes, |one| heard.push(one));
        let goodbyes = sources.into_iter().map(|ssrc| RtcpEvent::Goodbye { ssrc });
        let report = RtcpEvent::Report { ssrc, ntp: ntp_time, rtp: rtp_time };
        let expected: Vec<RtcpEvent> = std::iter::once(report).chain(goodbyes).collect();
        prop_assert_eq!(heard, expected);
    }

    #[test]
    fn arrivals_are_counted_as_they_are_told(steps in vec((1_u16..40, 0_u64..90_000), 1..300)) {
        let start = Instant::now();
        let (mut arrivals, mut number, mut now) = (TwccRecorder::new(start), 0_u16, start);
        for (more, us) in steps {
            (number, now) = (number.wrapping_add(more), now + Duration::from_micros(us));
            arrivals.packet(number, now);
        }
        while let Some(report) = arrivals.report(now) {
            let mut out = Vec::new();
            rtcp::transport_wide(&mut out, 9, 7, &report);
            let packets = compound::unmarshal(&mut &out[..]).expect("a packet");
            let told = of::<TransportLayerCc>(&packets[0]);
            let ours = fuzz::read(&report);
            prop_assert_eq!(usize::from(told.packet_status_count), ours.len());
            prop_assert_eq!(told.base_sequence_number, ours[0].0);
            let mut at = i64::from(told.reference_time) * 64_000;
            let theirs = told.recv_deltas.iter().map(|one| { at += one.delta; at / 250 });
            prop_assert!(theirs.eq(ours.iter().filter_map(|(_, at)| *at)));
            prop_assert!(told.packet_chunks.len() <= ours.len());
        }
    }
}
