//! Gathering of frames whose payloads have a descriptor: VP8 and VP9.

use super::{DepacketizeResult, DepacketizedUnit, Depacketizer, Gathered, Malformed, UnitKind};

/// Payload without its descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part<'a> {
    pub(super) begins_frame: bool,
    /// Spatial layer; only layer 0 is kept.
    pub(super) spatial_layer: u8,
    pub(super) bytes: &'a [u8],
}

impl Part<'_> {
    /// Returns the part; `None` if no bytes follow the descriptor.
    pub(super) fn if_any(self) -> Option<Self> {
        Some(self).filter(|part| !part.bytes.is_empty())
    }

    fn begins_unit(&self) -> bool {
        self.begins_frame && self.spatial_layer == 0
    }
}

/// Depacketizer that gathers one frame.
#[derive(Debug)]
pub(super) struct Vpx {
    unit: Gathered,
    part: fn(&[u8]) -> Option<Part<'_>>,
    is_key: fn(&[u8]) -> bool,
}

impl Vpx {
    /// Creates the depacketizer; `part` removes the descriptor, `is_key` reads a frame's first bytes.
    pub(super) fn new(part: fn(&[u8]) -> Option<Part<'_>>, is_key: fn(&[u8]) -> bool) -> Vpx {
        Vpx { unit: Gathered::default(), part, is_key }
    }
}

impl Depacketizer for Vpx {
    fn begins_unit(&self, payload: &[u8]) -> bool {
        (self.part)(payload).is_some_and(|part| part.begins_unit())
    }

    fn starts_keyframe(&self, payload: &[u8]) -> bool {
        (self.part)(payload).is_some_and(|part| part.begins_unit() && (self.is_key)(part.bytes))
    }

    fn begins_another(&self, payload: &[u8]) -> bool {
        self.unit.len() > 0 && self.begins_unit(payload)
    }

    fn push(&mut self, payload: &[u8]) -> Result<(), Malformed> {
        let part = (self.part)(payload).ok_or(Malformed)?;
        if part.spatial_layer > 0 {
            return Ok(());
        }
        if part.begins_frame != (self.unit.len() == 0) {
            return Err(Malformed);
        }
        self.unit.extend(part.bytes)
    }

    fn has_picture(&self) -> bool {
        self.unit.len() > 0
    }

    fn finish(&mut self) -> DepacketizeResult {
        let data = self.unit.take();
        let is_start = (self.is_key)(&data);
        let role = if is_start { UnitKind::Start { breaks_link: false } } else { UnitKind::Other };
        Ok(Some(DepacketizedUnit { data, role }).filter(|picture| !picture.data.is_empty()))
    }

    fn reset(&mut self) {
        self.unit.clear();
    }
}
