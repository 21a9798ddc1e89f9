//! NAL units, whole, aggregated or fragmented, to access units in Annex B: what H.264 and H.265 share.

use std::marker::PhantomData;

use super::{
    DepacketizeResult, DepacketizedUnit, Depacketizer, Gathered, Malformed, PayloadPart, UnitKind,
    parameter_sets::{self, ParameterSetId, ParameterSets},
};

/// Class of a NAL unit type, or of a packet type that stands in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NalClass {
    /// Slice, or the beginning of a partitioned one.
    Slice,
    /// Slice of a picture at which decoding may start.
    Intra,
    /// Rest of a partitioned slice.
    SliceData,
    /// Parameter set with which the sets of a start begin.
    FirstSet,
    Set,
    /// Delimiter, with which a unit begins.
    Delimiter,
    Information,
    Plain,
    /// Packet of several NAL units.
    Aggregation,
    /// Packet of a part of a NAL unit.
    Fragment,
    /// Packet that the payload format forbids.
    Refused,
    /// Type without a meaning, which is ignored.
    Undefined,
}

/// Payload format of one codec, and what has to be known of its bitstream.
pub(super) trait NalFormat: Send {
    /// Bytes of the header of a NAL unit.
    const HEADER_BYTES: usize;
    /// Mask of the type in the header of a fragment.
    const KIND_BITS: u8;
    /// Bits after the type in the first byte of a NAL unit.
    const KIND_SHIFT: u8;

    /// Returns the type of a NAL unit; 0 if it is empty.
    fn kind(nal: &[u8]) -> u8 {
        nal.first().map_or(0, |header| header >> Self::KIND_SHIFT & Self::KIND_BITS)
    }

    fn class(kind: u8) -> NalClass;

    /// Returns the header of a fragmented NAL unit, up to [`NalFormat::HEADER_BYTES`].
    fn header(packet: &[u8], kind: u8) -> [u8; 2];

    /// Returns true for the layer that is decoded.
    fn is_decoded(_header: &[u8]) -> bool {
        true
    }

    /// Returns the role of a picture by the type of its first slice, which is decodable if it is the first of
    /// the picture and its parameter sets are known.
    fn role(kind: u8, is_decodable: bool) -> UnitKind;

    /// Parses the id of a parameter set; `None` for other NAL units.
    fn name(nal: &[u8]) -> Option<ParameterSetId>;

    /// Returns true for the first slice of a picture, and its picture parameter set id.
    fn slice_set(nal: &[u8]) -> Option<(bool, u32)>;
}

/// Depacketizer that gathers one access unit.
pub(super) struct NalDepacketizer<F> {
    unit: Gathered,
    sets: ParameterSets,
    fragmented: Option<Fragmented>,
    /// Role of the picture, by its first slice.
    picture: Option<UnitKind>,
    /// Ids of the picture parameter sets used by the slices of an intra picture.
    named: Vec<u32>,
    format: PhantomData<F>,
}

/// NAL unit that continues in the next fragment.
#[derive(Clone, Copy, Debug)]
enum Fragmented {
    /// Offset of the NAL unit in the gathered unit.
    Kept(usize),
    /// The NAL unit belongs to a layer that is not decoded.
    Skipped,
}

impl<F: NalFormat> NalDepacketizer<F> {
    /// Creates the depacketizer; `parameter_sets` are NAL units from the session description.
    pub(super) fn new(parameter_sets: &[Vec<u8>]) -> NalDepacketizer<F> {
        NalDepacketizer {
            unit: Gathered::default(),
            sets: ParameterSets::described(parameter_sets, F::name),
            fragmented: None,
            picture: None,
            named: Vec::new(),
            format: PhantomData,
        }
    }

    fn nal_unit(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if bytes.len() < F::HEADER_BYTES {
            return Err(Malformed);
        }
        if F::is_decoded(bytes) {
            let start = self.unit.begin_nal()?;
            self.unit.extend(bytes)?;
            self.end_nal(start);
        }
        Ok(())
    }

    fn end_nal(&mut self, start: usize) {
        let nal = self.unit.since(start);
        let kind = F::kind(nal);
        let is_intra = match F::class(kind) {
            NalClass::FirstSet | NalClass::Set => return self.sets.note(F::name(nal), nal, true),
            NalClass::Intra => true,
            NalClass::Slice if self.picture.is_none() => false,
            _ => return,
        };
        let set = F::slice_set(nal);
        if is_intra {
            parameter_sets::note_named(&mut self.named, set.map(|(_, id)| id));
        }
        if self.picture.is_none() {
            let is_known = |(is_first, id)| is_first && self.sets.are_complete(id);
            self.picture = Some(F::role(kind, set.is_some_and(is_known)));
        }
    }

