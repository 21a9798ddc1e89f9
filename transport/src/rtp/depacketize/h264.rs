//! H.264 (RFC 6184), non-interleaved: single NAL units, STAP-A and FU-A to Annex B.

use super::{
    Depacketizer, Finished, Gathered, Picture, Refusal, Role,
    bits::Bits,
    sets::{Kind, Name, ParameterSets},
};

/// NAL unit types of ITU-T H.264 table 7-1 and RFC 6184 5.2.
mod nal {
    pub const SLICE: u8 = 1;
    pub const PARTITION_A: u8 = 2;
    pub const IDR: u8 = 5;
    pub const SPS: u8 = 7;
    pub const PPS: u8 = 8;
    pub const DELIMITER: u8 = 9;
    pub const LAST_PLAIN: u8 = 23;
    pub const STAP_A: u8 = 24;
    pub const FU_A: u8 = 28;
    pub const FU_B: u8 = 29;
}

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Gathers one access unit.
#[derive(Debug, Default)]
pub(super) struct H264 {
    unit: Gathered,
    sets: ParameterSets,
    /// Where in the unit the NAL unit begins of which more fragments are to come.
    fragmented: Option<usize>,
    picture: Option<Slice>,
}

/// What the first slice says of its picture.
#[derive(Clone, Copy, Debug)]
struct Slice {
    is_idr: bool,
    /// Its first macroblock is the picture's, and its parameter sets are known.
    is_decodable: bool,
}

impl H264 {
    /// `parameter_sets` are NAL units from the session description.
    pub(super) fn new(parameter_sets: &[Vec<u8>]) -> H264 {
        let mut sets = ParameterSets::default();
        for set in parameter_sets {
            if let Some(name) = name(set) {
                sets.note(name, set, false);
            }
        }
        H264 { sets, ..H264::default() }
    }

    fn nal_unit(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let start = self.begin_nal()?;
        self.unit.extend(bytes)?;
        self.end_nal(start);
        Ok(())
    }

    fn begin_nal(&mut self) -> Result<usize, Refusal> {
        self.unit.extend(&START_CODE)?;
        Ok(self.unit.len())
    }

    fn end_nal(&mut self, start: usize) {
        let nal = self.unit.since(start);
        match kind(nal) {
            nal::SPS | nal::PPS => {
                if let Some(name) = name(nal) {
                    self.sets.note(name, nal, true);
                }
            }
            kind @ (nal::SLICE | nal::PARTITION_A | nal::IDR) if self.picture.is_none() => {
                self.picture = Some(Slice {
                    is_idr: kind == nal::IDR,
                    is_decodable: slice_set(nal)
                        .is_some_and(|id| self.sets.are_complete(id, Kind::Sequence)),
                });
            }
            _ => {}
        }
    }

