//! Packets at which decoding can start, judged by the coded bytes alone.
//!
//! Container keyframe flags are not trusted: they also mark open-GOP pictures. Pictures presented before
//! their start, which only times reveal, are left to the segmenter.

use media::{Codec, Obu};

use crate::nal::{Framing, NalUnit, NalUnits, ParameterSetCache};

/// Facts about a picture from the bytes of its packet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct PacketInfo {
    /// True if a stream may be cut here: a decoder that sees nothing earlier gives the same pictures.
    pub(crate) is_start: bool,
    /// True if a decoder without earlier packets decodes this picture, which suffices to join a stream.
    pub(crate) decodes_alone: bool,
    /// True if it may refer to pictures before the preceding start (HEVC RASL).
    pub(crate) needs_earlier: bool,
    /// True if it is presented before the preceding start, and only other such pictures need it or the
    /// contents of its packet (HEVC RASL and RADL).
    pub(crate) is_leading: bool,
    /// True if it is coded but not meant to be shown.
    pub(crate) is_hidden: bool,
    /// True if no picture of its own temporal layer or below refers to it.
    pub(crate) is_unreferenced: bool,
    /// Temporal layer; 0 if the codec has none.
    pub(crate) temporal_layer: u8,
    /// For a start: parameter sets that came in earlier packets only, framed like this one.
    pub(crate) prelude: Option<Box<[u8]>>,
}

/// Returns the framing of NAL units in a stream with this decoder configuration.
pub(crate) fn framing(codec: Codec, extradata: &[u8]) -> Framing {
    // avcC and hvcC both begin with version 1; Annex B begins with zeros.
    let length_byte = match (codec, extradata.first()) {
        (Codec::H264, Some(1)) => extradata.get(4),
        (Codec::H265, Some(1)) => extradata.get(21),
        _ => None,
    };
    length_byte.map_or(Framing::StartCodes, |byte| Framing::Lengths((byte & 3) + 1))
}

/// Inspects the packets of one stream, in decode order.
pub(crate) struct RandomAccessDetector {
    codec: Codec,
    framing: Framing,
    sets: ParameterSetCache,
}

impl RandomAccessDetector {
    /// Makes a detector; `extradata` is the container's decoder configuration, empty for Annex B.
    pub(crate) fn new(codec: Codec, extradata: &[u8]) -> RandomAccessDetector {
        let framing = framing(codec, extradata);
        RandomAccessDetector { codec, framing, sets: ParameterSetCache::default() }
    }

    pub(crate) fn inspect(&mut self, data: &[u8]) -> PacketInfo {
        match self.codec {
            Codec::H264 | Codec::H265 => self.inspect_nals(data),
            Codec::Vp8 => inspect_vp8(data),
            Codec::Vp9 => inspect_vp9(data),
            Codec::Av1 => inspect_av1(data),
            Codec::Mpeg4 | Codec::Mjpeg => PacketInfo::default(),
        }
    }

    fn inspect_nals(&mut self, data: &[u8]) -> PacketInfo {
        let classify = if self.codec == Codec::H264 { classify_h264 } else { classify_h265 };
        let mut own_sets = 0;
        for nal in NalUnits::new(data, self.framing) {
            match classify(&nal) {
                NalKind::Other => {}
                NalKind::ParameterSet => {
                    self.sets.note(nal.bytes());
                    own_sets += 1;
                }
                // All slices of a picture agree on the inspected fields, so the first one decides.
                NalKind::Slice(mut coded) => {
                    coded.is_start &= !self.sets.overflowed;
                    coded.is_leading &= own_sets == 0;
                    if coded.is_start {
                        coded.prelude = self.sets.framed_before(own_sets, self.framing);
                    }
                    return coded;
                }
            }
        }
        PacketInfo { is_hidden: true, ..PacketInfo::default() }
    }
}

enum NalKind {
    ParameterSet,
    Slice(PacketInfo),
    Other,
}

/// Classifies a NAL unit by ITU-T H.264 table 7-1.
fn classify_h264(nal: &NalUnit<'_>) -> NalKind {
    let header = nal.header(0);
    match header & 0x1f {
        kind @ (1 | 2 | 5) => NalKind::Slice(PacketInfo {
            is_start: kind == 5,
            decodes_alone: kind == 5,
            is_unreferenced: header & 0x60 == 0,
            ..PacketInfo::default()
        }),
        7 | 8 => NalKind::ParameterSet,
        _ => NalKind::Other,
    }
}

