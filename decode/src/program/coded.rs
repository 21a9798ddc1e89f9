//! Coded pictures as a program without the container can read them: IVF, with everything in band.

use media::{Codec, Extent};

use crate::{
    nal::{Framing, Nals},
    start::framing,
};

/// Bytes of the header of an IVF file.
const HEADER_BYTES: u16 = 32;

/// The beginning of an IVF file whose times are whole thousandths of a second.
pub(super) fn header(codec: Codec, extent: Extent) -> Vec<u8> {
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

/// What goes before the bytes of a picture.
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

/// Puts packets of one stream into their in-band form.
pub(super) struct Rewriter {
    framing: Option<Framing>,
    /// What the container keeps apart, until the first packet.
    prefix: Vec<u8>,
}

impl Rewriter {
    /// `None` for what is not decoded by a program.
    pub(super) fn new(codec: Codec, extradata: &[u8]) -> Option<Rewriter> {
        let framing = match codec {
            Codec::H264 | Codec::H265 => Some(framing(codec, extradata)),
            Codec::Vp8 | Codec::Vp9 | Codec::Av1 => None,
            Codec::Mpeg4 | Codec::Mjpeg => return None,
        };
        let prefix = match (codec, framing) {
            (Codec::H264, Some(Framing::Lengths(_))) => avc_sets(extradata),
            (Codec::H265, Some(Framing::Lengths(_))) => hevc_sets(extradata),
            // After the four bytes of the record (AV1 in ISOBMFF 2.3) come sequence headers.
            (Codec::Av1, _) => extradata.get(4..).unwrap_or_default().to_vec(),
            (_, Some(Framing::StartCodes)) => extradata.to_vec(),
            _ => Vec::new(),
        };
        Some(Rewriter { framing, prefix })
    }

    /// The packet's bytes in band.
    pub(super) fn rewrite(&mut self, data: &[u8]) -> Vec<u8> {
        let mut out = std::mem::take(&mut self.prefix);
        match self.framing {
            Some(framing @ Framing::Lengths(_)) => {
                for nal in Nals::new(data, framing) {
                    push_nal(&mut out, nal.bytes());
                }
            }
            _ => out.extend_from_slice(data),
        }
        out
    }
}

fn push_nal(out: &mut Vec<u8>, nal: &[u8]) {
    out.extend([0, 0, 0, 1]);
    out.extend_from_slice(nal);
}

/// The sets of an `avcC` record (ISO 14496-15 5.3.3.1), each after a start code; those that fit.
fn avc_sets(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = record.get(5..).unwrap_or_default();
    for mask in [0x1f, 0xff] {
        let Some((&count, after)) = rest.split_first() else { return out };
        rest = after;
        for _ in 0..count & mask {
            let Some((set, after)) = sized(rest) else { return out };
            push_nal(&mut out, set);
            rest = after;
        }
    }
    out
}

/// The arrays of an `hvcC` record (ISO 14496-15 8.3.3.1), likewise.
fn hevc_sets(record: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let Some((&arrays, mut rest)) = record.get(22..).and_then(<[u8]>::split_first) else {
        return out;
    };
    for _ in 0..arrays {
        let Some((&[_, high, low], after)) = rest.split_first_chunk() else { return out };
        rest = after;
        for _ in 0..u16::from_be_bytes([high, low]) {
            let Some((set, after)) = sized(rest) else { return out };
            push_nal(&mut out, set);
            rest = after;
        }
    }
    out
}

fn sized(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = bytes.split_first_chunk()?;
    rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_container_keeps_apart_comes_first_and_once() {
        let avc: &[u8] = &[1, 66, 0, 30, 0xff, 0xe1, 0, 2, 0x67, 9, 1, 0, 2, 0x68, 8];
        let mut hevc = vec![1; 21];
        // Lengths of four bytes.
        hevc.push(3);
        hevc.extend([2, 0x20, 0, 1, 0, 2, 0x40, 7, 0x21, 0, 1, 0, 1, 0x42]);
        let lengths: &[u8] = &[0, 0, 0, 2, 0x65, 5];
        /// Codec, what the container keeps apart, a packet, what the program is given first.
        type Row<'a> = (Codec, &'a [u8], &'a [u8], &'a [u8]);
        let rows: [Row<'_>; 5] = [
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
            (Codec::Vp9, &[7, 7], &[0x82, 0x49], &[0x82, 0x49]),
        ];
        for (codec, extradata, packet, expected) in rows {
            let mut rewriter = Rewriter::new(codec, extradata).expect("asked of it");
            assert_eq!(rewriter.rewrite(packet), expected, "{codec:?}");
            let again = rewriter.rewrite(packet);
            assert!(again.len() <= expected.len() && expected.ends_with(&again), "{codec:?}");
        }
        assert!(Rewriter::new(Codec::Mjpeg, &[]).is_none());
    }

    proptest! {
        #[test]
        fn no_record_is_read_past_its_end(record in prop::collection::vec(any::<u8>(), 0..80)) {
            for sets in [avc_sets(&record), hevc_sets(&record)] {
                prop_assert!(sets.len() <= 3 * record.len());
            }
        }
    }
}
