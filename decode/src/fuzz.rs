//! Invariants of the readers of coded bytes, for any input.
//!
//! Used by fuzzers and by the tests below, which run the corpus and broken variants of it with a stable
//! compiler.

use media::Codec;

use crate::{
    coded_pictures::{annex_b, described_sets},
    frame_num::FrameNumTracker,
    random_access::{RandomAccessDetector, framing},
    segment::{CodedPacket, PacketSegment, Payload, SEGMENT_PACKETS_MAX, Segmenter},
};

impl Payload for usize {
    fn repeated(&self) -> Option<usize> {
        Some(*self)
    }
}

/// Reads a test case and checks the segments. Byte 0 chooses the codec, byte 1 is the length of the decoder
/// configuration that follows. Packets follow: flags (1 no time, 2 hidden by the container, 4 new
/// configuration), a signed step of the time, a length, the bytes.
///
/// Every packet must be in exactly one segment, except a start repeated for the segment before, and the
/// number of held packets is limited. Returns the number of segments.
pub fn packets(bytes: &[u8]) -> usize {
    let Some((&[choice, described], rest)) = bytes.split_first_chunk() else { return 0 };
    let codec = Codec::ALL[usize::from(choice) % Codec::ALL.len()];
    let (extradata, mut rest) = rest.split_at(usize::from(described).min(rest.len()));
    let framing = framing(codec, extradata);
    let sets = described_sets(codec, framing, extradata);
    let mut detector = RandomAccessDetector::new(codec, extradata);
    let mut numbers = FrameNumTracker::default();
    let (mut segmenter, mut found) = (Segmenter::new(), Found::default());
    let (mut pts, mut pushed) = (0, 0);
    while let [flags, step, length, after @ ..] = rest {
        let (data, after) = after.split_at(usize::from(*length).min(after.len()));
        rest = after;
        pts += i64::from(*step as i8);
        numbers.misses(data);
        let coded = detector.inspect(data);
        assert!(coded.decodes_alone || !coded.is_start, "{coded:?}");
        assert!(coded.is_start || coded.prelude.is_none(), "{coded:?}");
        let earlier = [coded.prelude.as_deref().unwrap_or_default(), &sets];
        let units = annex_b(codec, data, &earlier, framing);
        assert!(units.is_empty() || units.starts_with(&[0, 0, 0, 1]));
        segmenter.push(CodedPacket {
            pts: (flags & 1 == 0).then_some(pts),
            is_discarded: flags & 2 != 0,
            is_repeat: false,
            reconfigures: flags & 4 != 0,
            coded,
            bytes: data.len(),
            payload: pushed,
        });
        pushed += 1;
        found.take(&mut segmenter);
        assert!(segmenter.pending_packets() <= SEGMENT_PACKETS_MAX);
    }
    segmenter.finish();
    found.take(&mut segmenter);
    assert_eq!((found.packets.len(), found.repeat, found.is_continued), (pushed, None, false));
    found.packets.sort_unstable();
    assert!(found.packets.iter().copied().eq(0..pushed), "a packet is lost or twice there");
    found.segments
}

/// Segments found so far.
#[derive(Default)]
struct Found {
    segments: usize,
    packets: Vec<usize>,
    /// Start that the last segment repeats.
    repeat: Option<usize>,
    is_continued: bool,
}

impl Found {
    fn take(&mut self, segmenter: &mut Segmenter<usize>) {
        while let Some(PacketSegment { units, continues_previous, is_continued }) = segmenter.pop()
        {
            assert_eq!(continues_previous, self.is_continued);
            let first = units.first().map(|unit| unit.payload);
            assert!(self.repeat.is_none() || self.repeat == first, "{first:?}");
            self.repeat = units.iter().find(|unit| unit.is_repeat).map(|unit| unit.payload);
            let own = units.iter().filter(|unit| !unit.is_repeat);
            self.packets.extend(own.map(|unit| unit.payload));
            self.is_continued = is_continued;
            self.segments += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::{prelude::*, sample::Index};

    use super::*;
    use crate::corpus::{breaks, broken, corpus};

    /// Each file must yield several segments: a stream that is never cut tests little when broken.
    #[test]
    fn the_corpus_is_digested() {
        let segments: Vec<usize> = corpus("coded").iter().map(|bytes| packets(bytes)).collect();
        assert!(segments.iter().all(|&segments| segments > 1), "{segments:?}");
    }

    proptest! {
        #[test]
        fn a_broken_corpus_is_digested(seed in any::<Index>(), breaks in breaks()) {
            packets(&broken(seed.get::<Vec<u8>>(&corpus("coded")), &breaks));
        }
    }
}
