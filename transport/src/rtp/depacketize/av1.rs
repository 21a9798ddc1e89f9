//! AV1 (RTP payload format of the Alliance for Open Media, version 1.0) to temporal units.
//!
//! Every OBU is given a size and the unit its delimiter, as decoders want them. All layers are
//! kept. Tile lists, delimiters and padding of the sender are left out.

use super::{AHEAD_BYTES_MAX, Depacketizer, Finished, Gathered, Picture, Refusal, Role};
use crate::rtp::UNIT_BYTES_MAX;

/// OBU types of the AV1 bitstream 6.2.2.
mod obu {
    pub const SEQUENCE_HEADER: u8 = 1;
    pub const DELIMITER: u8 = 2;
    pub const FRAME_HEADER: u8 = 3;
    pub const FRAME: u8 = 6;
    pub const TILE_LIST: u8 = 8;
    pub const PADDING: u8 = 15;
}

const DELIMITER: [u8; 2] = [obu::DELIMITER << 3 | 2, 0];

/// Gathers one temporal unit.
#[derive(Debug, Default)]
pub(super) struct Av1 {
    unit: Gathered,
    /// An OBU of which more is to come.
    fragment: Vec<u8>,
    is_fragmented: bool,
    /// reduced_still_picture_header of the sequence header in the unit.
    reduced_still: Option<bool>,
    /// The first frame can be decoded without others.
    is_key: Option<bool>,
}

impl Av1 {
    fn element(&mut self, bytes: &[u8], continues: bool, is_cut: bool) -> Result<(), Refusal> {
        if continues != self.is_fragmented {
            return Err(Refusal::Malformed);
        }
        if !continues && !is_cut {
            return self.obu(bytes);
        }
        if self.fragment.len() + bytes.len() > UNIT_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        self.fragment.extend_from_slice(bytes);
        self.is_fragmented = is_cut;
        if is_cut {
            return Ok(());
        }
        let mut whole = std::mem::take(&mut self.fragment);
        let taken = self.obu(&whole);
        whole.clear();
        whole.shrink_to(AHEAD_BYTES_MAX);
        self.fragment = whole;
        taken
    }

    /// A whole OBU, with or without its size.
    fn obu(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let Some((&header, mut payload)) = bytes.split_first() else { return Ok(()) };
        if header & 0x80 != 0 {
            return Err(Refusal::Malformed);
        }
        let (kind, has_extension, has_size) =
            (header >> 3 & 0x0f, header & 0x04 != 0, header & 0x02 != 0);
        if matches!(kind, obu::DELIMITER | obu::TILE_LIST | obu::PADDING) {
            return Ok(());
        }
        if self.unit.len() == 0 {
            self.unit.extend(&DELIMITER)?;
        }
        self.unit.extend(&[header | 0x02])?;
        if has_extension {
            let (extension, rest) = payload.split_first().ok_or(Refusal::Malformed)?;
            payload = rest;
            self.unit.extend(&[*extension])?;
        }
        if has_size {
            let (size, rest) = leb128(payload).ok_or(Refusal::Malformed)?;
            payload = rest.get(..size).ok_or(Refusal::Malformed)?;
        }
        self.size(payload.len())?;
        self.unit.extend(payload)?;
        self.note(kind, payload.first().copied().unwrap_or(0));
        Ok(())
    }

    /// leb128 of the AV1 bitstream 4.10.5.
    fn size(&mut self, size: usize) -> Result<(), Refusal> {
        let mut left = size;
        loop {
            let more = left > 0x7f;
            self.unit.extend(&[(left & 0x7f) as u8 | u8::from(more) << 7])?;
            left >>= 7;
            if !more {
                return Ok(());
            }
        }
    }

    fn note(&mut self, kind: u8, first: u8) {
        match kind {
            // seq_profile(3) still_picture reduced_still_picture_header
            obu::SEQUENCE_HEADER => self.reduced_still = Some(first & 0x08 != 0),
            // show_existing_frame frame_type(2) show_frame
            obu::FRAME_HEADER | obu::FRAME if self.is_key.is_none() => {
                let is_shown_key = first & 0xf0 == 0x10;
                self.is_key =
                    Some(self.reduced_still.is_some_and(|reduced| reduced || is_shown_key));
            }
            _ => {}
        }
    }
}

