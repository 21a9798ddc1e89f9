//! H.265 (RFC 7798): single NAL units, aggregation packets and fragmentation units to Annex B.
//!
//! Rejects PACI packets. Keeps only the base layer; layers above it are not decoded.

use media::Bits;

use super::{
    DepacketizeError, DepacketizeResult, DepacketizedUnit, Depacketizer, Gathered, ID_ZEROS_MAX,
    PayloadPart, UnitKind,
    h264::StapIter,
    parameter_sets::{self, ParameterSetId, ParameterSetKind, ParameterSets},
};

/// NAL unit types of ITU-T H.265 table 7-1 and RFC 7798 4.4.
mod nal {
    pub const RASL_N: u8 = 8;
    pub const RASL_R: u8 = 9;
    pub const BLA_FIRST: u8 = 16;
    pub const BLA_LAST: u8 = 18;
    pub const CRA: u8 = 21;
    pub const LAST_SLICE: u8 = 31;
    pub const VPS: u8 = 32;
    pub const SPS: u8 = 33;
    pub const PPS: u8 = 34;
    pub const DELIMITER: u8 = 35;
    pub const SEI: u8 = 39;
    pub const AGGREGATION: u8 = 48;
    pub const FRAGMENT: u8 = 49;
    pub const PACI: u8 = 50;
}

/// Depacketizer that gathers one access unit.
#[derive(Debug, Default)]
pub(super) struct H265Depacketizer {
    unit: Gathered,
    sets: ParameterSets,
    fragmented: Option<Fragmented>,
    picture: Option<Slice>,
    /// Ids of the picture parameter sets used by the slices of an intra picture.
    named: Vec<u32>,
}

/// NAL unit that continues in the next fragment.
#[derive(Clone, Copy, Debug)]
enum Fragmented {
    /// Offset of the NAL unit in the gathered unit.
    Kept(usize),
    /// The NAL unit belongs to a layer that is not decoded.
    Skipped,
}

/// Facts from the first slice of a picture.
#[derive(Clone, Copy, Debug)]
struct Slice {
    kind: u8,
    /// True if the slice is the picture's first and its parameter sets are known.
    is_decodable: bool,
}

impl H265Depacketizer {
    /// Creates the depacketizer; `parameter_sets` are NAL units from the session description.
    pub(super) fn new(parameter_sets: &[Vec<u8>]) -> H265Depacketizer {
        H265Depacketizer {
            sets: ParameterSets::described(parameter_sets, name),
            ..H265Depacketizer::default()
        }
    }

    fn nal_unit(&mut self, bytes: &[u8]) -> Result<(), DepacketizeError> {
        let [first, second, ..] = *bytes else { return Err(DepacketizeError::Malformed) };
        if layer(first, second) != 0 {
            return Ok(());
        }
        let start = self.unit.begin_nal()?;
        self.unit.extend(bytes)?;
        self.end_nal(start);
        Ok(())
    }

    fn end_nal(&mut self, start: usize) {
        let nal = self.unit.since(start);
        match kind(nal) {
            nal::VPS..=nal::PPS => self.sets.note(name(nal), nal, true),
            kind @ 0..=nal::LAST_SLICE if self.picture.is_none() || is_intra(kind) => {
                let set = slice_set(nal);
                if is_intra(kind) {
                    parameter_sets::note_named(&mut self.named, set.map(|(_, id)| id));
                }
                if self.picture.is_none() {
                    let is_known = |(is_first, id)| {
                        is_first && self.sets.are_complete(id, ParameterSetKind::Video)
                    };
                    self.picture = Some(Slice { kind, is_decodable: set.is_some_and(is_known) });
                }
            }
            _ => {}
        }
    }

    fn fragment(&mut self, payload: &[u8]) -> Result<(), DepacketizeError> {
        let &[first, second, header, ref rest @ ..] = payload else {
            return Err(DepacketizeError::Malformed);
        };
        let (starts, ends, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & 0x3f);
        let at = match (starts, self.fragmented) {
            (true, None) if kind < nal::AGGREGATION => {
                if layer(first, second) == 0 {
                    let start = self.unit.begin_nal()?;
                    self.unit.extend(&[first & 0x81 | kind << 1, second])?;
                    Fragmented::Kept(start)
                } else {
                    Fragmented::Skipped
                }
            }
            (false, Some(at)) => at,
            _ => return Err(DepacketizeError::Malformed),
        };
        if let Fragmented::Kept(start) = at {
            self.unit.extend(rest)?;
            if ends {
                self.end_nal(start);
            }
        }
        self.fragmented = if ends { None } else { Some(at) };
        Ok(())
    }
}

