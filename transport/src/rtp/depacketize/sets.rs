//! Parameter sets of H.264 and H.265, from the session description and from the stream.
//!
//! Kept by identifier, so that a start which comes without its sets can be given them.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Most sets kept; a stream with more carries them with each start.
const SETS_MAX: usize = 64;
/// Largest set kept.
const SET_BYTES_MAX: usize = 4 << 10;
/// Most bytes of a description's sets.
const DESCRIBED_BYTES_MAX: usize = 16 << 10;

/// Which kind, in the order in which a decoder wants them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Video,
    Sequence,
    Picture,
}

/// What a set is called and which set it builds on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) kind: Kind,
    pub(super) id: u32,
    /// Identifier of the set of the kind before that this one refers to.
    pub(super) refers_to: u32,
}

#[derive(Debug)]
struct Set {
    name: Name,
    bytes: Vec<u8>,
    /// It came within the unit being gathered.
    is_in_unit: bool,
}

/// The latest set of each kind and identifier.
#[derive(Debug, Default)]
pub(super) struct ParameterSets {
    sets: Vec<Set>,
}

impl ParameterSets {
    /// A new unit is gathered.
    pub(super) fn begin_unit(&mut self) {
        self.sets.iter_mut().for_each(|set| set.is_in_unit = false);
    }

    /// The NAL unit `bytes` is the set `name`.
    pub(super) fn note(&mut self, name: Name, bytes: &[u8], is_in_unit: bool) {
        if bytes.len() > SET_BYTES_MAX {
            return;
        }
        let known = |set: &Set| (set.name.kind, set.name.id) == (name.kind, name.id);
        let mut kept = match self.sets.iter().position(known) {
            Some(at) => self.sets.remove(at),
            None if self.sets.len() == SETS_MAX => self.sets.remove(0),
            None => Set { name, bytes: Vec::new(), is_in_unit },
        };
        kept.bytes.clear();
        kept.bytes.extend_from_slice(bytes);
        (kept.name, kept.is_in_unit) = (name, is_in_unit);
        self.sets.push(kept);
    }

    fn find(&self, kind: Kind, id: u32) -> Option<&Set> {
        self.sets.iter().find(|set| (set.name.kind, set.name.id) == (kind, id))
    }

    /// What a picture with this picture parameter set needs, down to the set of kind `root`, is
    /// known.
    pub(super) fn are_complete(&self, picture_id: u32, root: Kind) -> bool {
        let sequence = self
            .find(Kind::Picture, picture_id)
            .and_then(|set| self.find(Kind::Sequence, set.name.refers_to));
        match root {
            Kind::Video => {
                sequence.is_some_and(|set| self.find(Kind::Video, set.name.refers_to).is_some())
            }
            _ => sequence.is_some(),
        }
    }

    /// The sets that the unit lacks, each after a start code; empty when it lacks none.
    pub(super) fn lacking(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for kind in [Kind::Video, Kind::Sequence, Kind::Picture] {
            for set in self.sets.iter().filter(|set| set.name.kind == kind && !set.is_in_unit) {
                bytes.extend_from_slice(&[0, 0, 0, 1]);
                bytes.extend_from_slice(&set.bytes);
            }
        }
        bytes
    }
}

/// The NAL units in the format parameters of a payload type: `sprop-parameter-sets`
/// (RFC 6184 8.1), `sprop-vps`, `sprop-sps` and `sprop-pps` (RFC 7798 7.1).
///
/// What is no base64 is passed over: the sets may come within the stream.
pub fn parameter_sets(fmtp: &str) -> Vec<Vec<u8>> {
    const NAMES: [&str; 4] = ["sprop-parameter-sets", "sprop-vps", "sprop-sps", "sprop-pps"];
    let mut found = Vec::new();
    if fmtp.len() > DESCRIBED_BYTES_MAX {
        return found;
    }
    for parameter in fmtp.split(';') {
        let Some((name, value)) = parameter.trim().split_once('=') else { continue };
        if NAMES.iter().any(|known| known.eq_ignore_ascii_case(name.trim())) {
            let sets = value.split(',').filter_map(|set| STANDARD.decode(set.trim()).ok());
            found.extend(sets.filter(|set| !set.is_empty()));
        }
    }
    found.truncate(SETS_MAX);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(kind: Kind, id: u32, refers_to: u32) -> Name {
        Name { kind, id, refers_to }
    }

    #[test]
    fn a_description_gives_the_sets_it_has() {
        let cases: [(&str, &str, &[&[u8]]); 6] = [
            (
                "h264",
                "profile-level-id=42e01f;sprop-parameter-sets=Z0I=,aM4=; packetization-mode=1",
                &[&[0x67, 0x42], &[0x68, 0xce]],
            ),
            (
                "h265",
                "sprop-vps=QAE=; sprop-sps=QgE=;SPROP-PPS=RAE=",
                &[&[0x40, 1], &[0x42, 1], &[0x44, 1]],
            ),
            ("none", "packetization-mode=1", &[]),
            ("no base64", "sprop-parameter-sets=!!,aM4=", &[&[0x68, 0xce]]),
            ("empty", "sprop-parameter-sets=,", &[]),
            ("nothing", "", &[]),
        ];
        for (case, fmtp, expected) in cases {
            assert_eq!(parameter_sets(fmtp), expected, "{case}");
        }
        assert_eq!(parameter_sets(&"x".repeat(DESCRIBED_BYTES_MAX + 1)), Vec::<Vec<u8>>::new());
    }

    #[test]
    fn a_unit_is_given_the_latest_of_what_it_lacks() {
        let mut sets = ParameterSets::default();
        sets.note(name(Kind::Picture, 0, 3), &[0x68, 1], false);
        assert!(!sets.are_complete(0, Kind::Sequence), "its sequence set is unknown");
        sets.note(name(Kind::Sequence, 3, 0), &[0x67, 1], true);
        assert!(sets.are_complete(0, Kind::Sequence));
        assert!(!sets.are_complete(0, Kind::Video) && !sets.are_complete(1, Kind::Sequence));
        assert_eq!(sets.lacking(), [0, 0, 0, 1, 0x68, 1]);
        sets.begin_unit();
        sets.note(name(Kind::Sequence, 3, 0), &[0x67, 2], false);
        assert_eq!(sets.lacking(), [0, 0, 0, 1, 0x67, 2, 0, 0, 0, 1, 0x68, 1]);
    }

    #[test]
    fn no_more_is_kept_than_the_bounds_allow() {
        let mut sets = ParameterSets::default();
        for id in 0..1000 {
            sets.note(name(Kind::Picture, id, 0), &[0x68; 100], false);
        }
        assert_eq!(sets.sets.len(), SETS_MAX);
        sets.note(name(Kind::Picture, 5000, 0), &[0; SET_BYTES_MAX + 1], false);
        assert!(sets.find(Kind::Picture, 5000).is_none());
        assert!(sets.find(Kind::Picture, 999).is_some(), "the latest stay");
    }
}
