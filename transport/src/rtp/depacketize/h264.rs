//! H.264 (RFC 6184), non-interleaved: single NAL units, STAP-A and FU-A to Annex B.

use media::Bits;

use super::{
    DepacketizeError, DepacketizeResult, DepacketizedUnit, Depacketizer, Gathered, ID_ZEROS_MAX,
    PayloadPart, UnitKind,
    parameter_sets::{self, ParameterSetId, ParameterSetKind, ParameterSets},
};

/// NAL unit types of ITU-T H.264 table 7-1 and RFC 6184 5.2.
mod nal {
    pub const SLICE: u8 = 1;
    pub const PARTITION_A: u8 = 2;
    pub const IDR: u8 = 5;
    pub const SEI: u8 = 6;
    pub const SPS: u8 = 7;
    pub const PPS: u8 = 8;
    pub const DELIMITER: u8 = 9;
    pub const LAST_PLAIN: u8 = 23;
    pub const STAP_A: u8 = 24;
    pub const FU_A: u8 = 28;
    pub const FU_B: u8 = 29;
}

/// Depacketizer that gathers one access unit.
#[derive(Debug, Default)]
pub(super) struct H264Depacketizer {
    unit: Gathered,
    sets: ParameterSets,
    /// Offset in the unit of the NAL unit that continues in the next fragment.
    fragmented: Option<usize>,
    picture: Option<Slice>,
    /// Ids of the picture parameter sets used by the slices of an intra picture.
    named: Vec<u32>,
}

/// Facts from the first slice of a picture.
#[derive(Clone, Copy, Debug)]
struct Slice {
    is_idr: bool,
    /// True if the slice has the picture's first macroblock and its parameter sets are known.
    is_decodable: bool,
}

impl H264Depacketizer {
    /// Creates the depacketizer; `parameter_sets` are NAL units from the session description.
    pub(super) fn new(parameter_sets: &[Vec<u8>]) -> H264Depacketizer {
        H264Depacketizer {
            sets: ParameterSets::described(parameter_sets, name),
            ..H264Depacketizer::default()
        }
    }

    fn nal_unit(&mut self, bytes: &[u8]) -> Result<(), DepacketizeError> {
        let start = self.unit.begin_nal()?;
        self.unit.extend(bytes)?;
        self.end_nal(start);
        Ok(())
    }

    fn end_nal(&mut self, start: usize) {
        let nal = self.unit.since(start);
        match kind(nal) {
            nal::SPS | nal::PPS => self.sets.note(name(nal), nal, true),
            kind @ (nal::SLICE | nal::PARTITION_A) if self.picture.is_none() => {
                self.picture = Some(self.slice(kind, slice_set(nal)));
            }
            nal::IDR => {
                let set = slice_set(nal);
                if self.picture.is_none() {
                    self.picture = Some(self.slice(nal::IDR, set));
                }
                parameter_sets::note_named(&mut self.named, set.map(|(_, id)| id));
            }
            _ => {}
        }
    }

    fn slice(&self, kind: u8, set: Option<(bool, u32)>) -> Slice {
        let is_known =
            |(is_first, id)| is_first && self.sets.are_complete(id, ParameterSetKind::Sequence);
        Slice { is_idr: kind == nal::IDR, is_decodable: set.is_some_and(is_known) }
    }

    fn fragment(&mut self, payload: &[u8]) -> Result<(), DepacketizeError> {
        let &[indicator, header, ref rest @ ..] = payload else {
            return Err(DepacketizeError::Malformed);
        };
        let (starts, ends, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & 0x1f);
        let start = match (starts, self.fragmented) {
            (true, None) if (1..=nal::LAST_PLAIN).contains(&kind) => {
                let start = self.unit.begin_nal()?;
                self.unit.extend(&[indicator & 0xe0 | kind])?;
                start
            }
            (false, Some(start)) if self.unit.since(start)[0] & 0x1f == kind => start,
            _ => return Err(DepacketizeError::Malformed),
        };
        self.unit.extend(rest)?;
        self.fragmented = Some(start);
        if ends {
            self.fragmented = None;
            self.end_nal(start);
        }
        Ok(())
    }
}

