//! Coded pictures of a file in the form of a live source: in decode order, one at a time.
//!
//! H.264 and H.265 are converted to Annex B, and parameter sets precede every picture at which decoding can
//! start. The bytes of the pictures themselves are those of the file.

use std::collections::VecDeque;

use media::{AccessUnit, Codec, Timestamp};

use crate::{
    Demuxer,
    ffi::Packet,
    nal::{Framing, NalUnit, NalUnits},
    random_access::framing,
    segment::CodedPacket,
};

/// Coded picture of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CodedPicture {
    /// Coded bytes and presentation time.
    pub access_unit: AccessUnit,
    /// Decode time, at which a live source would send the picture.
    pub decode_at: Timestamp,
}

/// Coded pictures of a file's video stream, in decode order.
///
/// Ends at the end of the file or at a read error. In files without times, pictures get times of a constant
/// rate in decode order.
pub struct CodedPictures {
    demuxer: Demuxer,
    framing: Framing,
    /// Parameter sets from the container, framed like its packets.
    described: Vec<u8>,
    pending: VecDeque<CodedPacket<Packet>>,
    /// Number of pictures so far without a time.
    untimed: i64,
}

/// Frame rate of a file that declares none.
const RATE: (u32, u32) = (25, 1);

impl Demuxer {
    /// Returns the coded pictures, for sending them elsewhere.
    pub fn into_coded_pictures(self) -> CodedPictures {
        let parameters = &self.parameters;
        let codec = self.stream().codec;
        let framing = framing(codec, parameters.extradata());
        let described = described_sets(codec, framing, parameters.extradata());
        let pending = VecDeque::new();
        CodedPictures { demuxer: self, framing, described, pending, untimed: 0 }
    }
}

impl Iterator for CodedPictures {
    type Item = CodedPicture;

    fn next(&mut self) -> Option<CodedPicture> {
        loop {
            if let Some(unit) = self.pending.pop_front() {
                return Some(self.picture(&unit));
            }
            self.pending.extend(self.demuxer.next_segment()?.units);
        }
    }
}

impl CodedPictures {
    fn picture(&mut self, unit: &CodedPacket<Packet>) -> CodedPicture {
        let pts = match unit.pts.or(unit.payload.dts()) {
            Some(pts) => pts,
            None => self.next_untimed(),
        };
        let stream = self.demuxer.stream();
        let at = |ticks| Timestamp::new(ticks, stream.timebase);
        let dts = unit.payload.dts().unwrap_or(pts);
        let keyframe = unit.coded.decodes_alone;
        let data = match stream.codec {
            Codec::H264 | Codec::H265 => {
                // The nearest sets first; the container's may be the only ones of their kind.
                let earlier = [unit.coded.prelude.as_deref().unwrap_or_default(), &self.described];
                let earlier = if keyframe { &earlier[..] } else { &[] };
                annex_b(stream.codec, unit.payload.data(), earlier, self.framing)
            }
            _ => unit.payload.data().to_vec(),
        };
        let access_unit = AccessUnit { codec: stream.codec, pts: at(pts), keyframe, data };
        CodedPicture { access_unit, decode_at: at(dts) }
    }

    fn next_untimed(&mut self) -> i64 {
        let stream = self.demuxer.stream();
        let (num, den) = stream.source_rate.map_or(RATE, |rate| (rate.num(), rate.den()));
        let ticks = i128::from(self.untimed) * i128::from(den) * i128::from(stream.timebase.den())
            / (i128::from(num) * i128::from(stream.timebase.num()));
        self.untimed += 1;
        i64::try_from(ticks).unwrap_or(i64::MAX)
    }
}

