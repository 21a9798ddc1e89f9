//! Tests of receivers from outside: packets and instants in, outputs out. Long because senders and paths
//! deviate in many ways.

mod late;
mod link;
mod lossy;
#[path = "../../../cli/src/whip/packetize.rs"]
mod packetize;

use std::time::{Duration, Instant};

use media::Codec;

use super::{ReceiverOutput, ReceiverStats, RtpPacket, RtpReceiver, UNIT_BYTES_MAX};
use link::{Link, ms};

/// Returns a VP8 frame of `packets` packets, identified by the byte `name`.
fn frame(is_key: bool, name: u8, packets: usize) -> Vec<Vec<u8>> {
    let head: &[u8] = if is_key {
        &[0x10, 0x10, 0, 0, 0x9d, 0x01, 0x2a, 64, 0, 64, 0]
    } else {
        &[0x10, 0x11, 0, 0]
    };
    let mut payloads = vec![[head, &[name]].concat()];
    payloads.extend((1..packets).map(|part| vec![0x00, name, part as u8]));
    payloads
}

/// Returns the `name` of each unit, as passed to [`frame`].
fn names(outputs: &[ReceiverOutput]) -> Vec<u8> {
    let name = |data: &[u8]| if data[0] & 1 == 0 { data[10] } else { data[3] };
    let units = outputs.iter().filter_map(|output| match output {
        ReceiverOutput::Unit(unit) => Some(name(&unit.access_unit.data)),
        _ => None,
    });
    units.collect()
}

#[test]
fn a_unit_is_given_out_when_it_is_whole() {
    let mut link = Link::new(Codec::Vp8);
    link.frame(&frame(true, 1, 3), 0);
    assert_eq!(link.poll(), [], "its marker is not proven, and no other start is asked for");
    link.frame(&frame(false, 2, 1), 3000);
    assert_eq!(names(&link.poll()), [1, 2], "the first unit proves the marker");
    link.pass(ms(33));
    link.frame(&frame(false, 3, 2), 6000);
    let outputs = link.poll();
    assert_eq!(names(&outputs), [3], "at once");
    let ReceiverOutput::Unit(unit) = &outputs[0] else { panic!("a unit") };
    assert_eq!((unit.access_unit.pts.ticks, unit.access_unit.keyframe), (6000, false));
    assert_eq!(unit.last_packet_at, link.now());
    assert_eq!(link.receiver.timeout(), None, "nothing is due");
}

#[test]
fn an_unproven_marker_is_believed_later_where_packets_come_unevenly() {
    // The longest delay of a packet, and the range of waits for the packet after the last.
    for (jitter, waits) in [(0, 100..=100), (40, 100..=100), (200, 150..=450), (3000, 500..=500)] {
        let mut link = Link::new(Codec::Vp8);
        // One packet per picture: a marker that ends a single packet is never proven.
        let sent: Vec<_> = (0..100_u32)
            .map(|index| (link.lose(&frame(index == 0, 1, 1)[0], 3000 * index, true), index))
            .collect();
        let delay = |index: u32| u64::from((index * 37) % 101) * jitter / 100;
        let mut arrivals: Vec<_> = sent
            .into_iter()
            .map(|(sent, index)| (u64::from(index) * 33 + delay(index), sent))
            .collect();
        arrivals.sort_by_key(|(at, _)| *at);
        let mut before = 0;
        for (at, sent) in arrivals {
            link.pass(ms(at - before));
            before = at;
            link.deliver(&sent);
            link.poll();
        }
        link.pass(ms(3400_u64.saturating_sub(before)));
        link.frame(&frame(true, 2, 1), 3000 * 100);
        let wait = (0..1000).find(|_| {
            let is_out = names(&link.poll()).contains(&2);
            link.pass(ms(1));
            is_out
        });
        assert!(wait.is_some_and(|wait| waits.contains(&wait)), "{jitter} ms: {wait:?}");
    }
}

#[test]
fn what_is_whole_when_a_source_ends_comes_out() {
    let mut link = Link::started(Codec::Vp8);
    link.frame(&frame(false, 5, 2), 6000);
    link.lose(&frame(false, 6, 1)[0], 9000, true);
    link.frame(&frame(true, 7, 1), 12_000);
    link.receiver.source_changed();
    link.frame(&frame(true, 8, 2), 50_000);
    assert_eq!(names(&link.poll()), [5, 7, 8], "nobody waits for 6");
    assert_eq!(link.receiver.counts().lost, 1);
}

