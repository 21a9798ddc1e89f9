//! Normalised per-frame record, the input of every gate decision.

use crate::{Activity, Score};

/// Signal of one analysed frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Signal {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Position among the source's frames in presentation order; `None` if unknown.
    pub source_frame_index: Option<u64>,
    /// Presentation time in whole milliseconds.
    pub pts_ms: i64,
    /// 64-bit perceptual hash; similar pictures differ in few bits.
    pub perceptual_hash: u64,
    /// Mean luma over the picture.
    pub luma_mean: Score,
    /// Strength of periodic brightness change.
    pub flicker_score: Score,
    /// Strength of a mixture of neighbouring pictures.
    pub ghosting_score: Score,
    /// Strength of frame-to-frame noise.
    pub noise_variance_score: Score,
    /// Strength of a hard transition at this frame; `None` if the caller gave none.
    pub scene_score: Option<Score>,
    /// Movement; `None` if the caller or an older recording gave none.
    pub activity: Option<Activity>,
}

impl Signal {
    /// Returns the signal of a black picture without activity, as a base for tests and examples.
    pub fn plain(frame_index: u64, pts_ms: i64) -> Signal {
        Signal { frame_index, pts_ms, ..Signal::default() }
    }
}
