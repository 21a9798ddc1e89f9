//! AV1 (RTP payload format of the Alliance for Open Media, version 1.0) to temporal units.
//!
//! Gives every OBU a size and every unit a temporal delimiter, as decoders require. All layers are kept. The
//! sender's tile lists, delimiters and padding are dropped.

use media::{Obu, leb128, to_leb128};

use super::{
    AHEAD_BYTES_MAX, DepacketizeResult, DepacketizedUnit, Depacketizer, Gathered, Malformed,
    UnitKind,
};
use crate::rtp::UNIT_BYTES_MAX;

const DELIMITER: [u8; 2] = [Obu::DELIMITER << 3 | Obu::HAS_SIZE, 0];

/// Depacketizer that gathers one temporal unit.
#[derive(Debug, Default)]
pub(super) struct Av1Depacketizer {
    unit: Gathered,
    /// Beginning of an OBU that continues in the next packet.
    fragment: Vec<u8>,
    is_fragmented: bool,
    /// reduced_still_picture_header of the unit's sequence header; `None` without one.
    reduced_still: Option<bool>,
    /// True if the first frame is decodable on its own; `None` before a frame.
    is_key: Option<bool>,
}

impl Av1Depacketizer {
    fn element(&mut self, bytes: &[u8], continues: bool, is_cut: bool) -> Result<(), Malformed> {
        if continues != self.is_fragmented {
            return Err(Malformed);
        }
        if !continues && !is_cut {
            return self.obu(bytes);
        }
        if self.fragment.len() + bytes.len() > UNIT_BYTES_MAX {
            return Err(Malformed);
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

    /// Appends a complete OBU, received with or without its size.
    fn obu(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let Some(&header) = bytes.first() else { return Ok(()) };
        if header & 0x80 != 0 {
            return Err(Malformed);
        }
        let kind = Obu::kind_of(header);
        if matches!(kind, Obu::DELIMITER | Obu::TILE_LIST | Obu::PADDING) {
            return Ok(());
        }
        let (obu, _) = Obu::split(bytes).ok_or(Malformed)?;
        if self.unit.len() == 0 {
            self.unit.extend(&DELIMITER)?;
        }
        self.unit.extend(&[header | Obu::HAS_SIZE])?;
        self.unit.extend(obu.extension.as_slice())?;
        for byte in to_leb128(obu.payload.len() as u32) {
            self.unit.extend(&[byte])?;
        }
        self.unit.extend(obu.payload)?;
        self.note(kind, obu.payload.first().copied().unwrap_or(0));
        Ok(())
    }

    fn note(&mut self, kind: u8, first: u8) {
        match kind {
            // Bits: seq_profile(3) still_picture reduced_still_picture_header
            Obu::SEQUENCE_HEADER => self.reduced_still = Some(first & 0x08 != 0),
            // Bits: show_existing_frame frame_type(2) show_frame
            Obu::FRAME_HEADER | Obu::FRAME if self.is_key.is_none() => {
                let is_shown_key = first & 0xf0 == 0x10;
                self.is_key =
                    Some(self.reduced_still.is_some_and(|reduced| reduced || is_shown_key));
            }
            _ => {}
        }
    }
}

impl Depacketizer for Av1Depacketizer {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        self.starts_keyframe(payload)
    }

    fn starts_keyframe(&self, payload: &[u8]) -> bool {
        let [aggregation, rest @ ..] = payload else { return false };
        let (continues, is_new_sequence) = (aggregation & 0x80 != 0, aggregation & 0x08 != 0);
        let is_first = |element: &[u8]| {
            element.first().is_some_and(|header| Obu::kind_of(*header) == Obu::SEQUENCE_HEADER)
        };
        let first = elements(*aggregation, rest).next();
        !continues && (is_new_sequence || matches!(first, Some(Ok((bytes, _))) if is_first(bytes)))
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let (&aggregation, rest) = payload.split_first().ok_or(Malformed)?;
        let (continues, is_cut) = (aggregation & 0x80 != 0, aggregation & 0x40 != 0);
        // A new coded video sequence begins with a whole OBU (4.4).
        if continues && aggregation & 0x08 != 0 {
            return Err(Malformed);
        }
        for (index, element) in elements(aggregation, rest).enumerate() {
            let (bytes, is_last) = element?;
            self.element(bytes, continues && index == 0, is_cut && is_last)?;
        }
        Ok(())
    }

    fn has_picture(&self) -> bool {
        self.is_key.is_some()
    }

    fn finish(&mut self) -> DepacketizeResult {
        if self.is_fragmented {
            return Err(Malformed);
        }
        let Some(is_key) = self.is_key else { return Ok(None) };
        let role = if is_key { UnitKind::Start { breaks_link: false } } else { UnitKind::Other };
        Ok(Some(DepacketizedUnit { data: self.unit.take(), role }))
    }

    fn reset(&mut self) {
        self.unit.clear();
        self.fragment.clear();
        self.is_fragmented = false;
        self.reduced_still = None;
        self.is_key = None;
    }
}

/// Returns the elements of a packet (4.3), which are OBUs or fragments of one, and true for the last: as many as the
/// header states, the last one without a size, or, if it states 0, each with a size.
fn elements(
    aggregation: u8,
    mut rest: &[u8],
) -> impl Iterator<Item = Result<(&[u8], bool), Malformed>> {
    let count = aggregation >> 4 & 3;
    let mut left = (count > 0).then_some(count);
    std::iter::from_fn(move || {
        if left == Some(0) || left.is_none() && rest.is_empty() {
            return None;
        }
        left = left.map(|left| left - 1);
        let bytes = match left {
            Some(0) => Some(std::mem::take(&mut rest)),
            _ => sized(&mut rest),
        };
        let is_last = left.map_or(rest.is_empty(), |left| left == 0);
        Some(bytes.map(|bytes| (bytes, is_last)).ok_or(Malformed))
    })
}

/// Splits off an element behind its size.
fn sized<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
    let (size, after) = leb128(std::mem::take(rest))?;
    let (bytes, after) = after.split_at_checked(size)?;
    *rest = after;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::{
        super::test_payloads::{MALFORMED, START},
        *,
    };

