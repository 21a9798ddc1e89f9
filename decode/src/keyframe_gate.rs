//! Filter of a live stream's access units: passes those that can be decoded.
//!
//! Drops units before the first clean start, and after a loss until the next one. Pure.

use media::{AccessUnit, Codec};

use crate::{frame_num::FrameNumTracker, random_access::RandomAccessDetector};

/// Waits for a clean start, then passes everything until a loss.
pub(crate) struct KeyframeGate {
    inspector: RandomAccessDetector,
    numbers: FrameNumTracker,
    is_open: bool,
}

impl KeyframeGate {
    pub(crate) fn new(codec: Codec) -> KeyframeGate {
        let inspector = RandomAccessDetector::new(codec, &[]);
        KeyframeGate { inspector, numbers: FrameNumTracker::default(), is_open: false }
    }

    /// Returns true if pictures that the unit may refer to are missing, by its own numbers.
    pub(crate) fn misses(&mut self, unit: &AccessUnit) -> bool {
        unit.codec == Codec::H264 && self.numbers.misses(&unit.data) && self.is_open
    }

    /// Returns true if the unit can be decoded.
    pub(crate) fn admits(&mut self, unit: &AccessUnit) -> bool {
        let is_start = match unit.codec {
            // Their bytes are not parsed; the sender's flag is used.
            Codec::Mpeg4 | Codec::Mjpeg => unit.keyframe,
            _ => self.inspector.inspect(&unit.data).decodes_alone,
        };
        self.is_open |= is_start;
        self.is_open
    }

    /// Returns true after a clean start without a loss since.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Closes the gate after a lost or refused unit, because units that refer to it cannot be decoded.
    pub(crate) fn lose(&mut self) {
        self.is_open = false;
        self.numbers.forget();
    }
}

#[cfg(test)]
mod tests {
    use media::Timestamp;

    use super::*;

    #[test]
    fn every_picture_that_decodes_alone_opens_the_stream() {
        let many_sets: Vec<u8> =
            (0..100).flat_map(|id| [0, 0, 1, 0x67, id + 1]).chain([0, 0, 1, 0x65, 1]).collect();
        let cases: [(&str, Codec, &[u8], bool); 13] = [
            ("h264 IDR", Codec::H264, &[0, 0, 1, 0x65, 1], true),
            ("h264 IDR after more sets than are remembered", Codec::H264, &many_sets, true),
            ("h264 inter", Codec::H264, &[0, 0, 1, 0x41, 1], false),
            ("h265 IDR", Codec::H265, &[0, 0, 1, 0x26, 1, 0x80], true),
            ("h265 IDR that drops earlier ones", Codec::H265, &[0, 0, 1, 0x26, 1, 0xc0], true),
            ("h265 CRA that drops earlier ones", Codec::H265, &[0, 0, 1, 0x2a, 1, 0xc0], true),
            ("h265 inter", Codec::H265, &[0, 0, 1, 0x02, 1, 0x80], false),
            ("vp8 key", Codec::Vp8, &[0x10, 0, 0], true),
            ("vp8 inter", Codec::Vp8, &[0x11, 0, 0], false),
            ("vp9 key", Codec::Vp9, &[0x82, 0x49], true),
            ("vp9 inter", Codec::Vp9, &[0x86, 0], false),
            ("av1 key", Codec::Av1, &[0x12, 0, 0x0a, 1, 0, 0x32, 1, 0x10], true),
            ("av1 key without sequence", Codec::Av1, &[0x12, 0, 0x32, 1, 0x10], false),
        ];
        for (name, codec, data, expected) in cases {
            let pts = Timestamp::from_millis(0);
            let unit = AccessUnit { codec, pts, keyframe: false, data: data.to_vec() };
            assert_eq!(KeyframeGate::new(codec).admits(&unit), expected, "{name}");
        }
    }

    #[test]
    fn only_what_follows_a_clean_start_without_loss_is_admitted() {
        const IDR: &[u8] = &[0, 0, 1, 0x65, 1];
        const INTER: &[u8] = &[0, 0, 1, 0x41, 1];
        let unit = |data: &[u8]| AccessUnit {
            codec: Codec::H264,
            pts: Timestamp::from_millis(0),
            keyframe: true,
            data: data.to_vec(),
        };
        let mut gop = KeyframeGate::new(Codec::H264);
        assert!(!gop.admits(&unit(INTER)), "the key flag alone proves nothing");
        assert!(gop.admits(&unit(IDR)));
        assert!(gop.admits(&unit(INTER)));
        gop.lose();
        assert!(!gop.admits(&unit(INTER)), "after a loss");
        assert!(gop.admits(&unit(IDR)), "resynchronised");
    }
}
