//! Tests of pictures over a path that loses, duplicates and reorders: the output equals the input.

use std::collections::BTreeMap;

use media::{AccessUnit, Timebase, Timestamp};
use proptest::{collection::vec, prelude::*};

use super::{packetize::Packetizer, *};

const CODECS: [Codec; 5] = [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1];

/// Returns a picture as the receiver returns it; `body` holds no zeros and so no start code.
fn picture(codec: Codec, keyframe: bool, index: usize, body: &[u8]) -> AccessUnit {
    let nals =
        |nals: &[&[u8]]| nals.iter().flat_map(|nal| [&[0, 0, 0, 1], *nal].concat()).collect();
    let tail = [body, &[index as u8 | 1]].concat();
    let with = |head: &[u8]| [head, &tail].concat();
    let sps_265 = [&[0x42, 1, 0x01][..], &[0; 12], &[0x80]].concat();
    let data: Vec<u8> = match (codec, keyframe) {
        (Codec::H264, true) => {
            nals(&[&[0x67, 66, 0, 30, 0x80], &[0x68, 0xc0], &with(&[0x65, 0xb8])])
        }
        // The picture has two slices.
        (Codec::H264, false) => nals(&[&with(&[0x41, 0xb8]), &with(&[0x41, 0x5c])]),
        (Codec::H265, true) => {
            nals(&[&[0x40, 1, 0x0c], &sps_265, &[0x44, 1, 0xc0], &with(&[0x26, 1, 0xa0])])
        }
        (Codec::H265, false) => nals(&[&with(&[0x02, 1, 0xe0])]),
        (Codec::Vp8, true) => with(&[0x10, 0, 0, 0x9d, 0x01, 0x2a, 64, 0, 64, 0]),
        (Codec::Vp8, false) => with(&[0x11, 0, 0]),
        (Codec::Vp9, true) => with(&[0x82, 0x49, 0x83, 0x42]),
        (Codec::Vp9, false) => with(&[0x86, 0x00]),
        (_, true) => [&[0x12, 0, 0x0a, 2, 0, 5][..], &obu(&with(&[0x10]))].concat(),
        (_, false) => [&[0x12, 0][..], &obu(&with(&[0x30]))].concat(),
    };
    let pts = Timestamp::new(3000 * index as i64, Timebase::RTP_VIDEO);
    AccessUnit { codec, pts, keyframe, data }
}

/// Returns an OBU_FRAME with its size.
fn obu(payload: &[u8]) -> Vec<u8> {
    let size = payload.len();
    match size {
        0..128 => [&[0x32, size as u8], payload].concat(),
        _ => [&[0x32, size as u8 | 0x80, (size >> 7) as u8], payload].concat(),
    }
}

/// Effect of the path on one packet.
#[derive(Clone, Copy, Debug)]
struct Fate {
    delay_ms: u64,
    is_lost: bool,
    comes_twice: bool,
    /// Delay of the retransmission in milliseconds; `None` if it is lost.
    repair: Option<u64>,
}

fn fate(jitter_ms: u64) -> impl Strategy<Value = Fate> {
    (0..=jitter_ms, 0..20_u8, 0..20_u8, 0..10_u8, 5..80_u64).prop_map(
        |(delay_ms, lost, twice, repair, repair_ms)| Fate {
            delay_ms,
            is_lost: lost == 0,
            comes_twice: twice == 0,
            repair: (repair > 1).then_some(repair_ms),
        },
    )
}

#[derive(Clone, Debug)]
struct Path {
    codec: Codec,
    /// Bytes of each picture, and true for a keyframe.
    pictures: Vec<(Vec<u8>, bool)>,
    payload_bytes: usize,
    fates: Vec<Fate>,
}

fn path() -> impl Strategy<Value = Path> {
    let picture = (vec(1..=255_u8, 1..2000), (0..6_u8).prop_map(|one| one == 0));
    (0..5_usize, vec(picture, 8..40), 40..600_usize, vec(fate(60), 300)).prop_map(
        |(codec, pictures, payload_bytes, fates)| Path {
            codec: CODECS[codec],
            pictures,
            payload_bytes,
            fates,
        },
    )
}

/// Sends the pictures 33 ms apart, the first one with delays below `first_within_ms`; returns them, the
/// output and the counts.
fn travel(path: &Path, first_within_ms: u64) -> (Vec<AccessUnit>, Vec<AccessUnit>, ReceiverStats) {
    let mut link = Link::new(path.codec);
    let mut packetizer = Packetizer::new(path.codec, path.payload_bytes).expect("is served");
    let (mut on_the_way, mut sent_before) = (BTreeMap::new(), BTreeMap::new());
    let (mut originals, mut count) = (Vec::new(), 0_usize);
    for (index, (body, keyframe)) in path.pictures.iter().enumerate() {
        let unit = picture(path.codec, index == 0 || *keyframe, index, body);
        let payloads = packetizer.payloads(&unit);
        for (part, payload) in payloads.iter().enumerate() {
            let sent = link.lose(payload, 3000 * index as u32, part + 1 == payloads.len());
            let fate = path.fates[count % path.fates.len()];
            // The first and the last picture lose no packets, so that a loss shows in a later packet.
            let is_end = index == 0 || index + 1 == path.pictures.len();
            let fate = Fate { is_lost: fate.is_lost && !is_end, ..fate };
            // The next picture may be a start as well, and must not overtake this one.
            let at_first = Fate { delay_ms: fate.delay_ms.min(first_within_ms), ..fate };
            let fate = if index == 0 { at_first } else { fate };
            let at = index as u64 * 33 + fate.delay_ms;
            if !fate.is_lost {
                on_the_way.insert((at, 2 * count), (sent.clone(), false));
            }
            if fate.comes_twice {
                on_the_way.insert((at + 7, 2 * count + 1), (sent.clone(), false));
            }
            sent_before.insert(sent.sequence, (sent, fate));
            count += 1;
        }
        originals.push(unit);
    }
    let until_ms = path.pictures.len() as u64 * 33 + 2000;
    let outputs = link.carry(on_the_way, until_ms, |now, sequence| {
        let (sent, fate) = &sent_before[&sequence];
        Some((now + fate.repair?, sent.clone(), false))
    });
    (originals, outputs, link.receiver.counts())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn units_are_the_originals_or_absent(path in path()) {
        let (originals, outputs, counts) = travel(&path, 30);
        let by_time: BTreeMap<i64, usize> =
            originals.iter().enumerate().map(|(index, unit)| (unit.pts.ticks, index)).collect();
        let mut before: Option<usize> = None;
        for unit in &outputs {
            let index = by_time[&unit.pts.ticks];
            prop_assert_eq!(unit, &originals[index]);
            // A unit that is no start directly follows the previous one.
            prop_assert!(unit.keyframe || before == Some(index - 1), "{} follows {:?}", index, before);
            prop_assert!(before < Some(index));
            before = Some(index);
        }
        if counts.lost == 0 {
            prop_assert_eq!(outputs.len(), originals.len());
        }
    }

    #[test]
    fn jitter_alone_costs_no_picture(
        mut path in path(),
        fates in vec(fate(200), 300),
    ) {
        path.fates = fates.into_iter().map(|fate| Fate { is_lost: false, ..fate }).collect();
        // A start that overtakes the previous start would replace it, so keyframes are 12 pictures apart.
        for (index, (_, keyframe)) in path.pictures.iter_mut().enumerate() {
            *keyframe = index % 12 == 0;
        }
        let (originals, outputs, counts) = travel(&path, 200);
        prop_assert_eq!(outputs, originals);
        prop_assert_eq!(counts.lost, 0);
    }
}
