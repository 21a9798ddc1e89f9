//! Detection of missing H.264 reference pictures before a picture, by `frame_num` (H.264 7.4.3).
//!
//! libav substitutes missing references silently. Streams that allow gaps are not checked: theirs may be
//! intended. `memory_management_control_operation` 5, which resets the numbers and which no known live
//! encoder uses, is reported as a loss. Pure; accepts any bytes.

use std::collections::BTreeMap;

use media::Bits;

use crate::nal::annex_b_units;

/// Follows the numbers of one Annex B stream in decode order.
#[derive(Default)]
pub(crate) struct FrameNumTracker {
    sequences: BTreeMap<u32, Sequence>,
    /// Map from picture parameter set to sequence parameter set.
    pictures: BTreeMap<u32, u32>,
    /// `frame_num` of the latest reference picture.
    previous: Option<u32>,
}

/// Fields of a sequence parameter set that are needed here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Sequence {
    frame_num_bits: u32,
    allows_gaps: bool,
    separate_planes: bool,
}

impl FrameNumTracker {
    /// Takes the next access unit; returns true if pictures that it may refer to are missing before it.
    pub(crate) fn misses(&mut self, unit: &[u8]) -> bool {
        for nal in annex_b_units(unit) {
            let Some((header, payload)) = nal.split_first() else { continue };
            match header & 0x1f {
                5 => {
                    self.previous = Some(0);
                    return false;
                }
                1 | 2 => return self.follows(header & 0x60 != 0, payload).unwrap_or(false),
                7 => {
                    let sequence = sequence(payload);
                    self.sequences.extend(sequence);
                }
                8 => {
                    let mut bits = Bits::of_nal(payload);
                    if let (Some(id), Some(of)) = (unsigned(&mut bits), unsigned(&mut bits))
                        && id < 256
                    {
                        self.pictures.insert(id, of);
                    }
                }
                _ => {}
            }
        }
        false
    }

    /// Forgets the numbers, because a clean start comes next.
    pub(crate) fn forget(&mut self) {
        self.previous = None;
    }

    /// Checks the picture of this slice (7.3.3); `None` if its parameter sets are unknown.
    fn follows(&mut self, is_reference: bool, slice: &[u8]) -> Option<bool> {
        let mut bits = Bits::of_nal(slice);
        // first_mb_in_slice, slice_type.
        unsigned(&mut bits)?;
        unsigned(&mut bits)?;
        let sequence = self.sequences.get(self.pictures.get(&unsigned(&mut bits)?)?)?;
        if sequence.separate_planes {
            bits.take(2)?;
        }
        let number = bits.take(sequence.frame_num_bits)?;
        let previous = self.previous;
        if is_reference {
            self.previous = Some(number);
        }
        let next = |previous: u32| (previous + 1) % (1 << sequence.frame_num_bits);
        let is_gap = previous.is_some_and(|it| number != it && number != next(it));
        Some(is_gap && !sequence.allows_gaps)
    }
}

/// Reads the id and the contents of a sequence parameter set (7.3.2.1.1).
fn sequence(payload: &[u8]) -> Option<(u32, Sequence)> {
    let mut bits = Bits::of_nal(payload);
    let profile = bits.take(8)?;
    // Constraint flags and level.
    bits.take(16)?;
    let id = unsigned(&mut bits).filter(|&id| id < 32)?;
    let mut separate_planes = false;
    if matches!(profile, 100 | 110 | 122 | 244 | 44 | 83 | 86 | 118 | 128 | 138 | 139 | 134 | 135) {
        let chroma_format = unsigned(&mut bits)?;
        if chroma_format == 3 {
            separate_planes = bits.take(1)? == 1;
        }
        // Bit depths of luma and chroma, qpprime_y_zero_transform_bypass_flag.
        unsigned(&mut bits)?;
        unsigned(&mut bits)?;
        bits.take(1)?;
        if bits.take(1)? == 1 {
            skip_scaling_lists(&mut bits, if chroma_format == 3 { 12 } else { 8 })?;
        }
    }
    let frame_num_bits = unsigned(&mut bits).filter(|&minus_4| minus_4 <= 12)? + 4;
    match unsigned(&mut bits)? {
        0 => drop(unsigned(&mut bits)?),
        1 => {
            // delta_pic_order_always_zero_flag, offset_for_non_ref_pic, offset_for_top_to_bottom_field and
            // the cycle; se(v) is as long as ue(v).
            bits.take(1)?;
            unsigned(&mut bits)?;
            unsigned(&mut bits)?;
            for _ in 0..unsigned(&mut bits).filter(|&count| count < 256)? {
                unsigned(&mut bits)?;
            }
        }
        _ => {}
    }
    // max_num_ref_frames
    unsigned(&mut bits)?;
    let allows_gaps = bits.take(1)? == 1;
    Some((id, Sequence { frame_num_bits, allows_gaps, separate_planes }))
}