impl Depacketizer for H265Depacketizer {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        // A unit begins with its delimiter or with the data before its slices (7.4.2.4.4); NAL units that may
        // still belong to the previous unit do not count.
        first(payload).is_some_and(|nal| kind(nal) == nal::DELIMITER)
            || self.starts_keyframe(payload)
    }

    fn starts_keyframe(&self, payload: &[u8]) -> bool {
        let is_before = |nal: &&[u8]| matches!(kind(nal), nal::DELIMITER | nal::SEI);
        match kind(payload) {
            nal::AGGREGATION => {
                let nals = StapIter(payload.get(2..).unwrap_or_default());
                let mut nals = nals.map_while(Result::ok).skip_while(is_before);
                nals.next().is_some_and(|nal| kind(nal) == nal::VPS)
            }
            kind => kind == nal::VPS,
        }
    }

    fn part(&self, payload: &[u8]) -> PayloadPart {
        let of_nal = |kind: u8, body: Option<&u8>| match kind {
            // first_slice_segment_in_pic_flag is the first bit of the slice header.
            0..=nal::LAST_SLICE if body.is_some_and(|byte| byte >> 7 == 1) => {
                PayloadPart::Beginning
            }
            0..=nal::LAST_SLICE => PayloadPart::Some,
            _ => PayloadPart::Nothing,
        };
        match kind(payload) {
            nal::AGGREGATION => {
                let nals = StapIter(payload.get(2..).unwrap_or_default()).flatten();
                let mut parts = nals.map(|nal| of_nal(kind(nal), nal.get(2)));
                parts.find(|part| *part != PayloadPart::Nothing).unwrap_or(PayloadPart::Nothing)
            }
            nal::FRAGMENT => match *payload {
                [_, _, header, ref rest @ ..] if header & 0x80 != 0 => {
                    of_nal(header & 0x3f, rest.first())
                }
                [_, _, header, ..] => of_nal(header & 0x3f, None),
                _ => PayloadPart::Some,
            },
            kind => of_nal(kind, payload.get(2)),
        }
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), DepacketizeError> {
        // A set forbidden_zero_bit marks a damaged payload (RFC 7798 1.1.4).
        if payload.len() < 2 || payload[0] & 0x80 != 0 {
            return Err(DepacketizeError::Malformed);
        }
        let kind = kind(payload);
        if self.fragmented.is_some() && kind != nal::FRAGMENT {
            return Err(DepacketizeError::Malformed);
        }
        match kind {
            0..nal::AGGREGATION => self.nal_unit(payload),
            nal::AGGREGATION => StapIter(&payload[2..]).try_for_each(|nal| self.nal_unit(nal?)),
            nal::FRAGMENT => self.fragment(payload),
            nal::PACI => Err(DepacketizeError::Malformed),
            // Undefined types are ignored.
            _ => Ok(()),
        }
    }

    fn has_picture(&self) -> bool {
        self.picture.is_some() || self.fragmented.is_some()
    }

    fn finish(&mut self) -> DepacketizeResult {
        if self.fragmented.is_some() {
            return Err(DepacketizeError::Malformed);
        }
        let Some(slice) = self.picture else { return Ok(None) };
        let (role, lacking) = match slice.kind {
            kind if is_intra(kind) && slice.is_decodable => {
                let role = UnitKind::Start { breaks_link: kind <= nal::BLA_LAST };
                (role, self.sets.missing_sets(&self.named))
            }
            nal::RASL_N | nal::RASL_R => (UnitKind::Leading, Vec::new()),
            _ => (UnitKind::Other, Vec::new()),
        };
        let data = self.unit.take_after(&lacking)?;
        Ok(Some(DepacketizedUnit { data, role }))
    }

    fn reset(&mut self) {
        self.unit.clear();
        self.sets.begin_unit();
        self.fragmented = None;
        self.picture = None;
        self.named.clear();
    }
}

fn kind(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |header| header >> 1 & 0x3f)
}

/// Returns true if decoding may start with a picture of this type.
fn is_intra(kind: u8) -> bool {
    (nal::BLA_FIRST..=nal::CRA).contains(&kind)
}

fn layer(first: u8, second: u8) -> u8 {
    (first & 1) << 5 | second >> 3
}

/// Returns the first NAL unit that begins in this payload; it may be truncated.
fn first(payload: &[u8]) -> Option<&[u8]> {
    match kind(payload) {
        nal::AGGREGATION => StapIter(payload.get(2..)?).next()?.ok(),
        nal::FRAGMENT => None,
        _ => Some(payload).filter(|payload| !payload.is_empty()),
    }
}

/// Parses the id of a VPS, SPS or PPS (7.3.2.1, 7.3.2.2, 7.3.2.3); `None` for other NAL units.
fn name(nal: &[u8]) -> Option<ParameterSetId> {
    let mut bits = Bits::of_nal(nal.get(2..)?);
    match kind(nal) {
        nal::VPS => {
            Some(ParameterSetId { kind: ParameterSetKind::Video, id: bits.take(4)?, refers_to: 0 })
        }
        nal::SPS => {
            let refers_to = bits.take(4)?;
            let sub_layers = bits.take(3)?;
            bits.skip(1)?;
            skip_profiles(&mut bits, sub_layers)?;
            Some(ParameterSetId {
                kind: ParameterSetKind::Sequence,
                id: bits.ue(ID_ZEROS_MAX)?,
                refers_to,
            })
        }
        nal::PPS => Some(ParameterSetId {
            kind: ParameterSetKind::Picture,
            id: bits.ue(ID_ZEROS_MAX)?,
            refers_to: bits.ue(ID_ZEROS_MAX)?,
        }),
        _ => None,
    }
}

/// Skips profile_tier_level (7.3.3) with `sub_layers` sub-layers below the highest.
fn skip_profiles(bits: &mut Bits<'_>, sub_layers: u32) -> Option<()> {
    bits.skip(88 + 8)?;
    if sub_layers == 0 {
        return Some(());
    }
    let mut skipped = 0;
    for index in 0..8 {
        let (has_profile, has_level) = (bits.take(1)?, bits.take(1)?);
        if index < sub_layers {
            skipped += 88 * has_profile + 8 * has_level;
        }
    }
    bits.skip(skipped)
}

/// Returns true for the first slice of a picture, and its picture parameter set id (7.3.6.1).
fn slice_set(nal: &[u8]) -> Option<(bool, u32)> {
    let mut bits = Bits::of_nal(nal.get(2..)?);
    let is_first = bits.take(1)? == 1;
    // no_output_of_prior_pics_flag
    if kind(nal) >= nal::BLA_FIRST {
        bits.skip(1)?;
    }
    Some((is_first, bits.ue(ID_ZEROS_MAX)?))
}

#[cfg(test)]
mod tests;