/// Converts a packet to Annex B with the parameter sets of each of `earlier`, the nearest first; of these, a
/// packet that carries a sequence parameter set by then gets only the kinds that it lacks.
pub(crate) fn annex_b(codec: Codec, data: &[u8], earlier: &[&[u8]], framing: Framing) -> Vec<u8> {
    let kind = |nal: &NalUnit<'_>| SetKind::of(codec, nal.header(0));
    let mut nals: Vec<NalUnit<'_>> = NalUnits::new(data, framing).collect();
    for sets in earlier {
        let own: Vec<SetKind> = nals.iter().filter_map(&kind).collect();
        let is_whole = own.contains(&SetKind::Sequence);
        let lacks =
            |set: &NalUnit<'_>| !is_whole || kind(set).is_none_or(|kind| !own.contains(&kind));
        let prefix: Vec<NalUnit<'_>> = NalUnits::new(sets, framing).filter(lacks).collect();
        if !prefix.is_empty() {
            nals.splice(0..0, prefix);
            // A decoder refuses a set that comes before the one that it refers to.
            nals.sort_by_key(|nal| (kind(nal).is_none(), kind(nal)));
        }
    }
    let sets: usize = earlier.iter().map(|sets| sets.len()).sum();
    let mut bytes = Vec::with_capacity(sets + data.len() + 64);
    nals.iter().for_each(|nal| Framing::StartCodes.push(nal.bytes(), &mut bytes));
    bytes
}

/// Kind of a parameter set; each refers to those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum SetKind {
    Video,
    Sequence,
    Picture,
}

impl SetKind {
    /// Returns the kind of the NAL unit with this first byte (ITU-T H.264 and H.265 table 7-1).
    fn of(codec: Codec, header: u8) -> Option<SetKind> {
        match (codec, header & 0x1f, header >> 1 & 0x3f) {
            (Codec::H264, 7, _) | (Codec::H265, _, 33) => Some(SetKind::Sequence),
            (Codec::H264, 8, _) | (Codec::H265, _, 34) => Some(SetKind::Picture),
            (Codec::H265, _, 32) => Some(SetKind::Video),
            _ => None,
        }
    }
}

/// Returns the parameter sets of a decoder configuration record (ISO 14496-15 5.3.3.1 and 8.3.3.1), each
/// after its length; Annex B unchanged.
pub(crate) fn described_sets(codec: Codec, framing: Framing, extradata: &[u8]) -> Vec<u8> {
    if framing == Framing::StartCodes {
        return extradata.to_vec();
    }
    let mut sets = Vec::new();
    let found = parameter_sets(codec, extradata).unwrap_or_default();
    found.iter().for_each(|set| framing.push(set, &mut sets));
    sets
}

/// Returns the parameter sets of a decoder configuration record; `None` if one exceeds it.
pub(crate) fn parameter_sets(codec: Codec, record: &[u8]) -> Option<Vec<&[u8]>> {
    match codec {
        Codec::H264 => avc_arrays(record),
        _ => hevc_arrays(record),
    }
}

/// Reads `count` sets, each after a 16-bit length, and returns the remaining bytes.
fn sets<'a>(mut rest: &'a [u8], count: usize, found: &mut Vec<&'a [u8]>) -> Option<&'a [u8]> {
    for _ in 0..count {
        let (size, after) = rest.split_first_chunk::<2>()?;
        let (set, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*size)))?;
        found.push(set);
        rest = after;
    }
    Some(rest)
}

fn avc_arrays(record: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    let (&sequence, rest) = record.get(5..)?.split_first()?;
    let (&picture, rest) = sets(rest, usize::from(sequence & 0x1f), &mut found)?.split_first()?;
    sets(rest, usize::from(picture), &mut found)?;
    Some(found)
}

