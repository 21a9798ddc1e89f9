//! Thresholds of the gate with their units and defaults.

use crate::Score;

/// Thresholds by which the gate selects a frame and names its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateConfig {
    /// A frame is selected at least every so many frames, counted from the first; 0 means never.
    pub keepalive_frames: u32,
    /// The first frame at or after each multiple of so many milliseconds of media time is selected.
    pub keepalive_ms: Option<u32>,
    /// Least `scene_score` of a scene cut.
    pub scene_cut: Score,
    /// Least step of `luma_mean` from frame to frame that is an exposure shift once it has stayed for a second.
    pub luma_shift: Score,
    /// Least `activity_score` that starts an episode.
    pub activity_on: Score,
    /// An episode ends where `activity_score` stays below this.
    pub activity_off: Score,
    /// Least `flicker_score` of suspected flicker.
    pub flicker: Score,
    /// Least `ghosting_score` of suspected ghosting.
    pub ghosting: Score,
    /// Least `noise_variance_score` of a noise spike.
    pub noise: Score,
}

impl GateConfig {
    /// Score below which a frame is quiet: never above what starts an episode.
    pub fn quiet_below(&self) -> Score {
        self.activity_off.min(self.activity_on)
    }
}

impl Default for GateConfig {
    fn default() -> GateConfig {
        let artifact = Score::from_millionths(550_000);
        GateConfig {
            keepalive_frames: 0,
            keepalive_ms: Some(2000),
            scene_cut: Score::from_millionths(500_000),
            luma_shift: Score::from_millionths(150_000),
            activity_on: Score::from_millionths(1_500),
            activity_off: Score::from_millionths(1_100),
            flicker: artifact,
            ghosting: artifact,
            noise: artifact,
        }
    }
}
