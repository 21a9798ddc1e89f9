//! The coded bytes of one picture.

use crate::{Codec, Timestamp};

/// All coded bytes of one picture: Annex B for H.264 and H.265, a temporal unit for AV1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccessUnit {
    /// Codec of the bytes.
    pub codec: Codec,
    /// Presentation time.
    pub pts: Timestamp,
    /// True if decoding can start with this picture.
    pub keyframe: bool,
    /// The coded bytes.
    pub data: Vec<u8>,
}
