//! Thresholds of the gate with their units and defaults.

use crate::Score;

/// Thresholds by which the gate selects a frame and names its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct GateConfig {
    /// Largest interval between selected frames, in frames counted from the first; 0 disables it.
    pub keepalive_frames: u32,
    /// Interval in ms of media time; selects the first frame at or after each multiple. `None` disables it.
    pub keepalive_ms: Option<u32>,
    /// `scene_score` at or above which a frame is a scene cut.
    pub scene_cut: Score,
    /// Least step of `luma_mean` between frames that counts as an exposure shift if it lasts for a second.
    pub luma_shift: Score,
    /// `activity_score` at or above which an episode starts.
    pub activity_on: Score,
    /// `activity_score` below which an episode ends if it stays there.
    pub activity_off: Score,
    /// `flicker_score` at or above which flicker is suspected.
    pub flicker: Score,
    /// `ghosting_score` at or above which ghosting is suspected.
    pub ghosting: Score,
    /// `noise_variance_score` at or above which a frame is a noise spike.
    pub noise: Score,
}

impl GateConfig {
    /// Returns the score below which a frame is quiet: `activity_off`, but at most `activity_on`.
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