#[test]
fn units_are_whole_whatever_the_marker_says() {
    /// Returns true if the part with this index out of this many has the marker.
    type IsMarked = fn(usize, usize) -> bool;
    let cases: [(&str, IsMarked); 3] = [
        ("never set", |_, _| false),
        ("always set", |_, _| true),
        ("set on the first packet", |part, _| part == 0),
    ];
    for (name, marker) in cases {
        let mut link = Link::new(Codec::Vp8);
        for index in 0..5_u8 {
            let payloads = frame(index == 0, index, 3);
            for (part, payload) in payloads.iter().enumerate() {
                link.send(payload, u32::from(index) * 3000, marker(part, payloads.len()));
            }
        }
        let outputs = link.poll();
        assert_eq!(names(&outputs), [0, 1, 2, 3], "{name}: the last one may go on");
        for output in outputs {
            let ReceiverOutput::Unit(unit) = output else { continue };
            assert_eq!(unit.access_unit.data.last(), Some(&2), "{name}: all three parts");
        }
    }
}

#[test]
fn a_marker_that_turns_wrong_costs_what_depends_on_it() {
    let mut link = Link::started(Codec::Vp8);
    let payloads = frame(false, 5, 3);
    link.send(&payloads[0], 9000, false);
    link.send(&payloads[1], 9000, true);
    assert_eq!(names(&link.poll()), [5], "nothing shows that it is cut");
    link.send(&payloads[2], 9000, true);
    link.frame(&frame(false, 6, 1), 12_000);
    assert!(link.poll().contains(&ReceiverOutput::NeedKeyframe));
    link.frame(&frame(true, 7, 2), 15_000);
    link.frame(&frame(false, 8, 2), 18_000);
    assert_eq!(names(&link.poll()), [7], "now only another time ends a unit");
}

#[test]
fn what_goes_with_a_picture_is_no_evidence_against_its_marker() {
    const SETS: [&[u8]; 2] = [&[0x67, 66, 0, 30, 0x80], &[0x68, 0xc0]];
    let mut link = Link::new(Codec::H264);
    SETS.iter().for_each(|set| link.send(set, 0, false));
    link.send(&[0x65, 0xb8, 9], 0, true);
    for index in 1..5 {
        let ticks = 3000 * index;
        // Two pictures with one timestamp and a marker each, followed by SEI and filler data.
        link.send(&[0x41, 0xb8, 9], ticks, true);
        link.send(&[0x41, 0xb8, 9], ticks, true);
        link.send(&[0x06, 5, 1, 0], ticks, false);
        link.send(&[0x0c, 0xff], ticks, true);
    }
    let units =
        link.poll().iter().filter(|output| matches!(output, ReceiverOutput::Unit(_))).count();
    assert_eq!(units, 9);
}

#[test]
fn a_marker_that_is_right_for_long_is_believed_again() {
    let mut link = Link::started(Codec::Vp8);
    let payloads = frame(false, 5, 3);
    link.send(&payloads[0], 9000, false);
    link.send(&payloads[1], 9000, true);
    link.send(&payloads[2], 9000, true);
    let ticks = |index: u32| 12_000 + 3000 * index;
    for index in 0..40 {
        link.frame(&frame(index == 0, index as u8, 2), ticks(index));
    }
    link.poll();
    link.frame(&frame(false, 99, 2), ticks(40));
    assert_eq!(names(&link.poll()), [99], "at once");
}

#[test]
fn packets_that_overtake_the_first_cost_nothing() {
    let mut link = Link::new(Codec::Vp8);
    let payloads = frame(true, 1, 3);
    let first = link.lose(&payloads[0], 0, false);
    let second = link.lose(&payloads[1], 0, false);
    link.send(&payloads[2], 0, true);
    assert!(!link.poll().iter().any(|output| matches!(output, ReceiverOutput::Unit(_))));
    link.pass(ms(40));
    link.deliver(&first);
    link.deliver(&second);
    link.frame(&frame(false, 2, 1), 3000);
    assert_eq!(names(&link.poll()), [1, 2]);
    assert_eq!(link.receiver.counts().lost, 0);
}

