//! Parameter sets of H.264 and H.265, from the session description and from the stream.
//!
//! Stores sets by identifier, so that a start without its sets can be completed.

use base64::{Engine as _, engine::general_purpose::STANDARD};

use super::START_CODE;

/// Most sets stored; a stream with more must carry them with each start.
const SETS_MAX: usize = 64;
const SET_BYTES_MAX: usize = 4 << 10;
/// Most bytes of sets added to a start that does not use them: some hundred of usual size. Adding all stored
/// sets would inflate a few bytes to a megabyte a second.
const OTHERS_BYTES_MAX: usize = 4 << 10;
/// Most bytes of parameter sets in a session description.
const DESCRIBED_BYTES_MAX: usize = 16 << 10;

/// Kind of parameter set, in the order required by decoders.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum ParameterSetKind {
    Video,
    Sequence,
    Picture,
}

/// Identity of a set, and the set that it refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ParameterSetId {
    pub(super) kind: ParameterSetKind,
    pub(super) id: u32,
    /// Id of the set of the preceding kind; `None` for the first kind of a codec.
    pub(super) refers_to: Option<u32>,
}

#[derive(Debug)]
struct Set {
    name: ParameterSetId,
    bytes: Vec<u8>,
    /// True if the set arrived within the current unit.
    is_in_unit: bool,
}

/// Latest set of each kind and identifier.
#[derive(Debug, Default)]
pub(super) struct ParameterSets {
    sets: Vec<Set>,
}

impl ParameterSets {
    pub(super) fn begin_unit(&mut self) {
        self.sets.iter_mut().for_each(|set| set.is_in_unit = false);
    }

    /// Stores the sets of a session description; `name` parses the identity of a NAL unit.
    pub(super) fn described(
        units: &[Vec<u8>],
        name: fn(&[u8]) -> Option<ParameterSetId>,
    ) -> ParameterSets {
        let mut sets = ParameterSets::default();
        units.iter().for_each(|unit| sets.note(name(unit), unit, false));
        sets
    }

    /// Stores the NAL unit `bytes` as the set `name`; ignored without a name or if too long.
    pub(super) fn note(&mut self, name: Option<ParameterSetId>, bytes: &[u8], is_in_unit: bool) {
        let Some(name) = name.filter(|_| bytes.len() <= SET_BYTES_MAX) else { return };
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

    fn find(&self, kind: ParameterSetKind, id: u32) -> Option<&Set> {
        self.sets.iter().find(|set| (set.name.kind, set.name.id) == (kind, id))
    }

    /// Returns true if all sets of a picture with this picture parameter set are known.
    pub(super) fn are_complete(&self, picture_id: u32) -> bool {
        let picture = self.find(ParameterSetKind::Picture, picture_id);
        let sequence =
            picture.and_then(|set| self.find(ParameterSetKind::Sequence, set.name.refers_to?));
        let has_video = |id| self.find(ParameterSetKind::Video, id).is_some();
        sequence.is_some_and(|set| set.name.refers_to.is_none_or(has_video))
    }

    /// Returns the sets that a unit lacks whose slices use the picture sets `named`, each after a start code.
    /// Other picture sets of the same sequence are added, as later pictures may use them, but at most
    /// [`OTHERS_BYTES_MAX`] bytes of them.
    pub(super) fn missing_sets(&self, named: &[u32]) -> Vec<u8> {
        let pictures = named.iter().filter_map(|id| self.find(ParameterSetKind::Picture, *id));
        let sequences: Vec<u32> = pictures.filter_map(|set| set.name.refers_to).collect();
        let videos = sequences.iter().filter_map(|id| self.find(ParameterSetKind::Sequence, *id));
        let videos: Vec<u32> = videos.filter_map(|set| set.name.refers_to).collect();
        let mut others_bytes = 0;
        let mut is_wanted = |set: &&Set| match set.name.kind {
            _ if set.is_in_unit => false,
            ParameterSetKind::Video => videos.contains(&set.name.id),
            ParameterSetKind::Sequence => sequences.contains(&set.name.id),
            ParameterSetKind::Picture if named.contains(&set.name.id) => true,
            ParameterSetKind::Picture => {
                let is_beside = set.name.refers_to.is_some_and(|of| sequences.contains(&of));
                others_bytes += if is_beside { set.bytes.len() } else { 0 };
                is_beside && others_bytes <= OTHERS_BYTES_MAX
            }
        };
        let mut wanted: Vec<&Set> = self.sets.iter().filter(|set| is_wanted(set)).collect();
        wanted.sort_by_key(|set| set.name.kind);
        let mut bytes = Vec::new();
        for set in wanted {
            bytes.extend_from_slice(&START_CODE);
            bytes.extend_from_slice(&set.bytes);
        }
        bytes
    }
}

/// Adds the id of a picture set that a slice uses.
pub(super) fn note_named(named: &mut Vec<u32>, id: Option<u32>) {
    if let Some(id) = id
        && named.len() < SETS_MAX
        && !named.contains(&id)
    {
        named.push(id);
    }
}

/// Returns the NAL units in the format parameters of a payload type: `sprop-parameter-sets` (RFC 6184 8.1),
/// `sprop-vps`, `sprop-sps` and `sprop-pps` (RFC 7798 7.1).
///
/// Ignores text that is not base64, as the sets may come within the stream.
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

    fn name(kind: ParameterSetKind, id: u32, refers_to: u32) -> Option<ParameterSetId> {
        Some(ParameterSetId { kind, id, refers_to: Some(refers_to) })
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
    fn a_unit_is_given_what_it_names_and_little_else() {
        let mut sets = ParameterSets::default();
        for sequence in 0..4 {
            sets.note(
                name(ParameterSetKind::Sequence, sequence, 0),
                &[0x67, sequence as u8],
                false,
            );
        }
        for id in 0..60 {
            let bytes = [&[0x68][..], &[id as u8; 300]].concat();
            sets.note(name(ParameterSetKind::Picture, id, id % 2), &bytes, false);
        }
        let given = sets.missing_sets(&[59]);
        let mark = [0, 0, 0, 1];
        let starts: Vec<u8> = (0..given.len())
            .filter(|&at| given[at..].starts_with(&mark))
            .map(|at| given[at + 5])
            .collect();
        assert_eq!(starts[0], 1, "the sequence set of 59");
        assert!(starts.contains(&59) && starts[1..].iter().all(|id| id % 2 == 1), "{starts:?}");
        assert!(given.len() < OTHERS_BYTES_MAX + 600, "{} bytes", given.len());
    }

    #[test]
    fn no_more_is_kept_than_the_bounds_allow() {
        let mut sets = ParameterSets::default();
        for id in 0..1000 {
            sets.note(name(ParameterSetKind::Picture, id, 0), &[0x68; 100], false);
        }
        assert_eq!(sets.sets.len(), SETS_MAX);
        sets.note(name(ParameterSetKind::Picture, 5000, 0), &[0; SET_BYTES_MAX + 1], false);
        assert!(sets.find(ParameterSetKind::Picture, 5000).is_none());
        assert!(sets.find(ParameterSetKind::Picture, 999).is_some(), "the latest stay");
    }
}
