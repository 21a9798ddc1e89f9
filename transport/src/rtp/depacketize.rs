//! Depacketizers: payloads of packets in order to the coded bytes of a picture, one per codec.
//!
//! Each gathers one unit, knows whether decoding can start with it, and rejects what its payload format
//! forbids. The assembler decides which packets make up a unit.

mod av1;
mod h264;
mod h265;
mod nal;
mod parameter_sets;
#[cfg(test)]
#[path = "depacketize/tests/payloads.rs"]
mod test_payloads;
mod vp8;
mod vp9;
mod vpx;

use media::Codec;

use super::UNIT_BYTES_MAX;
use vpx::Vpx;

/// Start code before each NAL unit (ITU-T H.264 and H.265, annex B).
const START_CODE: [u8; 4] = [0, 0, 0, 1];

pub use parameter_sets::parameter_sets;

/// Largest buffer allocated ahead for a unit, by the size of previous units.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// Most leading zeros in the ue(v) of a parameter set id or a slice address, far above real streams.
const ID_ZEROS_MAX: u32 = 24;

/// Error of a payload, and of its unit with it, that violates the payload format or makes the unit larger
/// than [`UNIT_BYTES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Malformed;

/// Role of a unit in decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// Decoding can start with this unit.
    Start {
        /// True if later pictures that are shown before this one cannot be decoded even without losses (H.265
        /// BLA).
        breaks_link: bool,
    },
    /// The unit may refer to pictures before the preceding start (H.265 RASL).
    Leading,
    /// The unit refers to pictures since the start.
    Other,
}

/// Part of a picture contained in a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadPart {
    /// No part of a picture, only accompanying data.
    Nothing,
    Beginning,
    /// Part at an unknown position in the picture.
    Some,
}

/// Coded bytes of one picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DepacketizedUnit {
    pub(super) data: Vec<u8>,
    pub(super) role: UnitKind,
}

/// Completed unit; `None` if it held no picture.
pub(super) type DepacketizeResult = Result<Option<DepacketizedUnit>, Malformed>;

/// Depacketizer of one codec's payload format.
pub(super) trait Depacketizer: Send {
    /// Returns true if a unit begins with this payload, whatever came before.
    fn begins_unit(&self, payload: &[u8]) -> bool;

    /// Returns true if a unit in which decoding may start begins with this payload.
    fn starts_keyframe(&self, payload: &[u8]) -> bool;

    /// Returns the part of a picture that this payload contains.
    fn part(&self, _payload: &[u8]) -> PayloadPart {
        PayloadPart::Some
    }

    /// Returns true if this payload begins another unit than the current one, whatever its timestamp.
    fn begins_another(&self, _payload: &[u8]) -> bool {
        false
    }

    /// Appends the next payload to the unit.
    fn push(&mut self, payload: &[u8]) -> Result<(), Malformed>;

    /// Returns true if part of a picture has arrived, not only data that precedes one.
    fn has_picture(&self) -> bool;

    /// Completes the unit.
    fn finish(&mut self) -> DepacketizeResult;

    /// Discards the unit.
    fn reset(&mut self);
}

/// Creates the depacketizer for `codec`; `None` if the codec is not supported over RTP.
///
/// `parameter_sets` are NAL units from the session description.
pub(super) fn of(codec: Codec, parameter_sets: &[Vec<u8>]) -> Option<Box<dyn Depacketizer>> {
    Some(match codec {
        Codec::H264 => Box::new(h264::H264Depacketizer::new(parameter_sets)),
        Codec::H265 => Box::new(h265::H265Depacketizer::new(parameter_sets)),
        Codec::Vp8 => Box::new(Vpx::new(vp8::part, vp8::is_key)),
        Codec::Vp9 => Box::new(Vpx::new(vp9::part, vp9::is_key)),
        Codec::Av1 => Box::new(av1::Av1Depacketizer::default()),
        Codec::Mpeg4 | Codec::Mjpeg => return None,
    })
}

/// Buffer of the current unit.
#[derive(Debug, Default)]
struct Gathered {
    data: Vec<u8>,
    /// Recent size of units with some margin, in bytes.
    expected: usize,
}

impl Gathered {
    fn extend(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        if self.data.len() + bytes.len() > UNIT_BYTES_MAX {
            return Err(Malformed);
        }
        if self.data.capacity() == 0 {
            self.data.reserve(self.expected);
        }
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Appends a start code; returns the offset of the NAL unit.
    fn begin_nal(&mut self) -> Result<usize, Malformed> {
        self.extend(&START_CODE)?;
        Ok(self.len())
    }

    fn len(&self) -> usize {
        self.data.len()
    }

    fn since(&self, start: usize) -> &[u8] {
        self.data.get(start..).unwrap_or_default()
    }

    fn take(&mut self) -> Vec<u8> {
        let used = self.data.len();
        let decayed = self.expected - self.expected / 8;
        self.expected = decayed.max(used + used / 8).min(AHEAD_BYTES_MAX);
        std::mem::take(&mut self.data)
    }

    /// Takes the unit and prepends `prefix`.
    fn take_after(&mut self, prefix: &[u8]) -> Result<Vec<u8>, Malformed> {
        if prefix.len() + self.data.len() > UNIT_BYTES_MAX {
            return Err(Malformed);
        }
        let mut data = self.take();
        data.splice(0..0, prefix.iter().copied());
        Ok(data)
    }

    fn clear(&mut self) {
        self.data.clear();
    }
}