/// Skips scaling lists (7.3.2.1.1.1): six of 16 values, then lists of 64.
fn skip_scaling_lists(bits: &mut Bits<'_>, lists: usize) -> Option<()> {
    for list in 0..lists {
        if bits.take(1)? == 0 {
            continue;
        }
        let mut next_scale = 8;
        for _ in 0..if list < 6 { 16 } else { 64 } {
            next_scale = (next_scale + signed(bits)?).rem_euclid(256);
            if next_scale == 0 {
                break;
            }
        }
    }
    Some(())
}

/// Reads se(v) (9.1.1).
fn signed(bits: &mut Bits<'_>) -> Option<i32> {
    let value = unsigned(bits)?;
    let half = (value / 2 + value % 2) as i32;
    Some(if value % 2 == 1 { half } else { -half })
}

fn unsigned(bits: &mut Bits<'_>) -> Option<u32> {
    bits.ue(31)
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;
    use crate::bit_writer::Writer;

    /// Returns parameter sets with `frame_num` of five bits.
    fn sets(high: bool, allows_gaps: bool) -> Vec<u8> {
        let start = Writer::default().bits(8, if high { 100 } else { 66 }).bits(16, 0).unsigned(3);
        let start = if high {
            // 4:2:0, eight bits, scaling lists: the first ends at once, the others are absent.
            let start = start.unsigned(1).unsigned(0).unsigned(0).bits(2, 1);
            start.bits(1, 1).unsigned(16).bits(7, 0)
        } else {
            start
        };
        let sequence = start.unsigned(1).unsigned(2).unsigned(4).bits(1, u32::from(allows_gaps));
        let picture = Writer::default().unsigned(200).unsigned(3);
        [sequence.nal(0x67), picture.nal(0x68)].concat()
    }

    fn slice(header: u8, number: u32) -> Vec<u8> {
        Writer::default().unsigned(0).unsigned(5).unsigned(200).bits(5, number).nal(header)
    }

    #[test]
    fn a_number_that_is_neither_the_last_nor_the_next_misses_pictures() {
        const REFERENCE: u8 = 0x41;
        const UNREFERENCED: u8 = 0x01;
        type Case = (&'static str, bool, &'static [(u8, u32)], &'static [bool]);
        let cases: [Case; 6] = [
            ("one by one", false, &[(REFERENCE, 1), (REFERENCE, 2)], &[false; 2]),
            (
                "unreferenced ones share the next number",
                false,
                &[(UNREFERENCED, 1), (UNREFERENCED, 1), (REFERENCE, 1), (UNREFERENCED, 2)],
                &[false; 4],
            ),
            ("a field has its frame's", false, &[(REFERENCE, 1), (REFERENCE, 1)], &[false; 2]),
            ("missing", false, &[(REFERENCE, 1), (REFERENCE, 3)], &[false, true]),
            ("missing before one", false, &[(UNREFERENCED, 2)], &[true]),
            ("gaps are allowed", true, &[(REFERENCE, 5), (REFERENCE, 30)], &[false; 2]),
        ];
        for (name, allows_gaps, pictures, expected) in cases {
            for high in [false, true] {
                let mut numbers = FrameNumTracker::default();
                let key = [sets(high, allows_gaps), vec![0, 0, 1, 0x65, 1]].concat();
                assert!(!numbers.misses(&key), "{name}");
                let found: Vec<bool> = pictures
                    .iter()
                    .map(|&(it, number)| numbers.misses(&slice(it, number)))
                    .collect();
                assert_eq!(found, expected, "{name}, high profile {high}");
            }
        }
        let mut wrapping = FrameNumTracker::default();
        wrapping.misses(&sets(false, false));
        let turns = (0..100).map(|at| wrapping.misses(&slice(REFERENCE, at % 32)));
        assert_eq!(turns.filter(|misses| *misses).count(), 0, "numbers wrap");
        wrapping.forget();
        assert!(!wrapping.misses(&slice(REFERENCE, 20)), "after a loss that is known");
    }

    proptest! {
        #[test]
        fn any_bytes_are_digested(units in vec(vec(any::<u8>(), 0..60), 1..5), kind in 0..9_u8) {
            let mut numbers = FrameNumTracker::default();
            for unit in units {
                let framed = [vec![0, 0, 1, 0x60 | kind], unit].concat();
                numbers.misses(&framed);
            }
            numbers.misses(&slice(0x41, 31));
        }
    }
}