impl Depacketizer for Av1 {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        self.begins_start(payload)
    }

    fn begins_start(&self, payload: &[u8]) -> bool {
        let [aggregation, rest @ ..] = payload else { return false };
        let (continues, is_new_sequence) = (aggregation & 0x80 != 0, aggregation & 0x08 != 0);
        let is_first = |element: &[u8]| {
            element.first().is_some_and(|header| header >> 3 & 0x0f == obu::SEQUENCE_HEADER)
        };
        let first = Elements::new(*aggregation, rest).next();
        !continues
            && (is_new_sequence || matches!(first, Some(Ok(element)) if is_first(element.bytes)))
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        let (&aggregation, rest) = payload.split_first().ok_or(Refusal::Malformed)?;
        let (continues, is_cut) = (aggregation & 0x80 != 0, aggregation & 0x40 != 0);
        // A new sequence begins with a whole OBU (4.4).
        if continues && aggregation & 0x08 != 0 {
            return Err(Refusal::Malformed);
        }
        for (index, element) in Elements::new(aggregation, rest).enumerate() {
            let element = element?;
            self.element(element.bytes, continues && index == 0, is_cut && element.is_last)?;
        }
        Ok(())
    }

    fn has_picture(&self) -> bool {
        self.is_key.is_some()
    }

    fn finish(&mut self) -> Finished {
        if self.is_fragmented {
            return Err(Refusal::Malformed);
        }
        let Some(is_key) = self.is_key else { return Ok(None) };
        let role = if is_key { Role::Start { breaks_link: false } } else { Role::Other };
        Ok(Some(Picture { data: self.unit.take(), role }))
    }

    fn reset(&mut self) {
        self.unit.clear();
        self.fragment.clear();
        self.is_fragmented = false;
        self.reduced_still = None;
        self.is_key = None;
    }
}

/// A piece of a packet: an OBU or a part of one.
struct Element<'a> {
    bytes: &'a [u8],
    is_last: bool,
}

/// The elements of a packet (4.3): as many as its header says, the last without a size, or, where
/// it says 0, each with one.
struct Elements<'a> {
    rest: &'a [u8],
    counted: Option<u8>,
}

impl<'a> Elements<'a> {
    fn new(aggregation: u8, rest: &'a [u8]) -> Elements<'a> {
        let count = aggregation >> 4 & 3;
        Elements { rest, counted: (count > 0).then_some(count) }
    }

    fn sized(&mut self) -> Option<&'a [u8]> {
        let (size, rest) = leb128(self.rest)?;
        let (bytes, rest) = rest.split_at_checked(size)?;
        self.rest = rest;
        Some(bytes)
    }
}

impl<'a> Iterator for Elements<'a> {
    type Item = Result<Element<'a>, Refusal>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = match &mut self.counted {
            Some(0) => return None,
            Some(left) => {
                *left -= 1;
                match *left {
                    0 => Some(std::mem::take(&mut self.rest)),
                    _ => self.sized(),
                }
            }
            None if self.rest.is_empty() => return None,
            None => self.sized(),
        };
        let Some(bytes) = bytes else {
            (self.rest, self.counted) = (&[], None);
            return Some(Err(Refusal::Malformed));
        };
        let is_last = match self.counted {
            Some(left) => left == 0,
            None => self.rest.is_empty(),
        };
        Some(Ok(Element { bytes, is_last }))
    }
}