#[test]
fn a_keyframe_is_asked_for_until_it_comes() {
    let mut link = Link::new(Codec::Vp8);
    let mut asked = Vec::new();
    for step in 0..200_u32 {
        link.frame(&frame(false, 1, 1), 3000 * step);
        if link.poll().contains(&ReceiverOutput::NeedKeyframe) {
            asked.push(step * 50);
        }
        link.pass(ms(50));
    }
    assert_eq!(asked, [0, 250, 750, 1750, 3750, 7750]);
    link.frame(&frame(true, 2, 2), 600_000);
    link.frame(&frame(false, 3, 1), 603_000);
    assert_eq!(names(&link.poll()), [2, 3]);
    link.pass(ms(60_000));
    assert_eq!(link.poll(), [], "no longer");
}

#[test]
fn what_is_missing_is_asked_for_and_used() {
    let mut link = Link::started(Codec::Vp8);
    let payloads = frame(false, 5, 3);
    link.send(&payloads[0], 9000, false);
    let lost = link.lose(&payloads[1], 9000, false);
    link.send(&payloads[2], 9000, true);
    link.frame(&frame(false, 6, 1), 12_000);
    assert_eq!(link.poll(), [], "it may only be late");
    link.pass(ms(10));
    assert_eq!(link.poll(), [ReceiverOutput::Nack(vec![lost.sequence])]);
    link.pass(ms(40));
    link.deliver(&lost);
    assert_eq!(names(&link.poll()), [5, 6]);
    link.deliver(&lost);
    assert_eq!(link.poll(), [], "it was used");
    assert_eq!(link.receiver.counts(), ReceiverStats { lost: 0, repaired: 1 });
    assert_eq!(link.receiver.timeout(), None);
}

#[test]
fn after_a_loss_nothing_comes_before_the_next_start() {
    let mut link = Link::started(Codec::Vp8);
    link.lose(&frame(false, 5, 1)[0], 9000, true);
    link.frame(&frame(false, 6, 1), 12_000);
    let mut outputs = Vec::new();
    for _ in 0..60 {
        link.pass(ms(10));
        outputs.extend(link.poll());
    }
    let nacks = outputs.iter().filter(|output| matches!(output, ReceiverOutput::Nack(_))).count();
    assert_eq!((names(&outputs), nacks), (vec![], 5));
    assert!(outputs.contains(&ReceiverOutput::NeedKeyframe));
    link.frame(&frame(false, 7, 1), 15_000);
    link.frame(&frame(true, 8, 2), 18_000);
    link.frame(&frame(false, 9, 2), 21_000);
    assert_eq!(names(&link.poll()), [8, 9]);
    assert_eq!(link.receiver.counts().lost, 1);
}

#[test]
fn a_start_behind_a_loss_ends_the_wait() {
    let mut link = Link::new(Codec::Vp8);
    link.frame(&frame(false, 1, 1), 0);
    link.lose(&frame(false, 2, 1)[0], 3000, true);
    link.frame(&frame(true, 3, 2), 6000);
    link.frame(&frame(false, 4, 2), 9000);
    assert_eq!(names(&link.poll()), [3, 4], "nothing before it could be used");
    let mut link = Link::started(Codec::Vp8);
    link.lose(&frame(false, 5, 1)[0], 9000, true);
    link.frame(&frame(false, 6, 1), 12_000);
    link.frame(&frame(true, 7, 2), 15_000);
    assert_eq!(names(&link.poll()), [0; 0], "5 may still come");
    link.pass(ms(500));
    let outputs = link.poll();
    assert_eq!(names(&outputs), [7]);
    assert!(!outputs.contains(&ReceiverOutput::NeedKeyframe), "it has just come");
}

#[test]
fn an_outage_is_not_waited_for() {
    let mut link = Link::started(Codec::Vp8);
    link.skip(600);
    link.frame(&frame(true, 5, 2), 90_000);
    assert_eq!(names(&link.poll()), [5]);
    assert_eq!(link.receiver.counts().lost, 600);
}

