//! Thresholds of the gate as options of several commands.

use gate::GateConfig;
use media::Score;
use serde::Serialize;
use serde_json::{Value, json};

use crate::client::given;

const KEEPALIVE_FRAMES_MAX: i64 = 1_000_000;
const KEEPALIVE_MS_MAX: i64 = 3_600_000;

/// Thresholds in place of the defaults, which are 2 s and the scores named here, or what the
/// server is set to; it knows each by the same name in `gate`.
#[derive(clap::Args, Clone, Copy, Debug, Default, PartialEq, Serialize)]
#[command(next_help_heading = "Thresholds")]
pub struct GateArgs {
    /// Keep a frame at least every N frames; 0 is never
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=KEEPALIVE_FRAMES_MAX))]
    keepalive_frames: Option<u32>,
    /// Keep the first frame at or after each multiple of MS milliseconds, in place of one every N frames
    /// [default: 2000, or the server's]
    #[arg(long, value_name = "MS", value_parser = clap::value_parser!(u32).range(1..=KEEPALIVE_MS_MAX))]
    keepalive_ms: Option<u32>,
    /// Least scene score of a cut, 0 to 1 [default: 0.5]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    scene_cut: Option<f64>,
    /// Least activity score that starts an episode, 0 to 1 [default: 0.0015]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    activity_on: Option<f64>,
    /// An episode ends where the activity score stays below this, 0 to 1 [default: 0.0011]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    activity_off: Option<f64>,
    /// Least step of mean luma that is an exposure shift once it has stayed for a second, 0 to 1 [default: 0.15]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    luma_shift: Option<f64>,
    /// Least score of suspected flicker, 0 to 1 [default: 0.55]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    flicker: Option<f64>,
    /// Least score of suspected ghosting, 0 to 1 [default: 0.55]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    ghosting: Option<f64>,
    /// Least score of a noise spike, 0 to 1 [default: 0.55]
    #[arg(long, value_name = "SCORE", value_parser = score)]
    noise: Option<f64>,
}

fn score(text: &str) -> Result<f64, String> {
    let found = text.parse().ok().filter(|found| Score::from_f64(*found).is_ok());
    found.ok_or_else(|| "must lie in 0 to 1".to_owned())
}

impl GateArgs {
    /// Returns the thresholds to send as `gate`; `None` leaves them to the server.
    pub fn chosen(self) -> Option<Value> {
        (self != GateArgs::default()).then(|| given(json!(self)))
    }

    /// Returns the defaults, overridden by the options given.
    pub fn config(self) -> GateConfig {
        let base = GateConfig::default();
        // The argument parser has accepted only valid scores.
        let or = |chosen: Option<f64>, base| {
            chosen.and_then(|chosen| Score::from_f64(chosen).ok()).unwrap_or(base)
        };
        // If only one of the two keepalives is given, the other is off.
        let (frames, ms) = match (self.keepalive_frames, self.keepalive_ms) {
            (None, None) => (base.keepalive_frames, base.keepalive_ms),
            (frames, ms) => (frames.unwrap_or(0), ms),
        };
        GateConfig {
            keepalive_frames: frames,
            keepalive_ms: ms,
            scene_cut: or(self.scene_cut, base.scene_cut),
            activity_on: or(self.activity_on, base.activity_on),
            activity_off: or(self.activity_off, base.activity_off),
            luma_shift: or(self.luma_shift, base.luma_shift),
            flicker: or(self.flicker, base.flicker),
            ghosting: or(self.ghosting, base.ghosting),
            noise: or(self.noise, base.noise),
        }
    }
}
