//! H.265 (RFC 7798): single NAL units, aggregation packets and fragmentation units to Annex B.
//!
//! Rejects PACI packets. Keeps only the base layer; layers above it are not decoded.

use media::Bits;

use super::{
    ID_ZEROS_MAX, UnitKind,
    nal::{NalClass, NalDepacketizer, NalFormat},
    parameter_sets::{ParameterSetId, ParameterSetKind},
};

const RASL_N: u8 = 8;
const RASL_R: u8 = 9;
const BLA_FIRST: u8 = 16;
const BLA_LAST: u8 = 18;
const CRA: u8 = 21;
const VPS: u8 = 32;
const SPS: u8 = 33;
const PPS: u8 = 34;

/// Depacketizer that gathers one access unit.
pub(super) type H265Depacketizer = NalDepacketizer<H265>;

pub(super) struct H265;

impl NalFormat for H265 {
    const HEADER_BYTES: usize = 2;
    const KIND_BITS: u8 = 0x3f;
    const KIND_SHIFT: u8 = 1;

    /// Types of ITU-T H.265 table 7-1 and RFC 7798 4.4.
    fn class(kind: u8) -> NalClass {
        match kind {
            BLA_FIRST..=CRA => NalClass::Intra,
            0..=31 => NalClass::Slice,
            VPS => NalClass::FirstSet,
            SPS | PPS => NalClass::Set,
            35 => NalClass::Delimiter,
            39 => NalClass::Information,
            36..=47 => NalClass::Plain,
            48 => NalClass::Aggregation,
            49 => NalClass::Fragment,
            // PACI.
            50 => NalClass::Refused,
            _ => NalClass::Undefined,
        }
    }

    fn header(packet: &[u8], kind: u8) -> [u8; 2] {
        [packet[0] & 0x81 | kind << 1, packet[1]]
    }

    fn is_decoded(header: &[u8]) -> bool {
        let layer = (header[0] & 1) << 5 | header[1] >> 3;
        layer == 0
    }

    fn role(kind: u8, is_decodable: bool) -> UnitKind {
        match kind {
            BLA_FIRST..=CRA if is_decodable => UnitKind::Start { breaks_link: kind <= BLA_LAST },
            RASL_N | RASL_R => UnitKind::Leading,
            _ => UnitKind::Other,
        }
    }

    /// Parses the id of a VPS, SPS or PPS (7.3.2.1, 7.3.2.2, 7.3.2.3).
    fn name(nal: &[u8]) -> Option<ParameterSetId> {
        let mut bits = Bits::of_nal(nal.get(2..)?);
        let (kind, id, refers_to) = match H265::kind(nal) {
            VPS => (ParameterSetKind::Video, bits.take(4)?, None),
            SPS => {
                let refers_to = bits.take(4)?;
                let sub_layers = bits.take(3)?;
                bits.skip(1)?;
                skip_profiles(&mut bits, sub_layers)?;
                (ParameterSetKind::Sequence, bits.ue(ID_ZEROS_MAX)?, Some(refers_to))
            }
            PPS => {
                (ParameterSetKind::Picture, bits.ue(ID_ZEROS_MAX)?, Some(bits.ue(ID_ZEROS_MAX)?))
            }
            _ => return None,
        };
        Some(ParameterSetId { kind, id, refers_to })
    }

    /// Reads the beginning of a slice header (7.3.6.1).
    fn slice_set(nal: &[u8]) -> Option<(bool, u32)> {
        let mut bits = Bits::of_nal(nal.get(2..)?);
        let is_first = bits.take(1)? == 1;
        // no_output_of_prior_pics_flag
        if H265::kind(nal) >= BLA_FIRST {
            bits.skip(1)?;
        }
        Some((is_first, bits.ue(ID_ZEROS_MAX)?))
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

#[cfg(test)]
mod tests;
