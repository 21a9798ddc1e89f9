//! JSON form of a signal, in events and wherever else one is written or read.

use media::{Activity, CellBox, Score, Signal};
use serde::{Deserialize, Serialize};

/// Entry of the `signals` array of `frames_decoded`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields of a signal")]
pub struct SignalRecord {
    pub frame_index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_frame_index: Option<u64>,
    pub pts_ms: i64,
    pub perceptual_hash: String,
    pub luma_mean: f64,
    pub flicker_score: f64,
    pub ghosting_score: f64,
    pub noise_variance_score: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scene_score: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity_score: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub activity_region: Option<RegionRecord>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activity_zones: Vec<u16>,
}

/// Region of the picture, in fractions of its sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the sides of a box")]
pub struct RegionRecord {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl From<CellBox> for RegionRecord {
    fn from(cells: CellBox) -> RegionRecord {
        let [x, y, width, height] = cells.fractions().map(Score::as_f64);
        RegionRecord { x, y, width, height }
    }
}

impl RegionRecord {
    pub(super) fn cells(&self) -> Option<CellBox> {
        let [x, y, width, height] =
            [self.x, self.y, self.width, self.height].map(|side| Score::from_f64(side).ok());
        // A box outside the picture is the only failure; the caller reports the whole row.
        CellBox::from_fractions([x?, y?, width?, height?]).ok()
    }
}

impl From<&Signal> for SignalRecord {
    fn from(signal: &Signal) -> SignalRecord {
        let region = signal.activity.map(|activity| activity.region);
        let zones = signal.activity.map_or(0, |activity| activity.zones);
        SignalRecord {
            frame_index: signal.frame_index,
            source_frame_index: signal.source_frame_index,
            pts_ms: signal.pts_ms,
            perceptual_hash: format!("{:016x}", signal.perceptual_hash),
            luma_mean: signal.luma_mean.as_f64(),
            flicker_score: signal.flicker_score.as_f64(),
            ghosting_score: signal.ghosting_score.as_f64(),
            noise_variance_score: signal.noise_variance_score.as_f64(),
            scene_score: signal.scene_score.map(Score::as_f64),
            activity_score: signal.activity.map(|activity| activity.score.as_f64()),
            activity_region: region.filter(|cells| !cells.is_empty()).map(Into::into),
            activity_zones: Activity::zone_indices(zones).collect(),
        }
    }
}

impl SignalRecord {
    /// Returns the signal; `None` if a score or the hash is out of range.
    pub fn signal(&self) -> Option<Signal> {
        // A score outside [0, 1] makes the row invalid; the caller does not need to know which.
        let score = |value| Score::from_f64(value).ok();
        Some(Signal {
            frame_index: self.frame_index,
            source_frame_index: self.source_frame_index,
            pts_ms: self.pts_ms,
            perceptual_hash: u64::from_str_radix(&self.perceptual_hash, 16).ok()?,
            luma_mean: score(self.luma_mean)?,
            flicker_score: score(self.flicker_score)?,
            ghosting_score: score(self.ghosting_score)?,
            noise_variance_score: score(self.noise_variance_score)?,
            scene_score: self.scene_score.map(|value| score(value).ok_or(())).transpose().ok()?,
            activity: match self.activity_score {
                None => None,
                Some(value) => Some(Activity {
                    score: score(value)?,
                    region: self
                        .activity_region
                        .as_ref()
                        .map_or(Some(CellBox::default()), RegionRecord::cells)?,
                    zones: Activity::zone_bits(&self.activity_zones)?,
                }),
            },
        })
    }
}
