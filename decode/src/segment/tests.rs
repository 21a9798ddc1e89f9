//! Cuts of streams in a text notation.

use super::*;

impl Payload for () {
    fn repeated(&self) -> Option<()> {
        Some(())
    }
}

/// Returns a packet by its letter: S start, p other, h hidden non-start, l leads the start, r leads it and
/// needs earlier pictures, R needs them and does not lead, x reconfigures; `pts` is its time.
fn unit(kind: char, pts: Option<i64>) -> CodedPacket<()> {
    CodedPacket {
        pts,
        reconfigures: kind == 'x',
        coded: PacketInfo {
            is_start: kind == 'S',
            needs_earlier: matches!(kind, 'r' | 'R'),
            is_leading: matches!(kind, 'l' | 'r'),
            is_hidden: kind == 'h',
            ..PacketInfo::default()
        },
        bytes: 1,
        ..CodedPacket::default()
    }
}

/// Returns the segments into which `segmenter` cuts `units`.
fn segments(
    mut segmenter: Segmenter<()>,
    units: impl Iterator<Item = CodedPacket<()>>,
) -> Vec<PacketSegment<()>> {
    units.for_each(|unit| segmenter.push(unit));
    segmenter.finish();
    segmenter.ready.into()
}

/// As [`segments`], but returns the numbers of packets.
fn lengths(segmenter: Segmenter<()>, units: impl Iterator<Item = CodedPacket<()>>) -> Vec<usize> {
    segments(segmenter, units).iter().map(|segment| segment.units.len()).collect()
}

/// Returns the lengths of the segments, with `+` after one that the next continues.
fn cuts(units: impl Iterator<Item = CodedPacket<()>>) -> Vec<String> {
    let found = segments(Segmenter::new(), units);
    let mut continues = false;
    for segment in &found {
        assert_eq!(segment.continues_previous, continues);
        continues = segment.is_continued;
    }
    assert!(!continues, "the last segment ends its decoder");
    let name = |segment: &PacketSegment<()>| {
        format!("{}{}", segment.units.len(), if segment.is_continued { "+" } else { "" })
    };
    found.iter().map(name).collect()
}

#[test]
fn cuts_fall_only_where_they_change_nothing() {
    let cases: [(&str, &str, &[i64], &[&str]); 9] = [
        ("closed GOPs", "SppSpp", &[0, 2, 1, 3, 5, 4], &["3", "3"]),
        ("leading picture", "SppSpp", &[0, 1, 2, 4, 3, 5], &["3", "3"]),
        ("leading picture of the past", "SppSpp", &[0, 1, 4, 5, 3, 6], &["6"]),
        ("needs earlier pictures", "SppSRpSp", &[0, 1, 2, 5, 4, 6, 7, 8], &["6", "2"]),
        ("earlier part shown later", "SppSpp", &[0, 1, 9, 3, 4, 5], &["6"]),
        ("no start at first", "ppSp", &[0, 1, 2, 3], &["2", "2"]),
        ("hidden times do not count", "SphSp", &[0, 1, 9, 2, 3], &["3", "2"]),
        ("repeated time", "SppSppSpp", &[0, 1, 1, 2, 3, 4, 5, 6, 7], &["9"]),
        ("new configuration", "SpSpSxSp", &[0, 1, 2, 3, 4, 5, 6, 7], &["2", "6"]),
    ];
    for (name, kinds, times, expected) in cases {
        let units = kinds.chars().zip(times).map(|(kind, &pts)| unit(kind, Some(pts)));
        assert_eq!(cuts(units), expected, "{name}");
    }
}

/// Returns the times of each segment's packets in decode order, in brackets if repeated in the next segment.
/// Any number of packets before a start suffices to repeat it.
fn drawn(kinds: &str, times: &[i64]) -> Vec<String> {
    let units = kinds.chars().zip(times).map(|(kind, &pts)| unit(kind, Some(pts)));
    let name = |unit: &CodedPacket<()>| {
        let time = unit.pts.map_or_else(String::new, |pts| pts.to_string());
        if unit.is_repeat { format!("[{time}]") } else { time }
    };
    let names =
        |segment: &PacketSegment<()>| segment.units.iter().map(name).collect::<Vec<_>>().join(" ");
    let segmenter = Segmenter { repeat_packets_min: 0, ..Segmenter::new() };
    segments(segmenter, units).iter().map(names).collect()
}

