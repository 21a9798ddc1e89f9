//! Selection of a segment's packets that the sampled frames need.
//!
//! Leaves out only packets that cannot change a sample: all after the last sample in decode order, and
//! unreferenced pictures. Pure.

use crate::segment::PacketSegment;

/// Returns, for each packet of the segment, true if the decoder needs it for the frames at these times, which
/// are in order.
pub(crate) fn needed_packets<P>(segment: &PacketSegment<P>, targets: &[i64]) -> Vec<bool> {
    let is_target = |pts: Option<i64>| pts.is_some_and(|pts| targets.binary_search(&pts).is_ok());
    let units = &segment.units;
    let last = units.iter().rposition(|unit| unit.is_shown() && is_target(unit.pts));
    let top_layer = units.iter().map(|unit| unit.coded.temporal_layer).max();
    let needed = units.iter().enumerate().map(|(index, unit)| {
        // A picture may serve layers above its own (H.265 7.4.2.2), so only those of the top layer are
        // certainly unreferenced.
        let is_free = unit.coded.is_unreferenced && Some(unit.coded.temporal_layer) == top_layer;
        last.is_some_and(|last| index <= last) && (!is_free || is_target(unit.pts))
    });
    needed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{random_access::PacketInfo, segment::CodedPacket};

    /// Makes a segment from its notation: a digit per packet is its temporal layer; letters a, b, c are
    /// unreferenced pictures of layers 0, 1, 2.
    fn segment(kinds: &str, times: &[i64]) -> PacketSegment<()> {
        let unit = |(kind, &pts): (char, &i64)| {
            let layer = kind.to_digit(16).expect("a digit or a letter") as u8;
            CodedPacket {
                pts: Some(pts),
                coded: PacketInfo {
                    is_unreferenced: layer >= 10,
                    temporal_layer: layer % 10,
                    ..PacketInfo::default()
                },
                ..CodedPacket::default()
            }
        };
        PacketSegment {
            units: kinds.chars().zip(times).map(unit).collect(),
            continues_previous: false,
            is_continued: false,
        }
    }

    #[test]
    fn only_what_a_sample_needs_is_decoded() {
        type Case = (&'static str, &'static str, &'static [i64], &'static [i64], &'static str);
        let cases: [Case; 7] = [
            ("nothing sampled", "000", &[0, 1, 2], &[], "..."),
            ("all after the sample", "000", &[0, 1, 2], &[0], "#.."),
            ("last in decode order", "00a0", &[0, 3, 1, 4], &[1], "###."),
            ("unreferenced left out", "00aa0", &[0, 3, 1, 2, 4], &[4], "##..#"),
            ("unreferenced sample kept", "00aa0", &[0, 3, 1, 2, 4], &[2, 4], "##.##"),
            ("lower layer may be referred to", "0ab0", &[0, 1, 2, 3], &[3], "##.#"),
            ("no top layer to leave out", "0a01", &[0, 1, 2, 3], &[3], "####"),
        ];
        for (name, kinds, times, targets, expected) in cases {
            let needed = needed_packets(&segment(kinds, times), targets).into_iter();
            let drawn: String = needed.map(|needed| if needed { '#' } else { '.' }).collect();
            assert_eq!(drawn, expected, "{name}");
        }
    }
}
