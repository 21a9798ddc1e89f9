//! H.265 (RFC 7798): single NAL units, aggregation packets and fragmentation units to Annex B.
//!
//! Refuses PACI packets. Only the base layer is kept; layers above it are not decoded.

use super::{
    Depacketizer, Finished, Gathered, Picture, Refusal, Role,
    bits::Bits,
    h264::Aggregated,
    sets::{Kind, Name, ParameterSets},
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
    pub const AGGREGATION: u8 = 48;
    pub const FRAGMENT: u8 = 49;
    pub const PACI: u8 = 50;
}

const START_CODE: [u8; 4] = [0, 0, 0, 1];

/// Gathers one access unit.
#[derive(Debug, Default)]
pub(super) struct H265 {
    unit: Gathered,
    sets: ParameterSets,
    fragmented: Option<Fragmented>,
    picture: Option<Slice>,
}

/// A NAL unit of which more fragments are to come.
#[derive(Clone, Copy, Debug)]
enum Fragmented {
    /// It begins here in the unit.
    Kept(usize),
    /// It belongs to a layer that is not decoded.
    Skipped,
}

/// What the first slice says of its picture.
#[derive(Clone, Copy, Debug)]
struct Slice {
    kind: u8,
    /// It is the picture's first, and its parameter sets are known.
    is_decodable: bool,
}

impl H265 {
    /// `parameter_sets` are NAL units from the session description.
    pub(super) fn new(parameter_sets: &[Vec<u8>]) -> H265 {
        let mut sets = ParameterSets::default();
        for set in parameter_sets {
            if let Some(name) = name(set) {
                sets.note(name, set, false);
            }
        }
        H265 { sets, ..H265::default() }
    }

