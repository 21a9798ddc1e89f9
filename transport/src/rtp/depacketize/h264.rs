//! H.264 (RFC 6184), non-interleaved: single NAL units, STAP-A and FU-A to Annex B.

use media::Bits;

use super::{
    ID_ZEROS_MAX, UnitKind,
    nal::{NalClass, NalDepacketizer, NalFormat},
    parameter_sets::{ParameterSetId, ParameterSetKind},
};

const IDR: u8 = 5;
const SPS: u8 = 7;
const PPS: u8 = 8;

/// Depacketizer that gathers one access unit.
pub(super) type H264Depacketizer = NalDepacketizer<H264>;

pub(super) struct H264;

impl NalFormat for H264 {
    const HEADER_BYTES: usize = 1;
    const KIND_BITS: u8 = 0x1f;
    const KIND_SHIFT: u8 = 0;

    /// Types of ITU-T H.264 table 7-1 and RFC 6184 5.2.
    fn class(kind: u8) -> NalClass {
        match kind {
            // The second is partition A, which begins with a slice header.
            1 | 2 => NalClass::Slice,
            3 | 4 => NalClass::SliceData,
            IDR => NalClass::Intra,
            6 => NalClass::Information,
            SPS => NalClass::FirstSet,
            PPS => NalClass::Set,
            9 => NalClass::Delimiter,
            10..=23 => NalClass::Plain,
            // STAP-A and FU-A; STAP-B, MTAP and FU-B belong to the interleaved mode, which is not negotiated.
            24 => NalClass::Aggregation,
            28 => NalClass::Fragment,
            25..=29 => NalClass::Refused,
            _ => NalClass::Undefined,
        }
    }

    fn header(packet: &[u8], kind: u8) -> [u8; 2] {
        [packet[0] & 0xe0 | kind, 0]
    }

    fn role(kind: u8, is_decodable: bool) -> UnitKind {
        match kind {
            IDR if is_decodable => UnitKind::Start { breaks_link: false },
            _ => UnitKind::Other,
        }
    }

    /// Parses the id of an SPS or PPS (7.3.2.1.1, 7.3.2.2).
    fn name(nal: &[u8]) -> Option<ParameterSetId> {
        let mut bits = Bits::of_nal(nal.get(1..)?);
        let (kind, id, refers_to) = match H264::kind(nal) {
            SPS => {
                // profile_idc, constraint flags, level_idc
                bits.skip(24)?;
                (ParameterSetKind::Sequence, bits.ue(ID_ZEROS_MAX)?, None)
            }
            PPS => {
                (ParameterSetKind::Picture, bits.ue(ID_ZEROS_MAX)?, Some(bits.ue(ID_ZEROS_MAX)?))
            }
            _ => return None,
        };
        Some(ParameterSetId { kind, id, refers_to })
    }

    /// Reads the beginning of a slice header (7.3.3).
    fn slice_set(nal: &[u8]) -> Option<(bool, u32)> {
        let mut bits = Bits::of_nal(nal.get(1..)?);
        let (first_macroblock, _slice_type) = (bits.ue(ID_ZEROS_MAX)?, bits.ue(ID_ZEROS_MAX)?);
        Some((first_macroblock == 0, bits.ue(ID_ZEROS_MAX)?))
    }
}

#[cfg(test)]
mod tests;