    // OBUs without sizes, as sent: a sequence header, a shown key frame, another frame.
    const SEQUENCE: [u8; 3] = [0x08, 0x00, 0x05];
    const KEY: [u8; 3] = [0x30, 0x10, 0x07];
    const INTER: [u8; 3] = [0x30, 0x30, 0x07];

    fn unit(payloads: &[&[u8]]) -> DepacketizeResult {
        let mut av1 = Av1Depacketizer::default();
        payloads.iter().try_for_each(|payload| av1.push(payload))?;
        av1.finish()
    }

    /// Returns the temporal unit of these OBUs, each with its size.
    fn given(obus: &[&[u8]], role: UnitKind) -> DepacketizeResult {
        let mut data = DELIMITER.to_vec();
        for obu in obus {
            data.extend([obu[0] | 2, (obu.len() - 1) as u8]);
            data.extend_from_slice(&obu[1..]);
        }
        Ok(Some(DepacketizedUnit { data, role }))
    }

    #[test]
    fn every_aggregation_becomes_a_temporal_unit_or_is_refused() {
        let key = || given(&[&SEQUENCE, &KEY], START);
        let inter = || given(&[&INTER], UnitKind::Other);
        let hidden = given(&[&SEQUENCE, &[0x30, 0, 7]], UnitKind::Other);
        let extended =
            DepacketizedUnit { data: vec![0x12, 0, 0x36, 0x20, 2, 0x30, 7], role: UnitKind::Other };
        let cases: [(&str, &[&[u8]], DepacketizeResult); 20] = [
            ("two counted", &[&[0x28, 3, 8, 0, 5, 0x30, 0x10, 7]], key()),
            ("two sized", &[&[0x08, 3, 8, 0, 5, 3, 0x30, 0x10, 7]], key()),
            ("cut in the frame", &[&[0x68, 3, 8, 0, 5, 0x30], &[0xd0, 0x10], &[0x90, 7]], key()),
            ("one", &[&[0x10, 0x30, 0x30, 7]], inter()),
            ("with its size", &[&[0x10, 0x32, 2, 0x30, 7]], inter()),
            ("with a delimiter", &[&[0x20, 2, 0x12, 0, 0x30, 0x30, 7]], inter()),
            ("with an extension", &[&[0x10, 0x34, 0x20, 0x30, 7]], Ok(Some(extended))),
            ("no sequence header", &[&[0x10, 0x30, 0x10, 7]], given(&[&KEY], UnitKind::Other)),
            ("a hidden key frame", &[&[0x28, 3, 8, 0, 5, 0x30, 0x00, 7]], hidden),
            ("a sequence header alone", &[&[0x18, 8, 0, 5]], Ok(None)),
            ("an empty element", &[&[0x00, 0, 3, 0x30, 0x30, 7]], inter()),
            ("no end", &[&[0x50, 0x30, 0x30]], MALFORMED),
            ("no beginning", &[&[0x90, 0x30, 0x30]], MALFORMED),
            ("not continued", &[&[0x50, 0x30, 0x30], &[0x10, 0x30, 0x30]], MALFORMED),
            ("a new sequence in an OBU", &[&[0x98, 0x30]], MALFORMED),
            ("a size past the end", &[&[0x00, 9, 0x30]], MALFORMED),
            ("an endless size", &[&[0x00, 0x80, 0x80]], MALFORMED),
            ("fewer than counted", &[&[0x30, 1, 0x30]], MALFORMED),
            ("forbidden bit", &[&[0x10, 0xb0, 1]], MALFORMED),
            ("empty", &[&[]], MALFORMED),
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
            let mut av1 = Av1Depacketizer::default();
            av1.push(&[&[0x10][..], &obu].concat()).expect("valid");
            let data = av1.finish().expect("whole").expect("a picture").data;
            let (found, rest) = leb128(&data[3..]).expect("a size");
            assert_eq!((found, rest.len()), (size, size));
        }
    }

    #[test]
    fn a_new_sequence_is_a_beginning() {
        let av1 = Av1Depacketizer::default();
        let cases: [(&str, &[u8], bool); 6] = [
            ("said so", &[0x18, 0x30, 0x10], true),
            ("a sequence header", &[0x10, 0x08, 0x00], true),
            ("a frame", &[0x10, 0x30, 0x10], false),
            ("continued", &[0x90, 0x08, 0x10], false),
            ("nothing in it", &[0x10], false),
            ("empty", &[], false),
        ];
        for (name, payload, expected) in cases {
            assert_eq!(av1.starts_keyframe(payload), expected, "{name}");
        }
    }
}
