//! Streams with a constant size and format, and streams that may change them.

use proptest::{collection::vec, prelude::*};

use super::*;
use crate::bit_writer::Writer;

fn check(name: &str, codec: Codec, packets: &[&[u8]], expected: &[bool]) {
    let mut geometry = FormatChangeDetector::new(codec);
    let found: Vec<bool> = packets.iter().map(|packet| geometry.holds(packet)).collect();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn another_sequence_parameter_set_is_a_change() {
    let h264: &[u8] = &[0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x68, 3, 0, 0, 1, 0x65, 9];
    let (slice, same): (&[u8], &[u8]) = (&[0, 0, 1, 0x41, 9], &[0, 0, 0, 1, 0x27, 1, 2]);
    let other: &[u8] = &[0, 0, 1, 0x41, 9, 0, 0, 1, 0x67, 1, 3];
    check("H.264", Codec::H264, &[h264, slice, h264, other], &[true, true, true, false]);
    check("another reference", Codec::H264, &[h264, same], &[true, false]);
    let two: &[u8] = &[0, 0, 1, 0x67, 1, 0, 0, 1, 0x67, 2];
    check("two at once", Codec::H264, &[two], &[false]);
    let h265: &[u8] = &[0, 0, 1, 0x40, 1, 5, 0, 0, 1, 0x42, 1, 7, 0, 0, 1, 0x26, 1, 9];
    let second_layer: &[u8] = &[0, 0, 1, 0x42, 9, 8];
    let other: &[u8] = &[0, 0, 1, 0x42, 1, 8];
    check("H.265", Codec::H265, &[h265, second_layer, h265, other], &[true, true, true, false]);
}

#[test]
fn a_vp8_keyframe_says_its_size() {
    let key = |width: u8| [0x10, 0, 0, 0x9d, 1, 0x2a, width, 1, 90, 0];
    let (small, large) = (key(64), key(65));
    check("VP8", Codec::Vp8, &[&small, &[0x11], &small, &large], &[true, true, true, false]);
    check("cut", Codec::Vp8, &[&small[..9]], &[false]);
    check("no start code", Codec::Vp8, &[&[0x10; 10]], &[false]);
    check("nothing", Codec::Vp8, &[&[]], &[false]);
}

/// Returns a VP9 frame header up to its size; `format` is `color_config`.
fn vp9_key(profile: u32, format: (u32, u32), size: (u32, u32)) -> Vec<u8> {
    let head = Writer::default().bits(2, 2).bits(1, profile & 1).bits(1, profile >> 1);
    let head = head.bits(if profile == 3 { 1 } else { 0 }, 0);
    // Flags: not show_existing, keyframe, shown, not resilient.
    let head = head.bits(4, 0b0010).bits(24, 0x49_83_42).bits(format.0, format.1);
    head.bits(16, size.0).bits(16, size.1).bits(8, 0).bytes()
}

#[test]
fn vp9_frames_of_every_kind_say_their_size() {
    let eight = (4, 0b0010);
    let key = vp9_key(0, eight, (63, 35));
    let start = || Writer::default().bits(4, 0b1000);
    // Flags: inter, shown, not resilient.
    let inter = |found: &[u32]| {
        let head = start().bits(4, 0b0110).bits(2, 0).bits(8, 0xff).bits(12, 0);
        found.iter().fold(head, |head, &found| head.bits(1, found))
    };
    let of_reference = inter(&[0, 0, 1]).bytes();
    let of_its_own = |width| inter(&[0, 0, 0]).bits(16, width).bits(16, 35).bytes();
    let intra_only = |width| {
        let head = start().bits(4, 0b0100).bits(1, 1).bits(2, 0).bits(24, 0x49_83_42);
        head.bits(8, 1).bits(16, width).bits(16, 35).bytes()
    };
    let existing = start().bits(4, 0b1000).bytes();
    let rows: [(&str, Vec<u8>, bool); 12] = [
        ("the same", key.clone(), true),
        ("wider", vp9_key(0, eight, (64, 35)), false),
        ("higher", vp9_key(0, eight, (63, 36)), false),
        ("of full range", vp9_key(0, (4, 0b0011), (63, 35)), false),
        ("4:4:4", vp9_key(1, (7, 0b001_0000), (63, 35)), false),
        ("ten bits", vp9_key(2, (5, 0b0_0010), (63, 35)), false),
        ("of a reference", of_reference.clone(), true),
        ("of its own", of_its_own(63), true),
        ("of its own, wider", of_its_own(64), false),
        ("intra only", intra_only(63), true),
        ("intra only, wider", intra_only(64), false),
        ("existing", existing, true),
    ];
    for (name, frame, holds) in rows {
        check(name, Codec::Vp9, &[&key, &frame], &[true, holds]);
    }
    let superframe = |frames: [&[u8]; 2]| {
        let sizes = frames.map(|frame| frame.len() as u8);
        [frames[0], frames[1], &[0xc1, sizes[0], sizes[1], 0xc1]].concat()
    };
    let (same, other) = (vp9_key(0, eight, (63, 35)), vp9_key(0, eight, (1, 1)));
    check("superframe", Codec::Vp9, &[&superframe([&same, &of_reference])], &[true]);
    check("hidden in a superframe", Codec::Vp9, &[&superframe([&key, &other])], &[false]);
    check("one too short", Codec::Vp9, &[&[&key[..], &[0xc0, 200, 0xc0]].concat()], &[false]);
    check("cut", Codec::Vp9, &[&key[..6]], &[false]);
}

#[test]
fn av1_frames_that_override_their_sequence_are_a_change() {
    // Profile 0, no still picture, not reduced.
    let head = || Writer::default().bits(5, 0);
    let plain = head().bits(1, 0).bits(1, 0).bits(5, 0).bits(12, 0).bits(5, 4);
    // A decoder model with times of ten bits, and one operating point of a high tier.
    let modelled = head().bits(1, 1).bits(32, 1).bits(32, 25).bits(1, 0).bits(1, 1);
    let modelled = modelled.bits(5, 7).bits(32, 1).bits(5, 3).bits(5, 9);
    let modelled = modelled.bits(1, 1).bits(5, 0).bits(12, 0).bits(5, 9).bits(1, 1);
    let modelled = modelled.bits(1, 1).bits(8, 1).bits(8, 2).bits(1, 0).bits(1, 1).bits(4, 3);
    let rest = |sequence: Writer, width, format: (u32, u32)| {
        let sequence = sequence.bits(4, 5).bits(4, 5).bits(6, width).bits(6, 35);
        // No frame ids, three tools, four more, no order hint; screen content tools are set per frame.
        let sequence = sequence.bits(1, 0).bits(3, 0).bits(4, 0).bits(1, 0).bits(1, 1).bits(1, 1);
        // No superres, no filters.
        sequence.bits(3, 0).bits(format.0, format.1).bits(8, 0).bytes()
    };
    // 8-bit 4:2:0 with limited range, without and with a colour description; ten bits; full range.
    let (plainly, in_words) = ((4, 0b0000), (28, 0x101_0101 << 1));
    let (ten_bits, full_range) = ((4, 0b1000), (4, 0b0001));
    let unit =
        |kind: u8, payload: Vec<u8>| [vec![kind << 3 | 2, payload.len() as u8], payload].concat();
    for (name, sequence, point_bits) in [("plain", plain, 0), ("modelled", modelled, 10)] {
        let formatted = |format| unit(1, rest(sequence.clone(), 60, format));
        let sequence = |width| unit(1, rest(sequence.clone(), width, plainly));
        // Not show_existing, a shown keyframe, CDF update, screen content tools with integer vectors.
        let key = |overrides| {
            let frame = Writer::default().bits(1, 0).bits(2, 0).bits(1, 1).bits(point_bits, 5);
            unit(6, frame.bits(1, 0).bits(1, 1).bits(1, 1).bits(1, overrides).bits(9, 0).bytes())
        };
        // A hidden inter frame without screen content tools.
        let inter = |overrides| {
            let frame = Writer::default().bits(1, 0).bits(2, 1).bits(1, 0).bits(1, 1).bits(1, 1);
            unit(3, frame.bits(1, 0).bits(1, 0).bits(1, overrides).bits(9, 0).bytes())
        };
        let first = [sequence(60), key(0)].concat();
        let rows = [
            ("the same", first.clone(), true),
            ("another size", [sequence(61), key(0)].concat(), false),
            ("colours in words", [formatted(in_words), key(0)].concat(), true),
            ("ten bits", [formatted(ten_bits), key(0)].concat(), false),
            ("full range", [formatted(full_range), key(0)].concat(), false),
            ("a key of its own size", [sequence(60), key(1)].concat(), false),
            ("inter", inter(0), true),
            ("inter of its own size", inter(1), false),
            ("existing", unit(3, vec![0x80]), true),
            ("a switch", unit(6, Writer::default().bits(4, 0b0111).bits(28, 0).bytes()), false),
            ("a delimiter and nothing", unit(2, Vec::new()), true),
            ("cut", sequence(60)[..4].to_vec(), false),
        ];
        for (row, packet, holds) in rows {
            check(&format!("{name}, {row}"), Codec::Av1, &[&first, &packet], &[true, holds]);
        }
        check("a frame before its sequence", Codec::Av1, &[&key(0)], &[false]);
    }
}

proptest! {
    #[test]
    fn any_bytes_are_digested(packets in vec(vec(any::<u8>(), 0..90), 1..6), at in 0..5_usize) {
        let codec = [Codec::H264, Codec::H265, Codec::Vp8, Codec::Vp9, Codec::Av1][at];
        let mut geometry = FormatChangeDetector::new(codec);
        for packet in packets {
            // Prefixed, because random bytes seldom begin like a VP9 frame or an AV1 unit.
            let begun = [&[[0, 0x82, 0x0a, 0x32][at % 4]], &packet[..]].concat();
            geometry.holds(&packet);
            geometry.holds(&begun);
            prop_assert!(vp9_frames(&packet).is_none_or(|frames| frames.len() <= 8));
        }
    }
}
