//! Coded pictures in a form that a program reads without the container: IVF, with all parameters in band.

use media::{Codec, Dimensions};

use crate::{
    coded_pictures::parameter_sets,
    nal::{Framing, NalUnits},
    random_access::framing,
};

const HEADER_BYTES: u16 = 32;

/// Returns the header of an IVF file with times in milliseconds.
pub(super) fn header(codec: Codec, extent: Dimensions) -> Vec<u8> {
    let side = |px: u32| u16::try_from(px).unwrap_or(u16::MAX).to_le_bytes();
    let mut out = b"DKIF\0\0".to_vec();
    out.extend(HEADER_BYTES.to_le_bytes());
    out.extend(four_characters(codec));
    out.extend(side(extent.width));
    out.extend(side(extent.height));
    for number in [1000_u32, 1, 0, 0] {
        out.extend(number.to_le_bytes());
    }
    out
}

/// Returns the header of a picture; `None` if it is too large.
pub(super) fn frame_header(bytes: usize, time: i64) -> Option<[u8; 12]> {
    let mut out = [0; 12];
    out[..4].copy_from_slice(&u32::try_from(bytes).ok()?.to_le_bytes());
    out[4..].copy_from_slice(&time.to_le_bytes());
    Some(out)
}

fn four_characters(codec: Codec) -> [u8; 4] {
    *match codec {
        Codec::H264 => b"H264",
        Codec::H265 => b"HEVC",
        Codec::Vp8 => b"VP80",
        Codec::Vp9 => b"VP90",
        Codec::Av1 => b"AV01",
        Codec::Mpeg4 => b"MP4V",
        Codec::Mjpeg => b"MJPG",
    }
}

/// Converts packets of one stream to their in-band form.
pub(super) struct InBandRewriter {
    framing: Option<Framing>,
    /// Parameter sets from the container; written before the first packet.
    prefix: Vec<u8>,
}

impl InBandRewriter {
    /// Returns `None` for codecs that programs do not decode.
    pub(super) fn new(codec: Codec, extradata: &[u8]) -> Option<InBandRewriter> {
        let framing = match codec {
            Codec::H264 | Codec::H265 => Some(framing(codec, extradata)),
            Codec::Vp8 | Codec::Vp9 | Codec::Av1 => None,
            Codec::Mpeg4 | Codec::Mjpeg => return None,
        };
        let prefix = match (codec, framing) {
            (_, Some(Framing::Lengths(_))) => {
                let mut sets = Vec::new();
                let found = parameter_sets(codec, extradata)?;
                found.iter().for_each(|set| Framing::StartCodes.push(set, &mut sets));
                sets
            }
            // Sequence headers follow the four bytes of the record (AV1 in ISOBMFF 2.3); the first bit of its
            // first byte is set, unlike in every OBU.
            (Codec::Av1, _) if extradata.first() == Some(&0x81) => extradata.get(4..)?.to_vec(),
            (Codec::Av1, _) => extradata.to_vec(),
            (_, Some(Framing::StartCodes)) => extradata.to_vec(),
            _ => Vec::new(),
        };
        Some(InBandRewriter { framing, prefix })
    }

