//! Columns of each kind of file, and the conversion of a frame to a row.

use gate::Decision;
use media::{Score, Signal};
use serde::{Deserialize, Deserializer};

use crate::table::{Cell, Schema, Table, TableError};

/// Schema of `frames.parquet`: one row per frame.
pub const FRAMES: Schema = Schema {
    name: "frames",
    message: "message frames {
        required binary run_id (STRING);
        required binary stream_id (STRING);
        required int64 frame_index;
        optional int64 source_frame_index;
        required int64 pts_ms;
        required int64 perceptual_hash (INTEGER(64,false));
        required double luma_mean;
        required double flicker_score;
        required double ghosting_score;
        required double noise_variance_score;
        optional double scene_score;
        required boolean kept;
        required binary reason (STRING);
        optional double activity_score;
        optional double activity_x;
        optional double activity_y;
        optional double activity_width;
        optional double activity_height;
        optional int64 seq;
    }",
};

/// Schema of `episodes.parquet`: one row per episode of activity.
pub const EPISODES: Schema = Schema {
    name: "episodes",
    message: "message episodes {
        required binary run_id (STRING);
        required binary stream_id (STRING);
        required int64 start_frame;
        optional int64 end_frame;
        required int64 start_pts_ms;
        optional int64 end_pts_ms;
        required double peak_score;
        required int64 peak_frame;
        optional double activity_x;
        optional double activity_y;
        optional double activity_width;
        optional double activity_height;
        required binary zones (STRING);
        optional binary image_sha256 (STRING);
    }",
};

/// Schema of `markers.parquet`: one row per marker.
pub const MARKERS: Schema = Schema {
    name: "markers",
    message: "message markers {
        required binary run_id (STRING);
        required binary stream_id (STRING);
        required binary marker_id (STRING);
        required binary event_type (STRING);
        required binary status (STRING);
        required int64 start_frame;
        required int64 end_frame;
        required int64 start_pts_ms;
        required int64 end_pts_ms;
        required double confidence;
        optional binary supersedes_marker_id (STRING);
        optional binary analysis_id (STRING);
        optional binary origin (STRING);
        optional int64 seq;
        optional int64 appended_at (TIMESTAMP(MILLIS,true));
    }",
};

/// Schema of `events.parquet`: one row per event.
pub const EVENTS: Schema = Schema {
    name: "events",
    message: "message events {
        required binary run_id (STRING);
        required int64 seq;
        required int64 appended_at (TIMESTAMP(MILLIS,true));
        required binary kind (STRING);
        required binary payload (STRING);
    }",
};

/// Frame as `GET /v1/runs/{id}/signals` returns it.
#[derive(Deserialize)]
pub struct FrameRow<'a> {
    frame_index: u64,
    source_frame_index: Option<u64>,
    pts_ms: i64,
    #[serde(deserialize_with = "hexadecimal")]
    perceptual_hash: u64,
    luma_mean: f64,
    flicker_score: f64,
    ghosting_score: f64,
    noise_variance_score: f64,
    scene_score: Option<f64>,
    kept: bool,
    reason: std::borrow::Cow<'a, str>,
    #[serde(default)]
    activity_score: Option<f64>,
    #[serde(default)]
    activity_region: Option<Region>,
    /// Sequence number of the event that names the frame; absent from the API's response.
    #[serde(skip)]
    pub seq: Option<u64>,
}

/// Part of the picture, in fractions of its width and height.
#[derive(Deserialize)]
struct Region {
    x: f64,
    y: f64,
    width: f64,
    height: f64,
}

fn hexadecimal<'de, D: Deserializer<'de>>(json: D) -> Result<u64, D::Error> {
    let text = String::deserialize(json)?;
    u64::from_str_radix(&text, 16).map_err(serde::de::Error::custom)
}

impl From<(&Signal, &Decision)> for FrameRow<'static> {
    fn from((signal, decision): (&Signal, &Decision)) -> Self {
        FrameRow {
            frame_index: signal.frame_index,
            source_frame_index: signal.source_frame_index,
            pts_ms: signal.pts_ms,
            perceptual_hash: signal.perceptual_hash,
            luma_mean: signal.luma_mean.as_f64(),
            flicker_score: signal.flicker_score.as_f64(),
            ghosting_score: signal.ghosting_score.as_f64(),
            noise_variance_score: signal.noise_variance_score.as_f64(),
            scene_score: signal.scene_score.map(Score::as_f64),
            kept: decision.selected,
            reason: decision.reason.as_str().into(),
            activity_score: signal.activity.map(|activity| activity.score.as_f64()),
            activity_region: signal
                .activity
                .map(|activity| activity.region)
                .filter(|region| !region.is_empty())
                .map(|cells| {
                    let [x, y, width, height] = cells.fractions().map(Score::as_f64);
                    Region { x, y, width, height }
                }),
            seq: None,
        }
    }
}

impl FrameRow<'_> {
    /// Appends the frame to `table` as a row.
    pub fn push(&self, table: &mut Table, run: &str, stream: &str) -> Result<(), TableError> {
        let region = self.activity_region.as_ref();
        let [x, y, width, height] = sides(region.map(|it| [it.x, it.y, it.width, it.height]));
        table.push(&[
            run.into(),
            stream.into(),
            self.frame_index.into(),
            self.source_frame_index.into(),
            self.pts_ms.into(),
            // The column is unsigned, so the cast keeps the bits.
            self.perceptual_hash.cast_signed().into(),
            self.luma_mean.into(),
            self.flicker_score.into(),
            self.ghosting_score.into(),
            self.noise_variance_score.into(),
            self.scene_score.into(),
            self.kept.into(),
            self.reason.as_ref().into(),
            self.activity_score.into(),
            x,
            y,
            width,
            height,
            self.seq.into(),
        ])
    }
}

/// Returns the cells of a region: left edge, top edge, width and height, in fractions of the picture.
pub fn sides(region: Option<[f64; 4]>) -> [Cell<'static>; 4] {
    region.map_or([const { Cell::Null }; 4], |sides| sides.map(Cell::Real))
}