#[test]
fn a_source_that_begins_anew_goes_on_in_time() {
    let ticks = |outputs: &[ReceiverOutput]| match outputs {
        [ReceiverOutput::Unit(unit), ..] => unit.access_unit.pts.ticks,
        other => panic!("{other:?}"),
    };
    let mut link = Link::started(Codec::Vp8);
    link.pass(ms(1000));
    link.skip(20_000);
    link.frame(&frame(false, 5, 2), 1 << 31);
    link.poll();
    link.frame(&frame(true, 6, 2), (1 << 31) + 3000);
    assert_eq!(ticks(&link.poll()), 3000 + 90_000 + 3000);
    let mut link = Link::started(Codec::Vp8);
    link.pass(ms(1000));
    link.receiver.source_changed();
    link.skip(1000);
    link.frame(&frame(true, 5, 2), 777);
    assert_eq!(ticks(&link.poll()), 3000 + 90_000);
}

#[test]
fn a_sender_report_gives_units_their_wall_time() {
    let captured = |outputs: &[ReceiverOutput]| match outputs {
        [ReceiverOutput::Unit(unit)] => unit.captured_at.map(|wall| wall.epoch_ms),
        other => panic!("{other:?}"),
    };
    let mut link = Link::started(Codec::Vp8);
    link.frame(&frame(false, 5, 1), 6000);
    assert_eq!(captured(&link.poll()), None);
    let ntp = (2_208_988_800 + 1_700_000_000) << 32;
    link.receiver.sender_report(ntp, link.timestamp(6000));
    link.frame(&frame(false, 6, 1), 15_000);
    assert_eq!(captured(&link.poll()), Some(1_700_000_000_100));
}

#[test]
fn pictures_before_an_open_start_are_left_out() {
    const SETS: [&[u8]; 3] = [
        &[0x40, 1, 0x0c],
        &[0x42, 1, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80],
        &[0x44, 1, 0xc0],
    ];
    let cra = |link: &mut Link, at| {
        SETS.iter().for_each(|set| link.send(set, at, false));
        link.send(&[0x2a, 1, 0xa0, 9], at, true);
    };
    let kinds = |outputs: Vec<ReceiverOutput>| -> Vec<u8> {
        let kind = |output: &ReceiverOutput| match output {
            ReceiverOutput::Unit(unit) if unit.access_unit.keyframe => Some(21),
            ReceiverOutput::Unit(unit) => Some(unit.access_unit.data[4] >> 1),
            _ => None,
        };
        outputs.iter().filter_map(kind).collect()
    };
    let mut link = Link::new(Codec::H265);
    cra(&mut link, 9000);
    link.send(&[0x10, 1, 0xe0, 9], 3000, true);
    link.send(&[0x02, 1, 0xe0, 9], 12_000, true);
    assert_eq!(kinds(link.poll()), [21, 1], "the leading picture refers to what was not seen");
    cra(&mut link, 21_000);
    link.send(&[0x10, 1, 0xe0, 9], 15_000, true);
    assert_eq!(kinds(link.poll()), [21, 8], "now it was seen");
}

#[test]
fn units_have_a_largest_size_and_a_largest_number() {
    let mut link = Link::started(Codec::Vp8);
    let large = [&[0x00][..], &[7; 60_000]].concat();
    link.send(&frame(false, 5, 1)[0], 9000, false);
    for _ in 0..=UNIT_BYTES_MAX / 60_000 {
        link.send(&large, 9000, false);
    }
    link.send(&large, 9000, true);
    assert_eq!(names(&link.poll()), [0; 0]);

    let mut link = Link::started(Codec::Vp8);
    for index in 0..3000 {
        link.frame(&frame(false, 6, 1), 9000 + 10 * index);
    }
    let outputs = link.poll();
    assert_eq!(names(&outputs).len(), 2048, "nobody polled");
    assert!(outputs.contains(&ReceiverOutput::NeedKeyframe), "the others refer to what is gone");
}

#[test]
fn padding_is_nothing_but_a_number() {
    let mut link = Link::started(Codec::Vp8);
    link.send(&[], 3000, false);
    link.send(&[], 3000, true);
    link.frame(&frame(false, 5, 2), 9000);
    assert_eq!(names(&link.poll()), [5]);
}
