//! Gate thresholds chosen by a caller, for one analysis or one recording.

use gate::GateConfig;

use super::prelude::*;
use crate::base::model_catalog::Mode;

/// Maximum of `keepalive_frames`.
pub const KEEPALIVE_FRAMES_MAX: u64 = 1_000_000;

/// Maximum distance between kept frames, in frames; 0 turns it off.
pub type KeepaliveFrames = BoundedInt<0, KEEPALIVE_FRAMES_MAX>;
/// Interval between kept frames in media time, milliseconds.
pub type KeepaliveMs = BoundedInt<1, 3_600_000>;

/// Thresholds that override those of the mode or of the recording; missing ones stay unchanged. Other fields
/// are refused.
#[derive(Default, ToSchema)]
pub struct GateOverrides {
    /// Maximum distance between kept frames, in frames; 0 turns it off.
    #[schema(inline)]
    keepalive_frames: Option<KeepaliveFrames>,
    /// Keeps the first frame at or after each multiple of this media time, in milliseconds; replaces
    /// `keepalive_frames` if that is missing.
    #[schema(inline)]
    keepalive_ms: Option<KeepaliveMs>,
    /// Minimum `scene_score` of a scene cut.
    scene_cut: Option<schema_types::Fraction>,
    /// Minimum `activity_score` that starts an episode.
    activity_on: Option<schema_types::Fraction>,
    /// Score below which `activity_score` must stay for a second to end an episode; at most `activity_on`.
    activity_off: Option<schema_types::Fraction>,
    /// Minimum change of `luma_mean` between frames that is an exposure shift if it lasts a second.
    luma_shift: Option<schema_types::Fraction>,
    /// Minimum `flicker_score` of suspected flicker.
    flicker: Option<schema_types::Fraction>,
    /// Minimum `ghosting_score` of suspected ghosting.
    ghosting: Option<schema_types::Fraction>,
    /// Minimum `noise_variance_score` of a noise spike.
    noise: Option<schema_types::Fraction>,
}

declared!(GateOverrides {
    keepalive_frames, keepalive_ms, scene_cut, activity_on, activity_off, luma_shift, flicker, ghosting, noise,
}; closed);

impl GateOverrides {
    /// Returns `base` with the chosen thresholds.
    pub fn of(self, base: GateConfig) -> GateConfig {
        // If only one of the two intervals is chosen, it replaces both.
        let (frames, ms) = match (self.keepalive_frames, self.keepalive_ms) {
            (None, None) => (base.keepalive_frames, base.keepalive_ms),
            (frames, ms) => {
                (frames.map_or(0, |BoundedInt(n)| n as u32), ms.map(|BoundedInt(n)| n as u32))
            }
        };
        let of = |chosen: Option<schema_types::Fraction>, base| chosen.map_or(base, |it| it.0);
        GateConfig {
            keepalive_frames: frames,
            keepalive_ms: ms,
            scene_cut: of(self.scene_cut, base.scene_cut),
            activity_on: of(self.activity_on, base.activity_on),
            activity_off: of(self.activity_off, base.activity_off),
            luma_shift: of(self.luma_shift, base.luma_shift),
            flicker: of(self.flicker, base.flicker),
            ghosting: of(self.ghosting, base.ghosting),
            noise: of(self.noise, base.noise),
        }
    }
}

/// Returns the thresholds of `mode`: the server's, with the interval between kept frames of the mode.
pub fn preset(mode: Mode, server: GateConfig) -> GateConfig {
    let (keepalive_frames, keepalive_ms) = match mode {
        Mode::Balanced | Mode::Custom => (server.keepalive_frames, server.keepalive_ms),
        Mode::Detailed => (30, None),
        Mode::Efficiency => (0, Some(10_000)),
    };
    GateConfig { keepalive_frames, keepalive_ms, ..server }
}

/// Returns the thresholds of a recording from its mode and the chosen overrides.
pub fn chosen(gate: Option<GateOverrides>, mode: Option<Mode>, server: GateConfig) -> GateConfig {
    gate.unwrap_or_default().of(preset(mode.unwrap_or_default(), server))
}

/// Thresholds in use.
#[derive(Serialize, ToSchema)]
pub struct GateThresholds {
    /// Maximum distance between kept frames, in frames; 0 turns it off.
    keepalive_frames: u32,
    /// The first frame at or after each multiple of this media time, in milliseconds, is kept; null, in events
    /// absent, turns it off.
    #[schema(inline, value_type = Option<KeepaliveMs>)]
    keepalive_ms: Option<u32>,
    /// Minimum `scene_score` of a scene cut.
    scene_cut: schema_types::Fraction,
    /// Minimum `activity_score` that starts an episode.
    activity_on: schema_types::Fraction,
    /// An episode ends when `activity_score` stays below this for one second.
    activity_off: schema_types::Fraction,
    /// Minimum change of `luma_mean` between frames that is an exposure shift if it lasts a second.
    luma_shift: schema_types::Fraction,
    /// Minimum `flicker_score` of suspected flicker.
    flicker: schema_types::Fraction,
    /// Minimum `ghosting_score` of suspected ghosting.
    ghosting: schema_types::Fraction,
    /// Minimum `noise_variance_score` of a noise spike.
    noise: schema_types::Fraction,
}

impl From<GateConfig> for GateThresholds {
    fn from(gate: GateConfig) -> GateThresholds {
        GateThresholds {
            keepalive_frames: gate.keepalive_frames,
            keepalive_ms: gate.keepalive_ms,
            scene_cut: gate.scene_cut.into(),
            activity_on: gate.activity_on.into(),
            activity_off: gate.activity_off.into(),
            luma_shift: gate.luma_shift.into(),
            flicker: gate.flicker.into(),
            ghosting: gate.ghosting.into(),
            noise: gate.noise.into(),
        }
    }
}