/// The number that stands first, of at most 32 bits, and what follows it.
fn leb128(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let mut value = 0_u64;
    for (index, &byte) in bytes.iter().enumerate().take(8) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            let value = u32::try_from(value).ok()?;
            return Some((value as usize, &bytes[index + 1..]));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    // Without sizes, as they are sent: a sequence header, a shown key frame, another frame.
    const SEQUENCE: [u8; 3] = [0x08, 0x00, 0x05];
    const KEY: [u8; 3] = [0x30, 0x10, 0x07];
    const INTER: [u8; 3] = [0x30, 0x30, 0x07];

    fn sized(obus: &[&[u8]]) -> Vec<u8> {
        let mut unit = DELIMITER.to_vec();
        for obu in obus {
            unit.extend([obu[0] | 2, (obu.len() - 1) as u8]);
            unit.extend_from_slice(&obu[1..]);
        }
        unit
    }

    fn unit(payloads: &[&[u8]]) -> Finished {
        let mut av1 = Av1::default();
        payloads.iter().try_for_each(|payload| av1.push(payload))?;
        av1.finish()
    }

    const START: Role = Role::Start { breaks_link: false };

    #[test]
    fn every_aggregation_becomes_a_temporal_unit_or_is_refused() {
        let key = Picture { data: sized(&[&SEQUENCE, &KEY]), role: START };
        let inter = Picture { data: sized(&[&INTER]), role: Role::Other };
        let cases: [(&str, &[&[u8]], Finished); 20] = [
            ("two counted", &[&[0x28, 3, 8, 0, 5, 0x30, 0x10, 7]], Ok(Some(key))),
            ("two sized", &[&[0x08, 3, 8, 0, 5, 3, 0x30, 0x10, 7]], {
                Ok(Some(Picture { data: sized(&[&SEQUENCE, &KEY]), role: START }))
            }),
            (
                "cut in the frame",
                &[&[0x68, 3, 8, 0, 5, 0x30], &[0xd0, 0x10], &[0x90, 7]],
                Ok(Some(Picture { data: sized(&[&SEQUENCE, &KEY]), role: START })),
            ),
            ("one", &[&[0x10, 0x30, 0x30, 7]], Ok(Some(inter))),
            (
                "with its size",
                &[&[0x10, 0x32, 2, 0x30, 7]],
                Ok(Some(Picture { data: sized(&[&INTER]), role: Role::Other })),
            ),
            (
                "with a delimiter",
                &[&[0x20, 2, 0x12, 0, 0x30, 0x30, 7]],
                Ok(Some(Picture { data: sized(&[&INTER]), role: Role::Other })),
            ),
            (
                "with an extension",
                &[&[0x10, 0x34, 0x20, 0x30, 7]],
                Ok(Some(Picture {
                    data: vec![0x12, 0, 0x36, 0x20, 2, 0x30, 7],
                    role: Role::Other,
                })),
            ),
            (
                "a key frame without sequence header",
                &[&[0x10, 0x30, 0x10, 7]],
                Ok(Some(Picture { data: sized(&[&KEY]), role: Role::Other })),
            ),
            (
                "a hidden key frame",
                &[&[0x28, 3, 8, 0, 5, 0x30, 0x00, 7]],
                Ok(Some(Picture { data: sized(&[&SEQUENCE, &[0x30, 0, 7]]), role: Role::Other })),
            ),
            ("a sequence header alone", &[&[0x18, 8, 0, 5]], Ok(None)),
            ("an empty element", &[&[0x00, 0, 3, 0x30, 0x30, 7]], {
                Ok(Some(Picture { data: sized(&[&INTER]), role: Role::Other }))
            }),
            ("no end", &[&[0x50, 0x30, 0x30]], Err(Refusal::Malformed)),
            ("no beginning", &[&[0x90, 0x30, 0x30]], Err(Refusal::Malformed)),
            ("not continued", &[&[0x50, 0x30, 0x30], &[0x10, 0x30, 0x30]], Err(Refusal::Malformed)),
            ("a new sequence in an OBU", &[&[0x98, 0x30]], Err(Refusal::Malformed)),
            ("a size past the end", &[&[0x00, 9, 0x30]], Err(Refusal::Malformed)),
            ("an endless size", &[&[0x00, 0x80, 0x80]], Err(Refusal::Malformed)),
            ("fewer than counted", &[&[0x30, 1, 0x30]], Err(Refusal::Malformed)),
            ("forbidden bit", &[&[0x10, 0xb0, 1]], Err(Refusal::Malformed)),
            ("empty", &[&[]], Err(Refusal::Malformed)),
        ];
        for (name, payloads, expected) in cases {
            assert_eq!(unit(payloads), expected, "{name}");
        }
    }

    #[test]
    fn sizes_of_every_length_are_written() {
        for size in [1, 127, 128, 16_383, 16_384, 300_000] {
            let mut obu = vec![0x30, 0x30];
            obu.resize(1 + size, 9);
            let mut av1 = Av1::default();
            av1.push(&[&[0x10][..], &obu].concat()).expect("valid");
            let data = av1.finish().expect("whole").expect("a picture").data;
            let (found, rest) = leb128(&data[3..]).expect("a size");
            assert_eq!((found, rest.len()), (size, size));
        }
        assert_eq!(leb128(&[0xff, 0xff, 0xff, 0xff, 0x1f]), None, "more than 32 bits");
    }

    #[test]
    fn a_new_sequence_is_a_beginning() {
        let av1 = Av1::default();
        let cases: [(&str, &[u8], bool); 6] = [
            ("said so", &[0x18, 0x30, 0x10], true),
            ("a sequence header", &[0x10, 0x08, 0x00], true),
            ("a frame", &[0x10, 0x30, 0x10], false),
            ("continued", &[0x90, 0x08, 0x10], false),
            ("nothing in it", &[0x10], false),
            ("empty", &[], false),
        ];
        for (name, payload, expected) in cases {
            assert_eq!(av1.begins_start(payload), expected, "{name}");
        }
    }
}
