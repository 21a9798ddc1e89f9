//! The records of the HTTP API that the command line reads, and writes in `--json`.
//!
//! Unknown fields are ignored, as the contract asks of every consumer.

use media::{Activity, CellBox, EventType, Marker, Score, Signal};
use serde::{Deserialize, Serialize};
use serde_json::{Value, value::RawValue};

/// A marker as `GET /v1/runs/{id}/markers` gives it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MarkerRecord {
    pub marker_id: String,
    pub run_id: String,
    pub stream_id: String,
    pub event_type: String,
    pub status: String,
    pub start_frame: u64,
    pub end_frame: u64,
    pub start_pts_ms: i64,
    pub end_pts_ms: i64,
    pub confidence: f64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supersedes_marker_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub analysis_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
}

impl From<&Marker> for MarkerRecord {
    fn from(marker: &Marker) -> MarkerRecord {
        MarkerRecord {
            marker_id: marker.marker_id.to_string(),
            run_id: marker.run_id.to_string(),
            stream_id: marker.stream_id.to_string(),
            event_type: marker.event_type.as_str().to_owned(),
            status: marker.status.as_str().to_owned(),
            start_frame: marker.start_frame,
            end_frame: marker.end_frame,
            start_pts_ms: marker.start_pts_ms,
            end_pts_ms: marker.end_pts_ms,
            confidence: marker.confidence.as_f64(),
            supersedes_marker_id: marker.supersedes_marker_id.map(|id| id.to_string()),
            analysis_id: marker.analysis_id.map(|id| id.to_string()),
            origin: marker.origin.map(|origin| origin.as_str().to_owned()),
        }
    }
}

impl MarkerRecord {
    /// The type as the vocabulary knows it.
    pub fn kind(&self) -> EventType {
        EventType::from_name(&self.event_type)
    }
}

/// One entry of the `signals` array of `frames_decoded`.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    pub activity_region: Option<Region>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub activity_zones: Vec<u16>,
}

/// Part of the picture, in fractions of its sides.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Region {
    pub x: f64,
    pub y: f64,
    pub width: f64,
    pub height: f64,
}

impl From<CellBox> for Region {
    fn from(cells: CellBox) -> Region {
        let [x, y, width, height] = cells.fractions().map(Score::as_f64);
        Region { x, y, width, height }
    }
}

impl Region {
    fn cells(&self) -> Option<CellBox> {
        let side = |value| Score::from_f64(value).ok();
        let sides = [side(self.x)?, side(self.y)?, side(self.width)?, side(self.height)?];
        CellBox::from_fractions(sides).ok()
    }
}

impl From<&Signal> for SignalRecord {
    fn from(signal: &Signal) -> SignalRecord {
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
            activity_region: signal
                .activity
                .map(|activity| activity.region)
                .filter(|cells| !cells.is_empty())
                .map(Region::from),
            activity_zones: signal
                .activity
                .map_or(Vec::new(), |activity| Activity::zone_indices(activity.zones).collect()),
        }
    }
}

impl SignalRecord {
    /// The signal, or `None` where a score or the hash is out of range.
    pub fn signal(&self) -> Option<Signal> {
        // Out of range is the one failure of `from_f64`; the caller reports the whole array.
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
            scene_score: match self.scene_score {
                Some(value) => Some(score(value)?),
                None => None,
            },
            activity: match self.activity_score {
                Some(value) => Some(Activity {
                    score: score(value)?,
                    region: match &self.activity_region {
                        Some(region) => region.cells()?,
                        None => CellBox::default(),
                    },
                    zones: Activity::zone_bits(&self.activity_zones)?,
                }),
                None => None,
            },
        })
    }
}

/// A run record.
#[derive(Debug, Serialize, Deserialize)]
pub struct RunRecord {
    pub run_id: String,
    #[serde(default)]
    pub label: Option<String>,
    pub status: String,
    #[serde(default)]
    pub active_job: Option<Value>,
    #[serde(default)]
    pub mode: Option<String>,
    #[serde(default)]
    pub model: Option<String>,
    #[serde(default)]
    pub source_uri: Option<String>,
    #[serde(default)]
    pub source: Option<String>,
    #[serde(default)]
    pub session_id: Option<String>,
    #[serde(default)]
    pub tenant_id: Option<String>,
    #[serde(default)]
    pub created_at: Option<String>,
    #[serde(default)]
    pub updated_at: Option<String>,
    #[serde(default)]
    pub expires_at: Option<String>,
}

/// An event envelope; the payload stays the bytes the server sent.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventRecord {
    pub seq: u64,
    pub pts_ms: i64,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    pub payload: Box<RawValue>,
}

/// Answer of `POST /v1/query`.
#[derive(Debug, Deserialize)]
pub struct QueryReply {
    pub matches: Vec<EventRecord>,
    pub next_from_seq: u64,
    pub has_more: bool,
}

/// Answer of `GET /v1/runs/{id}/markers`.
#[derive(Debug, Deserialize)]
pub struct MarkersReply {
    pub markers: Vec<MarkerRecord>,
}
