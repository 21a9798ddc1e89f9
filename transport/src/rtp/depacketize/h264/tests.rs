//! Tests of single H.264 payloads.

use super::{
    super::{
        DepacketizeResult, Depacketizer, PayloadPart,
        test_payloads::{MALFORMED, START, aggregated, given, unit},
    },
    *,
};

// All ids are 0; the slice is the first of its picture and refers to picture set 0.
const SPS: [u8; 5] = [0x67, 66, 0, 30, 0x80];
const PPS: [u8; 2] = [0x68, 0xc0];
const IDR: [u8; 3] = [0x65, 0b1011_1000, 9];
const INTER: [u8; 3] = [0x41, 0b1011_1000, 9];

fn stap(nals: &[&[u8]]) -> Vec<u8> {
    aggregated(&[0x78], nals)
}

#[test]
fn every_packet_type_becomes_annex_b_or_is_refused() {
    let whole = [&SPS[..], &PPS, &IDR];
    let cases: [(&str, Vec<Vec<u8>>, DepacketizeResult); 17] = [
        ("single", vec![SPS.into(), PPS.into(), IDR.into()], given(&whole, START)),
        ("aggregated", vec![stap(&[&SPS, &PPS]), IDR.into()], given(&whole, START)),
        (
            "fragmented",
            vec![
                stap(&[&SPS, &PPS]),
                vec![0x7c, 0x85, IDR[1]],
                vec![0x7c, 0x05],
                vec![0x7c, 0x45, IDR[2]],
            ],
            given(&whole, START),
        ),
        (
            "one fragment",
            vec![stap(&[&SPS, &PPS]), vec![0x7c, 0xc5, IDR[1], IDR[2]]],
            given(&whole, START),
        ),
        ("without sets", vec![IDR.into()], given(&[&IDR], UnitKind::Other)),
        ("one set of two", vec![SPS.into(), IDR.into()], given(&[&SPS, &IDR], UnitKind::Other)),
        (
            "without the first slice",
            vec![SPS.into(), PPS.into(), vec![0x65, 0b0101_1000]],
            given(&[&SPS, &PPS, &[0x65, 0b0101_1000]], UnitKind::Other),
        ),
        ("inter", vec![INTER.into()], given(&[&INTER], UnitKind::Other)),
        ("sets alone", vec![stap(&[&SPS, &PPS])], Ok(None)),
        ("a type to come", vec![vec![30, 1], INTER.into()], given(&[&INTER], UnitKind::Other)),
        ("no end", vec![vec![0x7c, 0x85, 1]], MALFORMED),
        ("no beginning", vec![vec![0x7c, 0x45, 1]], MALFORMED),
        ("two beginnings", vec![vec![0x7c, 0x85, 1], vec![0x7c, 0x85, 1]], MALFORMED),
        ("cut by another", vec![vec![0x7c, 0x85, 1], IDR.into()], MALFORMED),
        ("interleaved", vec![vec![25, 0, 0, 1]], MALFORMED),
        ("damaged", vec![vec![0xe5, 0x88]], MALFORMED),
        ("a size past the end", vec![vec![0x78, 0, 9, 0x65]], MALFORMED),
    ];
    for (name, payloads, expected) in cases {
        assert_eq!(unit(&mut H264Depacketizer::new(&[]), &payloads), expected, "{name}");
    }
}

#[test]
fn a_start_is_given_the_sets_that_it_lacks() {
    let mut described = H264Depacketizer::new(&[SPS.into(), PPS.into(), vec![], vec![0xff]]);
    let whole = given(&[&SPS, &PPS, &IDR], START);
    assert_eq!(unit(&mut described, &[IDR.into()]), whole, "from the description");
    let other = [0x67, 66, 0, 31, 0x80];
    let renewed = given(&[&PPS, &other, &IDR], START);
    assert_eq!(unit(&mut described, &[other.into(), IDR.into()]), renewed, "one of its own");
    let kept = given(&[&other, &PPS, &IDR], START);
    assert_eq!(unit(&mut described, &[IDR.into()]), kept, "from an earlier unit");
    assert_eq!(unit(&mut described, &[INTER.into()]), given(&[&INTER], UnitKind::Other));
}

#[test]
fn a_start_is_given_no_set_that_it_does_not_need() {
    let other = [0x67, 66, 0, 31, 0b0100_0000];
    let mut described = H264Depacketizer::new(&[SPS.into(), PPS.into(), other.into()]);
    assert_eq!(unit(&mut described, &[IDR.into()]), given(&[&SPS, &PPS, &IDR], START));
    let middle = [0x65, 0b0101_1000];
    let undecodable = given(&[&middle], UnitKind::Other);
    assert_eq!(unit(&mut described, &[middle.into()]), undecodable, "no first slice");
}

#[test]
fn payloads_say_what_of_a_picture_they_hold() {
    let depacketizer = H264Depacketizer::new(&[]);
    let cases: [(&str, Vec<u8>, PayloadPart); 8] = [
        ("a first slice", INTER.into(), PayloadPart::Beginning),
        ("another slice", vec![0x41, 0x5c], PayloadPart::Some),
        ("a first fragment", vec![0x7c, 0x85, 0xb8], PayloadPart::Beginning),
        ("a later fragment", vec![0x7c, 0x05, 0xb8], PayloadPart::Some),
        ("sets", stap(&[&SPS, &PPS]), PayloadPart::Nothing),
        ("sets and a picture", stap(&[&SPS, &PPS, &IDR]), PayloadPart::Beginning),
        ("information", vec![0x06, 5, 1, 0], PayloadPart::Nothing),
        ("filler", vec![0x0c, 0xff], PayloadPart::Nothing),
    ];
    for (name, payload, expected) in cases {
        assert_eq!(depacketizer.part(&payload), expected, "{name}");
    }
}

#[test]
fn beginnings_are_told_without_what_came_before() {
    let depacketizer = H264Depacketizer::new(&[]);
    let sei = [0x06, 5, 1, 0, 0x80];
    let cases: [(&str, Vec<u8>, bool, bool); 10] = [
        ("delimiter, information, sets", stap(&[&[0x09, 0xf0], &sei, &SPS, &PPS]), true, true),
        ("information and sets", stap(&[&sei, &SPS, &PPS]), true, true),
        ("information and a slice", stap(&[&sei, &INTER]), false, false),
        ("delimiter", vec![0x09, 0xf0], true, false),
        ("delimiter and sets", stap(&[&[0x09, 0xf0], &SPS, &PPS]), true, true),
        ("sequence set", SPS.into(), true, true),
        ("aggregated set", stap(&[&SPS, &PPS]), true, true),
        ("picture set", PPS.into(), false, false),
        ("fragment", vec![0x7c, 0x85, 1], false, false),
        ("nothing", vec![], false, false),
    ];
    for (name, payload, begins_unit, begins_start) in cases {
        assert_eq!(depacketizer.begins_unit(&payload), begins_unit, "{name}");
        assert_eq!(depacketizer.starts_keyframe(&payload), begins_start, "{name}");
    }
}