/// Classifies a NAL unit by ITU-T H.265 table 7-1; layers above the base (3D, scalable) are not decoded.
fn classify_h265(nal: &NalUnit<'_>) -> NalKind {
    let (first, second) = (nal.header(0), nal.header(1));
    let layer = (first & 1) << 5 | second >> 3;
    if layer != 0 {
        return NalKind::Other;
    }
    match first >> 1 & 0x3f {
        kind @ (0..=9 | 16..=21) => NalKind::Slice(PacketInfo {
            // BLA, IDR and CRA pictures, unless no_output_of_prior_pics_flag (7.3.6.1) discards earlier
            // pictures.
            is_start: kind >= 16 && nal.header(2) & 0x40 == 0,
            decodes_alone: kind >= 16,
            // RASL_N and RASL_R.
            needs_earlier: matches!(kind, 8 | 9),
            // RADL_N, RADL_R, RASL_N and RASL_R.
            is_leading: matches!(kind, 6..=9),
            // The even types below RSV_VCL_R15 are sub-layer non-reference pictures.
            is_unreferenced: kind < 16 && kind % 2 == 0,
            temporal_layer: (second & 7).saturating_sub(1),
            ..PacketInfo::default()
        }),
        32..=34 => NalKind::ParameterSet,
        _ => NalKind::Other,
    }
}

/// RFC 6386 9.1: key frames have bit 0 clear, shown frames bit 4 set.
fn inspect_vp8(data: &[u8]) -> PacketInfo {
    let tag = data.first().copied().unwrap_or(1);
    let is_key = tag & 1 == 0;
    PacketInfo {
        is_start: is_key,
        decodes_alone: is_key,
        is_hidden: tag & 0x10 == 0,
        ..PacketInfo::default()
    }
}

/// VP9 bitstream 6.2; of a superframe, the first frame is inspected and the last one is shown.
fn inspect_vp9(data: &[u8]) -> PacketInfo {
    let head = data.first().copied().unwrap_or(0);
    // marker(2) profile_low profile_high [reserved for profile 3] show_existing type show
    let shift = if head & 0x30 == 0x30 { 1 } else { 0 };
    let bit = |index: u8| match index + shift {
        at @ 0..=7 => head >> (7 - at) & 1,
        _ => data.get(1).copied().unwrap_or(0) >> 7,
    };
    let (show_existing, inter, shown) = (bit(4) == 1, bit(5) == 1, bit(6) == 1);
    let is_superframe = data.last().is_some_and(|last| last & 0xe0 == 0xc0);
    let is_key = head >> 6 == 2 && !show_existing && !inter;
    PacketInfo {
        is_start: is_key,
        decodes_alone: is_key,
        is_hidden: !show_existing && !shown && !is_superframe,
        ..PacketInfo::default()
    }
}