impl Depacketizer for H264Depacketizer {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        // A unit begins with its delimiter or with the data before its slices (7.4.1.2.3); NAL units that may
        // still belong to the previous unit do not count.
        first(payload).is_some_and(|nal| kind(nal) == nal::DELIMITER)
            || self.starts_keyframe(payload)
    }

    fn starts_keyframe(&self, payload: &[u8]) -> bool {
        let is_before = |nal: &&[u8]| matches!(kind(nal), nal::DELIMITER | nal::SEI);
        match kind(payload) {
            nal::STAP_A => {
                let mut nals = StapIter(&payload[1..]).map_while(Result::ok).skip_while(is_before);
                nals.next().is_some_and(|nal| kind(nal) == nal::SPS)
            }
            kind => kind == nal::SPS,
        }
    }

    fn part(&self, payload: &[u8]) -> PayloadPart {
        let of_nal = |kind: u8, body: Option<&u8>| match kind {
            // first_mb_in_slice comes first in the slice header; a set first bit encodes 0.
            nal::SLICE | nal::PARTITION_A | nal::IDR if body.is_some_and(|byte| byte >> 7 == 1) => {
                PayloadPart::Beginning
            }
            nal::SLICE..=nal::IDR => PayloadPart::Some,
            _ => PayloadPart::Nothing,
        };
        match kind(payload) {
            nal::STAP_A => {
                let nals = StapIter(&payload[1..]).flatten();
                let mut parts = nals.map(|nal| of_nal(kind(nal), nal.get(1)));
                parts.find(|part| *part != PayloadPart::Nothing).unwrap_or(PayloadPart::Nothing)
            }
            nal::FU_A => match *payload {
                [_, header, ref rest @ ..] if header & 0x80 != 0 => {
                    of_nal(header & 0x1f, rest.first())
                }
                [_, header, ..] => of_nal(header & 0x1f, None),
                _ => PayloadPart::Some,
            },
            kind => of_nal(kind, payload.get(1)),
        }
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), DepacketizeError> {
        // A set forbidden_zero_bit marks a damaged payload (RFC 6184 1.3).
        if payload.first().is_some_and(|header| header & 0x80 != 0) {
            return Err(DepacketizeError::Malformed);
        }
        let kind = kind(payload);
        if self.fragmented.is_some() && kind != nal::FU_A {
            return Err(DepacketizeError::Malformed);
        }
        match kind {
            1..=nal::LAST_PLAIN => self.nal_unit(payload),
            nal::STAP_A => StapIter(&payload[1..]).try_for_each(|nal| self.nal_unit(nal?)),
            nal::FU_A => self.fragment(payload),
            // STAP-B, MTAP and FU-B belong to the interleaved mode, which is not negotiated.
            25..=nal::FU_B => Err(DepacketizeError::Malformed),
            // Undefined types are ignored (RFC 6184 5.2).
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
        let (role, lacking) = match slice {
            Slice { is_idr: true, is_decodable: true } => {
                (UnitKind::Start { breaks_link: false }, self.sets.missing_sets(&self.named))
            }
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

/// NAL units of an aggregation packet, each after its 16-bit size; also used for H.265.
pub(super) struct StapIter<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for StapIter<'a> {
    type Item = Result<&'a [u8], DepacketizeError>;

    fn next(&mut self) -> Option<Result<&'a [u8], DepacketizeError>> {
        if self.0.is_empty() {
            return None;
        }
        let Some((size, rest)) = self.0.split_first_chunk::<2>() else {
            self.0 = &[];
            return Some(Err(DepacketizeError::Malformed));
        };
        let size = usize::from(u16::from_be_bytes(*size));
        match rest.split_at_checked(size).filter(|_| size > 0) {
            Some((nal, rest)) => {
                self.0 = rest;
                Some(Ok(nal))
            }
            None => {
                self.0 = &[];
                Some(Err(DepacketizeError::Malformed))
            }
        }
    }
}

fn kind(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |header| header & 0x1f)
}

/// Returns the first NAL unit that begins in this payload; it may be truncated.
fn first(payload: &[u8]) -> Option<&[u8]> {
    match kind(payload) {
        nal::STAP_A => StapIter(&payload[1..]).next()?.ok(),
        // A delimiter or parameter set is never long enough to be fragmented.
        nal::FU_A => None,
        _ => Some(payload),
    }
}

/// Parses the id of an SPS or PPS (7.3.2.1.1, 7.3.2.2); `None` for other NAL units.
fn name(nal: &[u8]) -> Option<ParameterSetId> {
    let body = nal.get(1..)?;
    match kind(nal) {
        nal::SPS => {
            let mut bits = Bits::of_nal(body);
            // profile_idc, constraint flags, level_idc
            bits.skip(24)?;
            Some(ParameterSetId {
                kind: ParameterSetKind::Sequence,
                id: bits.ue(ID_ZEROS_MAX)?,
                refers_to: 0,
            })
        }
        nal::PPS => {
            let mut bits = Bits::of_nal(body);
            Some(ParameterSetId {
                kind: ParameterSetKind::Picture,
                id: bits.ue(ID_ZEROS_MAX)?,
                refers_to: bits.ue(ID_ZEROS_MAX)?,
            })
        }
        _ => None,
    }
}

/// Returns true for the first slice of a picture, and its picture parameter set id (7.3.3).
fn slice_set(nal: &[u8]) -> Option<(bool, u32)> {
    let mut bits = Bits::of_nal(nal.get(1..)?);
    let (first_macroblock, _slice_type) = (bits.ue(ID_ZEROS_MAX)?, bits.ue(ID_ZEROS_MAX)?);
    Some((first_macroblock == 0, bits.ue(ID_ZEROS_MAX)?))
}

#[cfg(test)]
mod tests;
