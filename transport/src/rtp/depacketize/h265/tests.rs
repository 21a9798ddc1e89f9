//! Tests of single H.265 payloads.

use super::{
    super::{
        DepacketizeResult, Depacketizer,
        test_payloads::{MALFORMED, START, aggregated, given, unit},
    },
    *,
};

const VPS: [u8; 3] = [0x40, 1, 0x0c];
const PPS: [u8; 3] = [0x44, 1, 0xc0];
const CRA: [u8; 4] = [0x2a, 1, 0xa0, 9];
const IDR: [u8; 4] = [0x26, 1, 0xa0, 9];
const BLA: [u8; 4] = [0x20, 1, 0xa0, 9];
const RASL: [u8; 4] = [0x10, 1, 0xe0, 9];
const TRAIL: [u8; 4] = [0x02, 1, 0xe0, 9];
const ABOVE: [u8; 4] = [0x02, 0x09, 0xe0, 9];

fn sps() -> Vec<u8> {
    [&[0x42, 1, 0x01][..], &[0; 12], &[0x80]].concat()
}

fn aggregation(nals: &[&[u8]]) -> Vec<u8> {
    aggregated(&[0x60, 1], nals)
}

#[test]
fn every_packet_type_becomes_annex_b_or_is_refused() {
    let sps = sps();
    let sets = aggregation(&[&VPS, &sps, &PPS]);
    let with = |nal: &'static [u8]| [&VPS[..], &sps, &PPS, nal].map(<[u8]>::to_vec).to_vec();
    let whole = |nal: &'static [u8], role| given(&[&VPS, &sps, &PPS, nal], role);
    let cases: [(&str, Vec<Vec<u8>>, DepacketizeResult); 19] = [
        ("IDR", with(&IDR), whole(&IDR, START)),
        ("CRA", with(&CRA), whole(&CRA, START)),
        ("BLA", with(&BLA), whole(&BLA, UnitKind::Start { breaks_link: true })),
        ("aggregated", vec![sets.clone(), IDR.into()], whole(&IDR, START)),
        (
            "fragmented",
            vec![
                sets.clone(),
                vec![0x62, 1, 0x93, IDR[2]],
                vec![0x62, 1, 0x13],
                vec![0x62, 1, 0x53, IDR[3]],
            ],
            whole(&IDR, START),
        ),
        ("without sets", vec![IDR.into()], given(&[&IDR], UnitKind::Other)),
        (
            "without the video set",
            vec![sps.clone(), PPS.into(), IDR.into()],
            given(&[&sps, &PPS, &IDR], UnitKind::Other),
        ),
        ("RASL", vec![RASL.into()], given(&[&RASL], UnitKind::Leading)),
        ("inter", vec![TRAIL.into()], given(&[&TRAIL], UnitKind::Other)),
        ("a layer above", vec![TRAIL.into(), ABOVE.into()], given(&[&TRAIL], UnitKind::Other)),
        (
            "a fragmented layer above",
            vec![TRAIL.into(), vec![0x62, 9, 0x81, 1], vec![0x62, 9, 0x41, 1]],
            given(&[&TRAIL], UnitKind::Other),
        ),
        ("sets alone", vec![sets.clone()], Ok(None)),
        ("no end", vec![vec![0x62, 1, 0x93, 1]], MALFORMED),
        ("no beginning", vec![vec![0x62, 1, 0x53, 1]], MALFORMED),
        ("cut by another", vec![vec![0x62, 1, 0x93, 1], TRAIL.into()], MALFORMED),
        ("an end of another type", vec![vec![0x62, 1, 0x93, 1], vec![0x62, 1, 0x54, 1]], MALFORMED),
        ("PACI", vec![vec![0x64, 1, 0, 0]], MALFORMED),
        ("one byte", vec![vec![0x26]], MALFORMED),
        ("an empty unit", vec![vec![0x60, 1, 0, 0]], MALFORMED),
    ];
    for (name, payloads, expected) in cases {
        assert_eq!(unit(&mut H265Depacketizer::new(&[]), &payloads), expected, "{name}");
    }
}

#[test]
fn a_start_is_given_the_sets_that_it_lacks() {
    let sps = sps();
    let mut described = H265Depacketizer::new(&[VPS.into(), sps.clone(), PPS.into()]);
    let whole = given(&[&VPS, &sps, &PPS, &CRA], START);
    assert_eq!(unit(&mut described, &[CRA.into()]), whole);
    assert!(described.starts_keyframe(&VPS) && !described.starts_keyframe(&sps));
    assert!(described.begins_unit(&[0x46, 1, 0x10]));
    let (delimiter, information) = ([0x46, 1, 0x10], [0x4e, 1, 5, 1]);
    let all = aggregation(&[&delimiter, &information, &VPS, &sps, &PPS]);
    assert!(described.starts_keyframe(&all) && described.begins_unit(&all));
    assert!(!described.begins_unit(&aggregation(&[&information, &TRAIL])));
}

#[test]
fn sub_layers_of_a_sequence_set_are_passed_over() {
    // One sub-layer with a level: 16 flag bits, then 8 bits.
    let set = [&[0x42, 1, 0x03][..], &[0; 12], &[0x40, 0], &[0x5d], &[0b0110_0000]].concat();
    let expected = ParameterSetId { kind: ParameterSetKind::Sequence, id: 2, refers_to: Some(0) };
    assert_eq!(H265::name(&set), Some(expected));
}