    fn fragment(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        let &[indicator, header, ref rest @ ..] = payload else { return Err(Refusal::Malformed) };
        let (starts, ends, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & 0x1f);
        let start = match (starts, self.fragmented) {
            (true, None) if (1..=nal::LAST_PLAIN).contains(&kind) => {
                let start = self.begin_nal()?;
                self.unit.extend(&[indicator & 0xe0 | kind])?;
                start
            }
            (false, Some(start)) if self.unit.since(start)[0] & 0x1f == kind => start,
            _ => return Err(Refusal::Malformed),
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

impl Depacketizer for H264 {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        // Nothing but a delimiter precedes a sequence parameter set in its unit (7.4.1.2.3).
        first(payload).is_some_and(|nal| matches!(kind(nal), nal::DELIMITER | nal::SPS))
    }

    fn begins_start(&self, payload: &[u8]) -> bool {
        let is_set = |nal: &[u8]| kind(nal) == nal::SPS;
        self.begins_unit(payload)
            && match kind(payload) {
                nal::STAP_A => Aggregated(&payload[1..]).flatten().any(is_set),
                _ => is_set(payload),
            }
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        // The forbidden bit says that the payload is damaged (RFC 6184 1.3).
        if payload.first().is_some_and(|header| header & 0x80 != 0) {
            return Err(Refusal::Malformed);
        }
        let kind = kind(payload);
        if self.fragmented.is_some() && kind != nal::FU_A {
            return Err(Refusal::Malformed);
        }
        match kind {
            1..=nal::LAST_PLAIN => self.nal_unit(payload),
            nal::STAP_A => Aggregated(&payload[1..]).try_for_each(|nal| self.nal_unit(nal?)),
            nal::FU_A => self.fragment(payload),
            // STAP-B, MTAP and FU-B belong to the interleaved mode, which is not agreed to.
            25..=nal::FU_B => Err(Refusal::Malformed),
            // Types without a meaning are ignored (RFC 6184 5.2).
            _ => Ok(()),
        }
    }

    fn has_picture(&self) -> bool {
        self.picture.is_some() || self.fragmented.is_some()
    }

    fn finish(&mut self) -> Finished {
        if self.fragmented.is_some() {
            return Err(Refusal::Malformed);
        }
        let Some(slice) = self.picture else { return Ok(None) };
        let role = match slice {
            Slice { is_idr: true, is_decodable: true } => Role::Start { breaks_link: false },
            _ => Role::Other,
        };
        let lacking = if slice.is_idr { self.sets.lacking() } else { Vec::new() };
        let data = self.unit.take_after(&lacking)?;
        Ok(Some(Picture { data, role }))
    }

    fn reset(&mut self) {
        self.unit.clear();
        self.sets.begin_unit();
        self.fragmented = None;
        self.picture = None;
    }
}

/// The NAL units of an aggregation packet, each after its size; also those of H.265.
pub(super) struct Aggregated<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Aggregated<'a> {
    type Item = Result<&'a [u8], Refusal>;

    fn next(&mut self) -> Option<Result<&'a [u8], Refusal>> {
        if self.0.is_empty() {
            return None;
        }
        let Some((size, rest)) = self.0.split_first_chunk::<2>() else {
            self.0 = &[];
            return Some(Err(Refusal::Malformed));
        };
        let size = usize::from(u16::from_be_bytes(*size));
        match rest.split_at_checked(size).filter(|_| size > 0) {
            Some((nal, rest)) => {
                self.0 = rest;
                Some(Ok(nal))
            }
            None => {
                self.0 = &[];
                Some(Err(Refusal::Malformed))
            }
        }
    }
}

fn kind(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |header| header & 0x1f)
}

/// The first NAL unit that begins with this payload, as far as it is there.
fn first(payload: &[u8]) -> Option<&[u8]> {
    match kind(payload) {
        nal::STAP_A => Aggregated(&payload[1..]).next()?.ok(),
        // A delimiter or a set is never so long that it is cut.
        nal::FU_A => None,
        _ => Some(payload),
    }
}

/// 7.3.2.1.1 and 7.3.2.2.
fn name(nal: &[u8]) -> Option<Name> {
    let body = nal.get(1..)?;
    match kind(nal) {
        nal::SPS => {
            let mut bits = Bits::new(body);
            // profile_idc, constraint flags, level_idc
            bits.skip(24)?;
            Some(Name { kind: Kind::Sequence, id: bits.ue()?, refers_to: 0 })
        }
        nal::PPS => {
            let mut bits = Bits::new(body);
            Some(Name { kind: Kind::Picture, id: bits.ue()?, refers_to: bits.ue()? })
        }
        _ => None,
    }
}