fn hevc_arrays(record: &[u8]) -> Option<Vec<&[u8]>> {
    let mut found = Vec::new();
    let (&arrays, mut rest) = record.get(22..)?.split_first()?;
    for _ in 0..arrays {
        let (head, after) = rest.split_first_chunk::<3>()?;
        let count = usize::from(u16::from_be_bytes([head[1], head[2]]));
        rest = sets(after, count, &mut found)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    type Bytes<'a> = &'a [u8];
    type Units<'a> = &'a [Bytes<'a>];

    #[test]
    fn sets_are_read_from_configuration_records() {
        let avc = [1, 66, 0, 30, 0xff, 0xe1, 0, 2, 0x67, 7, 1, 0, 1, 0x68];
        let mut hevc = vec![1; 22];
        hevc.extend([2, 0xa0, 0, 1, 0, 2, 0x40, 1, 0x21, 0, 1, 0, 2, 0x42, 1]);
        let lengths = Framing::Lengths(2);
        let cases: [(&str, Codec, Framing, Bytes<'_>, Bytes<'_>); 6] = [
            ("avcC", Codec::H264, lengths, &avc, &[0, 2, 0x67, 7, 0, 1, 0x68]),
            ("hvcC", Codec::H265, lengths, &hevc, &[0, 2, 0x40, 1, 0, 2, 0x42, 1]),
            ("Annex B", Codec::H264, Framing::StartCodes, &[0, 0, 1, 0x67], &[0, 0, 1, 0x67]),
            ("cut avcC", Codec::H264, lengths, &avc[..9], &[]),
            ("cut hvcC", Codec::H265, lengths, &hevc[..30], &[]),
            ("none", Codec::H264, lengths, &[], &[]),
        ];
        for (name, codec, framing, record, expected) in cases {
            assert_eq!(described_sets(codec, framing, record), expected, "{name}");
        }
    }

    #[test]
    fn pictures_come_as_annex_b_with_their_sets() {
        let lengths = Framing::Lengths(1);
        let (h264, h265): (Bytes<'_>, Bytes<'_>) = (&[2, 0x67, 1, 1, 0x68], &[1, 0x40, 2, 0x42, 1]);
        let (sequence, picture): (Bytes<'_>, Bytes<'_>) = (&[2, 0x67, 2], &[2, 0x68, 2]);
        let cases: [(&str, Codec, Bytes<'_>, Units<'_>, Units<'_>); 8] = [
            ("a start", Codec::H264, &[2, 0x65, 9], &[h264], &[&[0x67, 1], &[0x68], &[0x65, 9]]),
            (
                "one with its own",
                Codec::H264,
                &[1, 0x67, 1, 0x68, 1, 0x65],
                &[h264],
                &[&[0x67], &[0x68], &[0x65]],
            ),
            (
                "one without a picture set",
                Codec::H264,
                &[1, 0x67, 1, 0x65],
                &[h264],
                &[&[0x67], &[0x68], &[0x65]],
            ),
            (
                "one without a sequence set",
                Codec::H264,
                &[2, 0x68, 9, 1, 0x65],
                &[h264],
                &[&[0x67, 1], &[0x68], &[0x68, 9], &[0x65]],
            ),
            (
                "an earlier picture set without a sequence set",
                Codec::H264,
                &[1, 0x65],
                &[picture, h264],
                &[&[0x67, 1], &[0x68], &[0x68, 2], &[0x65]],
            ),
            (
                "an earlier sequence set without a picture set",
                Codec::H264,
                &[1, 0x65],
                &[sequence, h264],
                &[&[0x67, 2], &[0x68], &[0x65]],
            ),
            (
                "one without a video set",
                Codec::H265,
                &[1, 0x42, 1, 0x44, 1, 0x26],
                &[h265],
                &[&[0x40], &[0x42], &[0x44], &[0x26]],
            ),
            ("no start", Codec::H264, &[2, 0x65, 9], &[], &[&[0x65, 9]]),
        ];
        for (name, codec, data, earlier, nals) in cases {
            let expected: Vec<u8> =
                nals.iter().flat_map(|nal| [&[0, 0, 0, 1][..], *nal].concat()).collect();
            assert_eq!(annex_b(codec, data, earlier, lengths), expected, "{name}");
        }
    }
}
