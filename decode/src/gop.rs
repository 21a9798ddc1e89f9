//! Which access units of a live stream may go to the decoder.
//!
//! Nothing before a clean start, and nothing after a loss until the next one. Pure.

use media::{AccessUnit, Codec};

use crate::start::Inspector;

/// Waits for a clean start, then lets everything through until a loss.
pub(crate) struct Gop {
    inspector: Inspector,
    is_open: bool,
}

impl Gop {
    pub(crate) fn new(codec: Codec) -> Gop {
        Gop { inspector: Inspector::new(codec, &[]), is_open: false }
    }

    /// The unit can be decoded.
    pub(crate) fn admits(&mut self, unit: &AccessUnit) -> bool {
        let is_start = match unit.codec {
            // Their bytes are not looked into; the sender knows.
            Codec::Mpeg4 | Codec::Mjpeg => unit.keyframe,
            _ => self.inspector.inspect(&unit.data).is_start,
        };
        self.is_open |= is_start;
        self.is_open
    }

    /// A unit was lost or refused, so what refers to it cannot be decoded.
    pub(crate) fn lose(&mut self) {
        self.is_open = false;
    }
}

#[cfg(test)]
mod tests {
    use media::Timestamp;

    use super::*;

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
        let mut gop = Gop::new(Codec::H264);
        assert!(!gop.admits(&unit(INTER)), "the key flag alone proves nothing");
        assert!(gop.admits(&unit(IDR)));
        assert!(gop.admits(&unit(INTER)));
        gop.lose();
        assert!(!gop.admits(&unit(INTER)), "after a loss");
        assert!(gop.admits(&unit(IDR)), "resynchronised");
    }
}
