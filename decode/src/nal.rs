//! NAL units of H.264 and H.265, with start codes or lengths, and their parameter sets.

/// Framing of NAL units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// Start code 00 00 01 before each unit (Annex B).
    StartCodes,
    /// Big-endian length of this many bytes before each unit (ISO 14496-15).
    Lengths(u8),
}

impl Framing {
    /// Appends a unit to `out`, framed.
    pub(crate) fn push(self, unit: &[u8], out: &mut Vec<u8>) {
        match self {
            Framing::StartCodes => out.extend([0, 0, 0, 1]),
            Framing::Lengths(size) => {
                let length = (unit.len() as u64).to_be_bytes();
                out.extend(&length[length.len() - usize::from(size)..]);
            }
        }
        out.extend_from_slice(unit);
    }
}

/// NAL unit; with start codes, its end is searched for on demand.
#[derive(Clone, Copy)]
pub(crate) struct NalUnit<'a> {
    /// Bytes from the header on.
    tail: &'a [u8],
    ends: bool,
}

impl<'a> NalUnit<'a> {
    /// Returns header byte `index`; 0 past the end.
    pub(crate) fn header(&self, index: usize) -> u8 {
        self.tail.get(index).copied().unwrap_or(0)
    }

    /// Returns the unit without trailing zero bytes.
    pub(crate) fn bytes(&self) -> &'a [u8] {
        let end = match next_start_code(self.tail) {
            Some(at) if !self.ends => at,
            _ => self.tail.len(),
        };
        let used = self.tail[..end].iter().rposition(|&byte| byte != 0).map_or(0, |at| at + 1);
        &self.tail[..used]
    }
}

/// Iterator over the units of one packet; stops at the first that exceeds it.
pub(crate) struct NalUnits<'a> {
    /// Bytes after the last unit.
    pub(crate) rest: &'a [u8],
    framing: Framing,
}

impl<'a> NalUnits<'a> {
    pub(crate) fn new(data: &'a [u8], framing: Framing) -> NalUnits<'a> {
        NalUnits { rest: data, framing }
    }
}

impl<'a> Iterator for NalUnits<'a> {
    type Item = NalUnit<'a>;

    fn next(&mut self) -> Option<NalUnit<'a>> {
        match self.framing {
            Framing::StartCodes => {
                let at = next_start_code(self.rest)?;
                self.rest = &self.rest[at + 3..];
                Some(NalUnit { tail: self.rest, ends: false })
            }
            Framing::Lengths(size) => {
                let (prefix, rest) = self.rest.split_at_checked(usize::from(size))?;
                let length = prefix.iter().fold(0usize, |sum, &byte| sum << 8 | usize::from(byte));
                let (tail, rest) = rest.split_at_checked(length)?;
                self.rest = rest;
                Some(NalUnit { tail, ends: true })
            }
        }
    }
}

/// Returns the NAL units of an access unit in Annex B form, without start codes and trailing zeros.
pub fn annex_b_units(unit: &[u8]) -> impl Iterator<Item = &[u8]> {
    NalUnits::new(unit, Framing::StartCodes).map(|nal| nal.bytes())
}

fn next_start_code(data: &[u8]) -> Option<usize> {
    let mut at = 0;
    while at + 2 < data.len() {
        match data[at + 2] {
            1 if data[at] == 0 && data[at + 1] == 0 => return Some(at),
            0 => at += 1,
            _ => at += 3,
        }
    }
    None
}

/// Most distinct parameter sets remembered; a stream with more is never cut.
const SETS_MAX: usize = 64;
/// Most bytes of the remembered parameter sets.
const SETS_BYTES_MAX: usize = 64 << 10;

/// Distinct in-band parameter sets, ordered by last appearance.
///
/// A new decoder that gets them in this order reaches the state of one that saw the whole stream: sets with
/// one id replace each other, whatever the id.
#[derive(Default)]
pub(crate) struct ParameterSetCache {
    sets: Vec<Box<[u8]>>,
    /// True if there were too many sets to remember.
    pub(crate) overflowed: bool,
}

impl ParameterSetCache {
    pub(crate) fn note(&mut self, set: &[u8]) {
        if self.overflowed {
            return;
        }
        match self.sets.iter().position(|known| **known == *set) {
            Some(known) => self.sets[known..].rotate_left(1),
            None => self.sets.push(set.into()),
        }
        let bytes: usize = self.sets.iter().map(|set| set.len()).sum();
        if self.sets.len() > SETS_MAX || bytes > SETS_BYTES_MAX {
            *self = ParameterSetCache { sets: Vec::new(), overflowed: true };
        }
    }

    /// Returns all but the last `own` sets, framed: the sets that a packet with `own` sets still needs.
    pub(crate) fn framed_before(&self, own: usize, framing: Framing) -> Option<Box<[u8]>> {
        let needed = &self.sets[..self.sets.len().saturating_sub(own)];
        if needed.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        needed.iter().for_each(|set| framing.push(set, &mut bytes));
        Some(bytes.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_found_in_both_framings() {
        let starts = [0, 0, 0, 1, 0x67, 1, 2, 0, 0, 1, 0x68, 3, 0, 0, 0, 1, 0x65, 9, 0];
        let lengths = [0, 3, 0x67, 1, 2, 0, 2, 0x68, 3, 0, 2, 0x65, 9, 0, 9, 1];
        let expected: [&[u8]; 3] = [&[0x67, 1, 2], &[0x68, 3], &[0x65, 9]];
        for (data, framing) in
            [(&starts[..], Framing::StartCodes), (&lengths[..], Framing::Lengths(2))]
        {
            let found: Vec<&[u8]> = NalUnits::new(data, framing).map(|nal| nal.bytes()).collect();
            assert_eq!(found, expected, "{framing:?}");
        }
    }

    #[test]
    fn sets_replay_in_the_order_of_their_last_appearance() {
        let mut sets = ParameterSetCache::default();
        for set in [&[0x67, 1][..], &[0x68, 1], &[0x67, 2], &[0x68, 1]] {
            sets.note(set);
        }
        let framed = sets.framed_before(0, Framing::Lengths(1));
        assert_eq!(framed.as_deref(), Some(&[2, 0x67, 1, 2, 0x67, 2, 2, 0x68, 1][..]));
        assert_eq!(
            sets.framed_before(1, Framing::StartCodes).as_deref(),
            Some(&[0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x67, 2][..])
        );
        assert_eq!(sets.framed_before(3, Framing::StartCodes), None);
    }

    #[test]
    fn too_many_sets_are_forgotten_and_said_so() {
        let mut sets = ParameterSetCache::default();
        (0..=SETS_MAX as u8).for_each(|id| sets.note(&[id]));
        assert!(sets.overflowed);
    }
}
