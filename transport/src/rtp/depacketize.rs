//! Payloads of packets in order to the coded bytes of a picture: one depacketizer a codec.
//!
//! Each gathers one unit, knows whether decoding can start with it, and refuses what its payload
//! format does not allow. Which packets make up a unit is the assembler's to say.

mod av1;
mod h264;
mod h265;
mod parameter_sets;
#[cfg(test)]
mod test_payloads;
mod vp8;
mod vp9;
mod vpx;

use media::Codec;

use super::UNIT_BYTES_MAX;

/// Before each NAL unit (ITU-T H.264 and H.265, annex B).
const START_CODE: [u8; 4] = [0, 0, 0, 1];

pub use parameter_sets::parameter_sets;

/// Largest buffer that is made ahead for a unit of the size of the last ones.
const AHEAD_BYTES_MAX: usize = 256 << 10;

/// Most leading zeros of a parameter set's identifier or a slice's address, far above those of any stream.
const ID_ZEROS_MAX: u32 = 24;

/// Reason to refuse a payload, and its unit with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DepacketizeError {
    /// Not what the payload format allows.
    Malformed,
    /// The unit is larger than [`UNIT_BYTES_MAX`].
    TooLarge,
}

/// Role of a unit for the decoder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnitKind {
    /// Decoding can start here.
    Start {
        /// Pictures that follow and are shown before this one cannot be decoded, even when
        /// nothing was lost (H.265 BLA).
        breaks_link: bool,
    },
    /// It may refer to pictures before the start that precedes it (H.265 RASL).
    Leading,
    /// It refers to pictures since the start.
    Other,
}

/// Part of a picture that a payload holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PayloadPart {
    /// Nothing, only what goes with pictures.
    Nothing,
    /// Its beginning.
    Beginning,
    /// Something; where it is in the picture is not said.
    Some,
}

/// The coded bytes of one picture.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct DepacketizedUnit {
    pub(super) data: Vec<u8>,
    pub(super) role: UnitKind,
}

/// A unit of which no more packets come; `None` when there was no picture in it.
pub(super) type DepacketizeResult = Result<Option<DepacketizedUnit>, DepacketizeError>;

/// One codec's payload format.
pub(super) trait Depacketizer: Send {
    /// A unit begins with this payload, even if it is not known what came before.
    fn begins_unit(&self, payload: &[u8]) -> bool;

    /// A unit in which decoding may start begins with this payload.
    fn starts_keyframe(&self, payload: &[u8]) -> bool;

    /// Returns the part of a picture that this payload holds.
    fn part(&self, _payload: &[u8]) -> PayloadPart {
        PayloadPart::Some
    }

    /// Another unit than the one being gathered begins here, whatever its time.
    fn begins_another(&self, _payload: &[u8]) -> bool {
        false
    }

    /// Takes the next payload of the unit.
    fn push(&mut self, payload: &[u8]) -> Result<(), DepacketizeError>;

    /// Part of a picture is there, not only what precedes one.
    fn has_picture(&self) -> bool;

    /// No more packets of the unit come.
    fn finish(&mut self) -> DepacketizeResult;

    /// Forgets the unit.
    fn reset(&mut self);
}

/// The depacketizer for `codec`; `None` for what is not served over RTP.
///
/// `parameter_sets` are NAL units that the session description gave.
pub(super) fn of(codec: Codec, parameter_sets: &[Vec<u8>]) -> Option<Box<dyn Depacketizer>> {
    Some(match codec {
        Codec::H264 => Box::new(h264::H264Depacketizer::new(parameter_sets)),
        Codec::H265 => Box::new(h265::H265Depacketizer::new(parameter_sets)),
        Codec::Vp8 => Box::new(vp8::depacketizer()),
        Codec::Vp9 => Box::new(vp9::depacketizer()),
        Codec::Av1 => Box::new(av1::Av1Depacketizer::default()),
        Codec::Mpeg4 | Codec::Mjpeg => return None,
    })
}

/// The bytes of a unit while it is gathered.
#[derive(Debug, Default)]
struct Gathered {
    data: Vec<u8>,
    /// Size of the last units, and a bit more.
    expected: usize,
}

impl Gathered {
    fn extend(&mut self, bytes: &[u8]) -> Result<(), DepacketizeError> {
        if self.data.len() + bytes.len() > UNIT_BYTES_MAX {
            return Err(DepacketizeError::TooLarge);
        }
        if self.data.capacity() == 0 {
            self.data.reserve(self.expected);
        }
        self.data.extend_from_slice(bytes);
        Ok(())
    }

    /// Starts a NAL unit; returns where it begins.
    fn begin_nal(&mut self) -> Result<usize, DepacketizeError> {
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

    /// The unit as a frame that says itself whether decoding can start with it; `None` when empty.
    fn take_frame(&mut self, is_key: fn(&[u8]) -> bool) -> Option<DepacketizedUnit> {
        let data = self.take();
        let is_start = is_key(&data);
        let role = if is_start { UnitKind::Start { breaks_link: false } } else { UnitKind::Other };
        Some(DepacketizedUnit { data, role }).filter(|picture| !picture.data.is_empty())
    }

    /// The unit after `prefix`.
    fn take_after(&mut self, prefix: &[u8]) -> Result<Vec<u8>, DepacketizeError> {
        if prefix.len() + self.data.len() > UNIT_BYTES_MAX {
            return Err(DepacketizeError::TooLarge);
        }
        let mut data = self.take();
        data.splice(0..0, prefix.iter().copied());
        Ok(data)
    }

    fn clear(&mut self) {
        self.data.clear();
    }
}