#[test]
fn what_leads_a_start_goes_to_the_segment_before_with_a_repetition_of_the_start() {
    type Case = (&'static str, &'static str, &'static [i64], &'static [&'static str]);
    let cases: [Case; 10] = [
        ("open GOP", "SpSrrp", &[0, 1, 4, 2, 3, 5], &["0 1 [4] 2 3", "4 5"]),
        ("of two kinds", "SpSrlp", &[0, 1, 4, 2, 3, 5], &["0 1 [4] 2 3", "4 5"]),
        ("closed GOP", "SpSllp", &[0, 1, 4, 2, 3, 5], &["0 1", "4 2 3 5"]),
        (
            "one after the other",
            "SpSrpSrp",
            &[0, 1, 3, 2, 4, 6, 5, 7],
            &["0 1 [3] 2", "3 4 [6] 5", "6 7"],
        ),
        ("at the beginning", "SrpSrp", &[2, 1, 3, 5, 4, 6], &["2 1 3 [5] 4", "5 6"]),
        ("at the end", "SpSr", &[0, 1, 3, 2], &["0 1 [3] 2", "3"]),
        ("behind the GOP", "SpSprSp", &[0, 1, 3, 4, 2, 5, 6], &["0 1 3 4 2", "5 6"]),
        ("shown behind the start", "SpSrp", &[0, 1, 2, 3, 4], &["0 1 2 3 4"]),
        ("shown between earlier ones", "SpSrp", &[0, 2, 3, 1, 4], &["0 2 [3] 1", "3 4"]),
        (
            "a new configuration behind it",
            "SpSrpxSp",
            &[0, 1, 3, 2, 4, 5, 6, 7],
            &["0 1 3 2 4 5 6 7"],
        ),
    ];
    for (name, kinds, times, expected) in cases {
        assert_eq!(drawn(kinds, times), expected, "{name}");
    }
}

#[test]
fn a_start_is_repeated_only_where_it_costs_little() {
    let rows: [(i64, &[usize]); 3] = [(40, &[122, 79]), (70, &[142, 59]), (95, &[97, 96, 9])];
    for (gop, expected) in rows {
        let units = (0..200).map(|at| match at % gop {
            0 => unit('S', Some(at + 1)),
            1 => unit('r', Some(at - 1)),
            _ => unit('p', Some(at)),
        });
        assert_eq!(lengths(Segmenter::new(), units), expected, "GOPs of {gop}");
    }
}

#[test]
fn a_missing_time_ends_cutting_and_no_times_at_all_do_not() {
    let with = |missing: &[usize]| {
        let units = "SppSppSpp".chars().enumerate();
        let missing = missing.to_vec();
        cuts(units.map(move |(at, kind)| unit(kind, (!missing.contains(&at)).then_some(at as i64))))
    };
    assert_eq!(with(&[]), ["3", "3", "3"]);
    assert_eq!(with(&[4]), ["9"]);
    assert_eq!(with(&[0, 1, 2, 3, 4, 5, 6, 7, 8]), ["3", "3", "3"]);
}

#[test]
fn what_is_too_long_to_hold_goes_out_in_pieces() {
    let long = SEGMENT_PACKETS_MAX as i64;
    let kind = |at: i64| if at == 0 || at >= long + 100 && at % 10 == 0 { 'S' } else { 'p' };
    let found = cuts((0..long + 120).map(|at| unit(kind(at), Some(at))));
    assert_eq!(found, ["1024+", "64+", "42", "10", "4"], "bounded, then cut again");
}

#[test]
fn whoever_is_in_a_hurry_gets_a_long_first_gop_in_pieces() {
    let rows: [(i64, usize, &[usize]); 5] = [
        (30, 1024, &[30, 30, 30]),
        (30, 64, &[30, 30, 30]),
        (100, 64, &[64, 36, 100, 100]),
        (100, 1, &[64, 36, 100, 100]),
        (200, 1, &[64, 64, 64, 8, 200, 200]),
    ];
    for (gop, hold, expected) in rows {
        let mut segmenter = Segmenter::new();
        segmenter.hold_at_first(hold);
        let units = (0..gop * 3).map(|at| unit(if at % gop == 0 { 'S' } else { 'p' }, Some(at)));
        assert_eq!(lengths(segmenter, units), expected, "GOPs of {gop}, {hold} held");
    }
}

#[test]
fn a_camera_is_not_waited_for() {
    let mut segmenter = Segmenter::new();
    segmenter.flow();
    let mut taken = Vec::new();
    for at in 0..20 {
        segmenter.push(unit(if at % 5 == 0 { 'S' } else { 'p' }, Some(at)));
        taken.extend(segmenter.pop().map(|piece| (at, piece.units.len())));
    }
    assert_eq!(taken, (0..20).map(|at| (at, 1)).collect::<Vec<_>>());
}

#[test]
fn big_packets_are_bounded_too() {
    let mut segmenter = Segmenter::new();
    segmenter.push(CodedPacket { bytes: SEGMENT_BYTES_MAX, ..unit('S', Some(0)) });
    let piece = segmenter.pop().expect("handed out at once");
    assert!(piece.is_continued);
    assert_eq!(segmenter.pending_packets(), 0);
}