/// The picture parameter set of a slice that begins its picture (7.3.3).
fn slice_set(nal: &[u8]) -> Option<u32> {
    let mut bits = Bits::new(nal.get(1..)?);
    let (first_macroblock, _slice_type) = (bits.ue()?, bits.ue()?);
    bits.ue().filter(|_| first_macroblock == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Identifier 0 each; the slice is the first of its picture and refers to set 0.
    const SPS: [u8; 5] = [0x67, 66, 0, 30, 0x80];
    const PPS: [u8; 2] = [0x68, 0xc0];
    const IDR: [u8; 3] = [0x65, 0b1011_1000, 9];
    const INTER: [u8; 3] = [0x41, 0b1011_1000, 9];

    fn stap(nals: &[&[u8]]) -> Vec<u8> {
        let mut payload = vec![0x78];
        for nal in nals {
            payload.extend((nal.len() as u16).to_be_bytes());
            payload.extend_from_slice(nal);
        }
        payload
    }

    fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&START_CODE, *nal].concat()).collect()
    }

    fn unit(depacketizer: &mut H264, payloads: &[Vec<u8>]) -> Finished {
        depacketizer.reset();
        payloads.iter().try_for_each(|payload| depacketizer.push(payload))?;
        depacketizer.finish()
    }

    fn given(nals: &[&[u8]], role: Role) -> Finished {
        Ok(Some(Picture { data: annex_b(nals), role }))
    }

    const START: Role = Role::Start { breaks_link: false };

    #[test]
    fn every_packet_type_becomes_annex_b_or_is_refused() {
        let whole = [&SPS[..], &PPS, &IDR];
        let cases: [(&str, Vec<Vec<u8>>, Finished); 17] = [
            ("single", vec![SPS.into(), PPS.into(), IDR.into()], given(&whole, START)),
            ("aggregated", vec![stap(&[&SPS, &PPS]), IDR.into()], given(&whole, START)),
            (
                "fragmented",
                vec![
                    stap(&[&SPS, &PPS]),
                    vec![0x7c, 0x85, IDR[1]],
                    vec![0x7c, 0x05],
                    vec![0x7c, 0x45, IDR[2]],
                ],
                given(&whole, START),
            ),
            (
                "one fragment",
                vec![stap(&[&SPS, &PPS]), vec![0x7c, 0xc5, IDR[1], IDR[2]]],
                given(&whole, START),
            ),
            ("without sets", vec![IDR.into()], given(&[&IDR], Role::Other)),
            ("one set of two", vec![SPS.into(), IDR.into()], given(&[&SPS, &IDR], Role::Other)),
            (
                "without the first slice",
                vec![SPS.into(), PPS.into(), vec![0x65, 0b0101_1000]],
                given(&[&SPS, &PPS, &[0x65, 0b0101_1000]], Role::Other),
            ),
            ("inter", vec![INTER.into()], given(&[&INTER], Role::Other)),
            ("sets alone", vec![stap(&[&SPS, &PPS])], Ok(None)),
            ("a type to come", vec![vec![30, 1], INTER.into()], given(&[&INTER], Role::Other)),
            ("no end", vec![vec![0x7c, 0x85, 1]], Err(Refusal::Malformed)),
            ("no beginning", vec![vec![0x7c, 0x45, 1]], Err(Refusal::Malformed)),
            (
                "two beginnings",
                vec![vec![0x7c, 0x85, 1], vec![0x7c, 0x85, 1]],
                Err(Refusal::Malformed),
            ),
            ("cut by another", vec![vec![0x7c, 0x85, 1], IDR.into()], Err(Refusal::Malformed)),
            ("interleaved", vec![vec![25, 0, 0, 1]], Err(Refusal::Malformed)),
            ("damaged", vec![vec![0xe5, 0x88]], Err(Refusal::Malformed)),
            ("a size past the end", vec![vec![0x78, 0, 9, 0x65]], Err(Refusal::Malformed)),
        ];
        for (name, payloads, expected) in cases {
            assert_eq!(unit(&mut H264::default(), &payloads), expected, "{name}");
        }
    }

    #[test]
    fn a_start_is_given_the_sets_that_it_lacks() {
        let mut described = H264::new(&[SPS.into(), PPS.into(), vec![], vec![0xff]]);
        let whole = given(&[&SPS, &PPS, &IDR], START);
        assert_eq!(unit(&mut described, &[IDR.into()]), whole, "from the description");
        let other = [0x67, 66, 0, 31, 0x80];
        let renewed = given(&[&PPS, &other, &IDR], START);
        assert_eq!(unit(&mut described, &[other.into(), IDR.into()]), renewed, "one of its own");
        let kept = given(&[&other, &PPS, &IDR], START);
        assert_eq!(unit(&mut described, &[IDR.into()]), kept, "from an earlier unit");
        assert_eq!(unit(&mut described, &[INTER.into()]), given(&[&INTER], Role::Other));
    }

    #[test]
    fn beginnings_are_told_without_what_came_before() {
        let depacketizer = H264::default();
        let cases: [(&str, Vec<u8>, bool, bool); 7] = [
            ("delimiter", vec![0x09, 0xf0], true, false),
            ("delimiter and sets", stap(&[&[0x09, 0xf0], &SPS, &PPS]), true, true),
            ("sequence set", SPS.into(), true, true),
            ("aggregated set", stap(&[&SPS, &PPS]), true, true),
            ("picture set", PPS.into(), false, false),
            ("fragment", vec![0x7c, 0x85, 1], false, false),
            ("nothing", vec![], false, false),
        ];
        for (name, payload, begins_unit, begins_start) in cases {
            assert_eq!(depacketizer.begins_unit(&payload), begins_unit, "{name}");
            assert_eq!(depacketizer.begins_start(&payload), begins_start, "{name}");
        }
    }
}