    /// Returns the packet's bytes in band; `None` if it is not made of whole units, because the program would
    /// get a cleaner packet than libav.
    pub(super) fn rewrite(&mut self, data: &[u8]) -> Option<Vec<u8>> {
        let mut out = std::mem::take(&mut self.prefix);
        match self.framing {
            Some(framing @ Framing::Lengths(_)) => {
                let mut nals = NalUnits::new(data, framing);
                for nal in &mut nals {
                    let unit = nal.bytes();
                    // A unit that contains a start code would become two units after the conversion.
                    let is_two = NalUnits::new(unit, Framing::StartCodes).next().is_some();
                    if unit.is_empty() || is_two {
                        return None;
                    }
                    Framing::StartCodes.push(unit, &mut out);
                }
                if !nals.rest.is_empty() {
                    return None;
                }
            }
            _ => out.extend_from_slice(data),
        }
        (!data.is_empty()).then_some(out)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_container_keeps_apart_comes_first_and_once() {
        let avc: &[u8] = &[1, 66, 0, 30, 0xff, 0xe1, 0, 2, 0x67, 9, 1, 0, 2, 0x68, 8];
        let mut hevc = vec![1; 21];
        // NAL unit lengths of four bytes.
        hevc.push(3);
        hevc.extend([2, 0x20, 0, 1, 0, 2, 0x40, 7, 0x21, 0, 1, 0, 1, 0x42]);
        let lengths: &[u8] = &[0, 0, 0, 2, 0x65, 5];
        /// Codec, decoder configuration of the container, packet, first output for the program.
        type Row<'a> = (Codec, &'a [u8], &'a [u8], &'a [u8]);
        let rows: [Row<'_>; 6] = [
            (
                Codec::H264,
                avc,
                lengths,
                &[0, 0, 0, 1, 0x67, 9, 0, 0, 0, 1, 0x68, 8, 0, 0, 0, 1, 0x65, 5],
            ),
            (
                Codec::H265,
                &hevc,
                lengths,
                &[0, 0, 0, 1, 0x40, 7, 0, 0, 0, 1, 0x42, 0, 0, 0, 1, 0x65, 5],
            ),
            (Codec::H264, &[0, 0, 1, 0x67], &[0, 0, 1, 0x65], &[0, 0, 1, 0x67, 0, 0, 1, 0x65]),
            (Codec::Av1, &[0x81, 0, 0, 0, 0x0a], &[0x32, 1], &[0x0a, 0x32, 1]),
            (Codec::Av1, &[0x0a, 1, 0], &[0x32, 1], &[0x0a, 1, 0, 0x32, 1]),
            (Codec::Vp9, &[7, 7], &[0x82, 0x49], &[0x82, 0x49]),
        ];
        for (codec, extradata, packet, expected) in rows {
            let mut rewriter = InBandRewriter::new(codec, extradata).expect("asked of it");
            assert_eq!(rewriter.rewrite(packet).as_deref(), Some(expected), "{codec:?}");
            let again = rewriter.rewrite(packet).expect("whole");
            assert!(again.len() <= expected.len() && expected.ends_with(&again), "{codec:?}");
        }
        assert!(InBandRewriter::new(Codec::Mjpeg, &[]).is_none());
        for record in [&avc[..14], &avc[..9], &avc[..5]] {
            assert!(
                InBandRewriter::new(Codec::H264, record).is_none(),
                "a set that is cut: {record:?}"
            );
        }
        assert!(InBandRewriter::new(Codec::H265, &hevc[..30]).is_none());
    }

    #[test]
    fn a_packet_that_would_be_made_tidier_is_refused() {
        let avc: &[u8] = &[1, 66, 0, 30, 0xfd, 0xe0, 0];
        let rows: [(&str, &[u8], bool); 7] = [
            ("whole", &[0, 2, 0x65, 5, 0, 1, 0x06], true),
            ("a length past the end", &[0, 2, 0x65, 5, 0, 9, 0x41], false),
            ("half a length", &[0, 2, 0x65, 5, 0], false),
            ("an empty unit", &[0, 2, 0x65, 5, 0, 0], false),
            ("zeros alone", &[0, 2, 0, 0], false),
            ("two units in one", &[0, 6, 0x65, 5, 0, 0, 1, 0x67], false),
            ("nothing", &[], false),
        ];
        for (name, packet, is_whole) in rows {
            let mut rewriter = InBandRewriter::new(Codec::H264, avc).expect("asked of it");
            assert_eq!(rewriter.rewrite(packet).is_some(), is_whole, "{name}");
        }
    }

    proptest! {
        #[test]
        fn no_record_is_read_past_its_end(record in prop::collection::vec(any::<u8>(), 0..80)) {
            for codec in [Codec::H264, Codec::H265] {
                let sets = parameter_sets(codec, &record).unwrap_or_default();
                prop_assert!(sets.concat().len() <= record.len());
            }
        }
    }
}
