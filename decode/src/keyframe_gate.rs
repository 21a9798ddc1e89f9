//! Filter of a live stream's access units: passes those that can be decoded.
//!
//! Drops units before the first clean start, and after a loss until the next one. Pure.

use media::{AccessUnit, Codec};

use crate::{frame_num::FrameNumTracker, random_access::RandomAccessDetector};

/// Waits for a clean start, then passes everything until a loss.
pub(crate) struct KeyframeGate {
    inspector: RandomAccessDetector,
    numbers: FrameNumTracker,
    /// True after a clean start without a loss since.
    pub(crate) is_open: bool,
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
    fn only_what_follows_a_clean_start_without_loss_is_admitted() {
        // Decodes alone, and yet files are not cut at it, as it drops earlier pictures.
        const IDR: &[u8] = &[0, 0, 1, 0x26, 1, 0xc0];
        const INTER: &[u8] = &[0, 0, 1, 0x02, 1, 0x80];
        let unit = |data: &[u8]| AccessUnit {
            codec: Codec::H265,
            pts: Timestamp::from_millis(0),
            keyframe: data == INTER,
            data: data.to_vec(),
        };
        let mut gop = KeyframeGate::new(Codec::H265);
        assert!(!gop.admits(&unit(INTER)), "the key flag proves nothing");
        assert!(gop.admits(&unit(IDR)));
        assert!(gop.admits(&unit(INTER)));
        gop.lose();
        assert!(!gop.admits(&unit(INTER)), "after a loss");
        assert!(gop.admits(&unit(IDR)), "resynchronised");
    }
}