/// AV1 bitstream 5.3 and 5.9: a sequence header followed by a shown key frame.
fn inspect_av1(data: &[u8]) -> PacketInfo {
    let mut rest = data;
    let mut reduced_still = None;
    while let Some((obu, after)) = Obu::split(rest) {
        rest = after;
        let first = obu.payload.first().copied().unwrap_or(0);
        match Obu::kind_of(obu.header) {
            // seq_profile(3) still_picture reduced_still_picture_header
            Obu::SEQUENCE_HEADER => reduced_still = Some(first & 0x08 != 0),
            // show_existing_frame frame_type(2) show_frame
            Obu::FRAME_HEADER | Obu::FRAME => {
                let is_shown_key = first & 0xf0 == 0x10;
                let is_key = reduced_still.is_some_and(|reduced| reduced || is_shown_key);
                return PacketInfo {
                    is_start: is_key,
                    decodes_alone: is_key,
                    ..PacketInfo::default()
                };
            }
            _ => {}
        }
    }
    PacketInfo::default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> PacketInfo {
        PacketInfo { is_start: true, decodes_alone: true, ..PacketInfo::default() }
    }

    #[test]
    fn starts_are_told_by_the_bytes_of_every_codec() {
        use Codec::{Av1, H264, H265, Mpeg4, Vp8, Vp9};
        let plain = PacketInfo::default;
        let joins = || PacketInfo { decodes_alone: true, ..plain() };
        let hidden = || PacketInfo { is_hidden: true, ..plain() };
        let late = |is_leading| PacketInfo { needs_earlier: true, is_leading, ..plain() };
        let leading = PacketInfo { is_leading: true, ..plain() };
        let unreferenced = PacketInfo { is_unreferenced: true, ..plain() };
        let of_layer_2 = PacketInfo { temporal_layer: 2, ..unreferenced.clone() };
        let many_sets: Vec<u8> =
            (0..100).flat_map(|id| [0, 0, 1, 0x67, id + 1]).chain([0, 0, 1, 0x65, 1]).collect();
        // A set that others may need.
        let with_set = [0, 0, 1, 0x44, 1, 9, 0, 0, 1, 0x12, 1, 0];
        let cases: [(&str, Codec, &[u8], PacketInfo); 26] = [
            ("h264 IDR", H264, &[0, 0, 1, 0x09, 0xf0, 0, 0, 1, 0x65, 1], start()),
            ("h264 IDR after more sets than are remembered", H264, &many_sets, joins()),
            ("h264 I of an open GOP", H264, &[0, 0, 1, 0x61, 1], plain()),
            ("h264 unreferenced", H264, &[0, 0, 1, 0x01, 1], unreferenced),
            ("h264 without a slice", H264, &[0, 0, 1, 0x06, 1], hidden()),
            ("h265 IDR", H265, &[0, 0, 1, 0x26, 1, 0], start()),
            ("h265 IDR that drops", H265, &[0, 0, 1, 0x26, 1, 0xc0], joins()),
            ("h265 CRA that drops", H265, &[0, 0, 1, 0x2a, 1, 0xc0], joins()),
            ("h265 inter", H265, &[0, 0, 1, 0x02, 1, 0x80], plain()),
            ("h265 CRA", H265, &[0, 0, 1, 0x2a, 1, 0], start()),
            ("h265 RASL", H265, &[0, 0, 1, 0x12, 1, 0], late(true)),
            ("h265 RADL", H265, &[0, 0, 1, 0x0e, 1, 0], leading),
            ("h265 RASL with a set", H265, &with_set, late(false)),
            ("h265 TRAIL_N of layer 2", H265, &[0, 0, 1, 0x00, 3, 0], of_layer_2),
            ("h265 second view", H265, &[0, 0, 1, 0x26, 0x09, 0], hidden()),
            ("vp8 key", Vp8, &[0x10, 0, 0], start()),
            ("vp8 inter", Vp8, &[0x11, 0, 0], plain()),
            ("vp8 hidden", Vp8, &[0x01, 0, 0], hidden()),
            ("vp9 key", Vp9, &[0x82, 0x49], start()),
            ("vp9 inter", Vp9, &[0x86, 0], plain()),
            ("vp9 repeats a frame", Vp9, &[0x88], plain()),
            ("vp9 profile 3 key", Vp9, &[0xb1, 0], start()),
            ("vp9 hidden", Vp9, &[0x84, 0], hidden()),
            ("av1 key", Av1, &[0x12, 0, 0x0a, 1, 0, 0x32, 1, 0x10], start()),
            ("av1 key without sequence", Av1, &[0x12, 0, 0x32, 1, 0x10], plain()),
            ("mpeg4 never", Mpeg4, &[0, 0, 1, 0xb3], plain()),
        ];
        for (name, codec, data, expected) in cases {
            assert_eq!(RandomAccessDetector::new(codec, &[]).inspect(data), expected, "{name}");
        }
    }

    #[test]
    fn lengths_come_from_the_configuration_record() {
        let mut inspector = RandomAccessDetector::new(Codec::H264, &[1, 66, 0, 30, 0xff]);
        assert_eq!(inspector.inspect(&[0, 0, 0, 2, 0x65, 1]), start());
        assert!(!inspector.inspect(&[0, 0, 0, 9, 0x65, 1]).is_start, "length past the end");
    }

    #[test]
    fn a_start_brings_the_sets_that_only_earlier_packets_carried() {
        let mut inspector = RandomAccessDetector::new(Codec::H264, &[]);
        let first = [0, 0, 1, 0x67, 1, 0, 0, 1, 0x68, 2, 0, 0, 1, 0x65, 3];
        assert_eq!(inspector.inspect(&first).prelude, None);
        let bare = inspector.inspect(&[0, 0, 1, 0x65, 3]);
        let sets = [0, 0, 0, 1, 0x67, 1, 0, 0, 0, 1, 0x68, 2];
        assert_eq!(bare.prelude.as_deref(), Some(&sets[..]));
    }

    #[test]
    fn no_bytes_at_all_are_no_start() {
        for codec in Codec::ALL {
            for data in [&[][..], &[0], &[0xff; 3]] {
                assert!(
                    !RandomAccessDetector::new(codec, &[]).inspect(data).is_start || data == [0],
                    "{codec:?}"
                );
            }
        }
    }
}