    fn fragment(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let (packet, rest) = payload.split_at_checked(F::HEADER_BYTES).ok_or(Malformed)?;
        let (&header, rest) = rest.split_first().ok_or(Malformed)?;
        let (starts, ends, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & F::KIND_BITS);
        let at = match (starts, self.fragmented) {
            (true, None) if !F::class(kind).is_packet() => {
                if F::is_decoded(packet) {
                    let start = self.unit.begin_nal()?;
                    self.unit.extend(&F::header(packet, kind)[..F::HEADER_BYTES])?;
                    Fragmented::Kept(start)
                } else {
                    Fragmented::Skipped
                }
            }
            (false, Some(Fragmented::Kept(start))) if F::kind(self.unit.since(start)) != kind => {
                return Err(Malformed);
            }
            (false, Some(at)) => at,
            _ => return Err(Malformed),
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

    fn class(nal: &[u8]) -> NalClass {
        F::class(F::kind(nal))
    }

    /// Returns the NAL units of an aggregation packet, each after its 16-bit size.
    fn aggregated(payload: &[u8]) -> impl Iterator<Item = Result<&[u8], Malformed>> {
        let mut rest = payload.get(F::HEADER_BYTES..).unwrap_or_default();
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let whole = rest.split_first_chunk::<2>().and_then(|(size, rest)| {
                let size = usize::from(u16::from_be_bytes(*size));
                rest.split_at_checked(size).filter(|_| size > 0)
            });
            let (nal, after) = whole.unzip();
            rest = after.unwrap_or_default();
            Some(nal.ok_or(Malformed))
        })
    }

    /// Returns the first NAL unit that begins in this payload; it may be truncated.
    fn first(payload: &[u8]) -> Option<&[u8]> {
        match Self::class(payload) {
            NalClass::Aggregation => Self::aggregated(payload).next()?.ok(),
            // A delimiter or parameter set is never long enough to be fragmented.
            NalClass::Fragment => None,
            _ => Some(payload),
        }
    }
}

impl NalClass {
    /// Returns true for types that are no NAL units.
    fn is_packet(self) -> bool {
        use NalClass::{Aggregation, Fragment, Refused, Undefined};
        matches!(self, Aggregation | Fragment | Refused | Undefined)
    }
}

impl<F: NalFormat> Depacketizer for NalDepacketizer<F> {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        // A unit begins with its delimiter or with the data before its slices (H.264 7.4.1.2.3, H.265
        // 7.4.2.4.4); NAL units that may still belong to the previous unit do not count.
        Self::first(payload).is_some_and(|nal| Self::class(nal) == NalClass::Delimiter)
            || self.starts_keyframe(payload)
    }

    fn starts_keyframe(&self, payload: &[u8]) -> bool {
        let is_before =
            |nal: &&[u8]| matches!(Self::class(nal), NalClass::Delimiter | NalClass::Information);
        match Self::class(payload) {
            NalClass::Aggregation => {
                let nals = Self::aggregated(payload).map_while(Result::ok);
                let mut nals = nals.skip_while(is_before);
                nals.next().is_some_and(|nal| Self::class(nal) == NalClass::FirstSet)
            }
            class => class == NalClass::FirstSet,
        }
    }

    fn part(&self, payload: &[u8]) -> PayloadPart {
        let of_nal = |kind: u8, body: Option<&u8>| match F::class(kind) {
            // A slice header begins with first_mb_in_slice, of which a set first bit encodes 0, or with
            // first_slice_segment_in_pic_flag.
            NalClass::Slice | NalClass::Intra if body.is_some_and(|byte| byte >> 7 == 1) => {
                PayloadPart::Beginning
            }
            NalClass::Slice | NalClass::Intra | NalClass::SliceData => PayloadPart::Some,
            _ => PayloadPart::Nothing,
        };
        let whole = |nal: &[u8]| of_nal(F::kind(nal), nal.get(F::HEADER_BYTES));
        match Self::class(payload) {
            NalClass::Aggregation => {
                let mut parts = Self::aggregated(payload).flatten().map(whole);
                parts.find(|part| *part != PayloadPart::Nothing).unwrap_or(PayloadPart::Nothing)
            }
            NalClass::Fragment => match payload.get(F::HEADER_BYTES..) {
                Some([header, rest @ ..]) => {
                    of_nal(header & F::KIND_BITS, rest.first().filter(|_| header & 0x80 != 0))
                }
                _ => PayloadPart::Some,
            },
            _ => whole(payload),
        }
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        // A set forbidden_zero_bit marks a damaged payload (RFC 6184 1.3, RFC 7798 1.1.4).
        if payload.len() < F::HEADER_BYTES || payload[0] & 0x80 != 0 {
            return Err(Malformed);
        }
        let class = Self::class(payload);
        if self.fragmented.is_some() && class != NalClass::Fragment {
            return Err(Malformed);
        }
        match class {
            NalClass::Aggregation => {
                Self::aggregated(payload).try_for_each(|nal| self.nal_unit(nal?))
            }
            NalClass::Fragment => self.fragment(payload),
            NalClass::Refused => Err(Malformed),
            NalClass::Undefined => Ok(()),
            _ => self.nal_unit(payload),
        }
    }

    fn has_picture(&self) -> bool {
        self.picture.is_some() || self.fragmented.is_some()
    }

    fn finish(&mut self) -> DepacketizeResult {
        if self.fragmented.is_some() {
            return Err(Malformed);
        }
        let Some(role) = self.picture else { return Ok(None) };
        let lacking = match role {
            UnitKind::Start { .. } => self.sets.missing_sets(&self.named),
            UnitKind::Leading | UnitKind::Other => Vec::new(),
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