    fn nal_unit(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let [first, second, ..] = *bytes else { return Err(Refusal::Malformed) };
        if layer(first, second) != 0 {
            return Ok(());
        }
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
            nal::VPS..=nal::PPS => {
                if let Some(name) = name(nal) {
                    self.sets.note(name, nal, true);
                }
            }
            kind @ 0..=nal::LAST_SLICE if self.picture.is_none() => {
                let is_decodable =
                    slice_set(nal).is_some_and(|id| self.sets.are_complete(id, Kind::Video));
                self.picture = Some(Slice { kind, is_decodable });
            }
            _ => {}
        }
    }

    fn fragment(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        let &[first, second, header, ref rest @ ..] = payload else {
            return Err(Refusal::Malformed);
        };
        let (starts, ends, kind) = (header & 0x80 != 0, header & 0x40 != 0, header & 0x3f);
        let at = match (starts, self.fragmented) {
            (true, None) if kind < nal::AGGREGATION => {
                if layer(first, second) == 0 {
                    let start = self.begin_nal()?;
                    self.unit.extend(&[first & 0x81 | kind << 1, second])?;
                    Fragmented::Kept(start)
                } else {
                    Fragmented::Skipped
                }
            }
            (false, Some(at)) => at,
            _ => return Err(Refusal::Malformed),
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

impl Depacketizer for H265 {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        // Nothing but a delimiter precedes a video parameter set in its unit (7.4.2.4.4).
        first(payload).is_some_and(|nal| matches!(kind(nal), nal::DELIMITER | nal::VPS))
    }

    fn begins_start(&self, payload: &[u8]) -> bool {
        let is_set = |nal: &[u8]| kind(nal) == nal::VPS;
        self.begins_unit(payload)
            && match kind(payload) {
                nal::AGGREGATION => Aggregated(&payload[2..]).flatten().any(is_set),
                _ => is_set(payload),
            }
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Refusal> {
        // The forbidden bit says that the payload is damaged (RFC 7798 1.1.4).
        if payload.len() < 2 || payload[0] & 0x80 != 0 {
            return Err(Refusal::Malformed);
        }
        let kind = kind(payload);
        if self.fragmented.is_some() && kind != nal::FRAGMENT {
            return Err(Refusal::Malformed);
        }
        match kind {
            0..nal::AGGREGATION => self.nal_unit(payload),
            nal::AGGREGATION => Aggregated(&payload[2..]).try_for_each(|nal| self.nal_unit(nal?)),
            nal::FRAGMENT => self.fragment(payload),
            nal::PACI => Err(Refusal::Malformed),
            // Types without a meaning are ignored.
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
        let is_intra = (nal::BLA_FIRST..=nal::CRA).contains(&slice.kind);
        let role = match slice.kind {
            kind if is_intra && slice.is_decodable => {
                Role::Start { breaks_link: kind <= nal::BLA_LAST }
            }
            nal::RASL_N | nal::RASL_R => Role::Leading,
            _ => Role::Other,
        };
        let lacking = if is_intra { self.sets.lacking() } else { Vec::new() };
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

fn kind(nal: &[u8]) -> u8 {
    nal.first().map_or(0, |header| header >> 1 & 0x3f)
}

fn layer(first: u8, second: u8) -> u8 {
    (first & 1) << 5 | second >> 3
}

/// The first NAL unit that begins with this payload, as far as it is there.
fn first(payload: &[u8]) -> Option<&[u8]> {
    match kind(payload) {
        nal::AGGREGATION => Aggregated(payload.get(2..)?).next()?.ok(),
        nal::FRAGMENT => None,
        _ => Some(payload).filter(|payload| !payload.is_empty()),
    }
}

/// 7.3.2.1, 7.3.2.2 and 7.3.2.3.
fn name(nal: &[u8]) -> Option<Name> {
    let mut bits = Bits::new(nal.get(2..)?);
    match kind(nal) {
        nal::VPS => Some(Name { kind: Kind::Video, id: bits.take(4)?, refers_to: 0 }),
        nal::SPS => {
            let refers_to = bits.take(4)?;
            let sub_layers = bits.take(3)?;
            bits.skip(1)?;
            skip_profiles(&mut bits, sub_layers)?;
            Some(Name { kind: Kind::Sequence, id: bits.ue()?, refers_to })
        }
        nal::PPS => Some(Name { kind: Kind::Picture, id: bits.ue()?, refers_to: bits.ue()? }),
        _ => None,
    }
}

/// profile_tier_level, 7.3.3, with `sub_layers` sub-layers below the highest.
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

/// The picture parameter set of a slice that begins its picture (7.3.6.1).
fn slice_set(nal: &[u8]) -> Option<u32> {
    let mut bits = Bits::new(nal.get(2..)?);
    let is_first = bits.take(1)? == 1;
    // no_output_of_prior_pics_flag
    if kind(nal) >= nal::BLA_FIRST {
        bits.skip(1)?;
    }
    bits.ue().filter(|_| is_first)
}

#[cfg(test)]
mod tests {
    use super::*;

    const VPS: [u8; 3] = [0x40, 1, 0x0c];
    const PPS: [u8; 3] = [0x44, 1, 0xc0];
    const CRA: [u8; 4] = [0x2a, 1, 0xa0, 9];
    const IDR: [u8; 4] = [0x26, 1, 0xa0, 9];
    const BLA: [u8; 4] = [0x20, 1, 0xa0, 9];
    const RASL: [u8; 4] = [0x10, 1, 0xe0, 9];
    const TRAIL: [u8; 4] = [0x02, 1, 0xe0, 9];
    const ABOVE: [u8; 4] = [0x02, 0x09, 0xe0, 9];

    fn sps() -> Vec<u8> {
        [&[0x42, 1, 0x01][..], &[0; 12], &[0x80]].concat()
    }

    fn aggregation(nals: &[&[u8]]) -> Vec<u8> {
        let mut payload = vec![0x60, 1];
        for nal in nals {
            payload.extend((nal.len() as u16).to_be_bytes());
            payload.extend_from_slice(nal);
        }
        payload
    }

    fn annex_b(nals: &[&[u8]]) -> Vec<u8> {
        nals.iter().flat_map(|nal| [&START_CODE, *nal].concat()).collect()
    }

    fn unit(depacketizer: &mut H265, payloads: &[Vec<u8>]) -> Finished {
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
        let sps = sps();
        let sets = aggregation(&[&VPS, &sps, &PPS]);
        let with = |nal: &'static [u8]| [&VPS[..], &sps, &PPS, nal].map(<[u8]>::to_vec).to_vec();
        let whole = |nal: &'static [u8], role| given(&[&VPS, &sps, &PPS, nal], role);
        let cases: [(&str, Vec<Vec<u8>>, Finished); 18] = [
            ("IDR", with(&IDR), whole(&IDR, START)),
            ("CRA", with(&CRA), whole(&CRA, START)),
            ("BLA", with(&BLA), whole(&BLA, Role::Start { breaks_link: true })),
            ("aggregated", vec![sets.clone(), IDR.into()], whole(&IDR, START)),
            (
                "fragmented",
                vec![
                    sets.clone(),
                    vec![0x62, 1, 0x93, IDR[2]],
                    vec![0x62, 1, 0x13],
                    vec![0x62, 1, 0x53, IDR[3]],
                ],
                whole(&IDR, START),
            ),
            ("without sets", vec![IDR.into()], given(&[&IDR], Role::Other)),
            (
                "without the video set",
                vec![sps.clone(), PPS.into(), IDR.into()],
                given(&[&sps, &PPS, &IDR], Role::Other),
            ),
            ("RASL", vec![RASL.into()], given(&[&RASL], Role::Leading)),
            ("inter", vec![TRAIL.into()], given(&[&TRAIL], Role::Other)),
            ("a layer above", vec![TRAIL.into(), ABOVE.into()], given(&[&TRAIL], Role::Other)),
            (
                "a fragmented layer above",
                vec![TRAIL.into(), vec![0x62, 9, 0x81, 1], vec![0x62, 9, 0x41, 1]],
                given(&[&TRAIL], Role::Other),
            ),
            ("sets alone", vec![sets.clone()], Ok(None)),
            ("no end", vec![vec![0x62, 1, 0x93, 1]], Err(Refusal::Malformed)),
            ("no beginning", vec![vec![0x62, 1, 0x53, 1]], Err(Refusal::Malformed)),
            ("cut by another", vec![vec![0x62, 1, 0x93, 1], TRAIL.into()], Err(Refusal::Malformed)),
            ("PACI", vec![vec![0x64, 1, 0, 0]], Err(Refusal::Malformed)),
            ("one byte", vec![vec![0x26]], Err(Refusal::Malformed)),
            ("an empty unit", vec![vec![0x60, 1, 0, 0]], Err(Refusal::Malformed)),
        ];
        for (name, payloads, expected) in cases {
            assert_eq!(unit(&mut H265::default(), &payloads), expected, "{name}");
        }
    }

    #[test]
    fn a_start_is_given_the_sets_that_it_lacks() {
        let sps = sps();
        let mut described = H265::new(&[VPS.into(), sps.clone(), PPS.into()]);
        let whole = given(&[&VPS, &sps, &PPS, &CRA], START);
        assert_eq!(unit(&mut described, &[CRA.into()]), whole);
        assert!(described.begins_start(&VPS) && !described.begins_start(&sps));
        assert!(described.begins_unit(&[0x46, 1, 0x10]));
    }

    #[test]
    fn sub_layers_of_a_sequence_set_are_passed_over() {
        // One sub-layer with a level: 16 flag bits, then 8 bits.
        let set = [&[0x42, 1, 0x03][..], &[0; 12], &[0x40, 0], &[0x5d], &[0b0110_0000]].concat();
        let expected = Name { kind: Kind::Sequence, id: 2, refers_to: 0 };
        assert_eq!(name(&set), Some(expected));
    }
}
