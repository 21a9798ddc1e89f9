//! The columns of the files, and the API's records as rows of them; docs/PARQUET.md tells of each.

use gate::Decision;
use media::{Score, Signal};
use serde::{
    Deserialize, Deserializer,
    de::{IgnoredAny, MapAccess, Visitor},
};
use serde_json::{Map, Value};

use super::table::{Cell, Schema, Table};
use crate::{
    activity::EpisodeRecord,
    error::CliError,
    wire::{MarkerRecord, Region},
};

/// One row a frame.
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
    }",
};

/// One row an episode of activity.
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

/// One row a marker.
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
    }",
};

/// One row an event.
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

/// A frame as `GET /v1/runs/{id}/signals` gives it.
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
                .map(Region::from),
        }
    }
}

impl FrameRow<'_> {
    /// Adds it to `table`.
    pub fn push(&self, table: &mut Table, run: &str, stream: &str) -> Result<(), CliError> {
        let [x, y, width, height] = sides(self.activity_region.as_ref());
        table.push(&[
            run.into(),
            stream.into(),
            self.frame_index.into(),
            self.source_frame_index.into(),
            self.pts_ms.into(),
            // The column is unsigned.
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
        ])
    }
}

/// Left edge, top edge, width and height.
fn sides(region: Option<&Region>) -> [Cell<'static>; 4] {
    let side = |side: fn(&Region) -> f64| region.map(side).into();
    [side(|it| it.x), side(|it| it.y), side(|it| it.width), side(|it| it.height)]
}

/// Adds an episode of `run` to `table`.
pub fn push_episode(table: &mut Table, run: &str, found: &EpisodeRecord) -> Result<(), CliError> {
    let [x, y, width, height] = sides(found.region.as_ref());
    // The writer has no lists.
    let zones = Value::from(found.zones.clone()).to_string();
    table.push(&[
        run.into(),
        found.stream_id.as_str().into(),
        found.start_frame.into(),
        found.end_frame.into(),
        found.start_pts_ms.into(),
        found.end_pts_ms.into(),
        found.peak_score.into(),
        found.peak_frame.into(),
        x,
        y,
        width,
        height,
        zones.as_str().into(),
        found.image_sha256.as_deref().into(),
    ])
}

/// A marker's row.
pub fn marker_cells(marker: &MarkerRecord) -> [Cell<'_>; 13] {
    [
        marker.run_id.as_str().into(),
        marker.stream_id.as_str().into(),
        marker.marker_id.as_str().into(),
        marker.event_type.as_str().into(),
        marker.status.as_str().into(),
        marker.start_frame.into(),
        marker.end_frame.into(),
        marker.start_pts_ms.into(),
        marker.end_pts_ms.into(),
        marker.confidence.into(),
        marker.supersedes_marker_id.as_deref().into(),
        marker.analysis_id.as_deref().into(),
        marker.origin.as_deref().into(),
    ]
}

/// An event as `GET /v1/runs/{id}/events` gives it.
#[derive(Deserialize)]
pub struct EventRow {
    seq: u64,
    pts_ms: i64,
    kind: String,
    payload: Payload,
}

impl EventRow {
    /// The stream whose frames it tells of.
    pub fn stream(&self) -> Option<&str> {
        self.payload.0["stream_id"].as_str().filter(|_| self.kind == "frames_decoded")
    }

    /// Adds it to `table`.
    pub fn push(&self, table: &mut Table, run: &str) -> Result<(), CliError> {
        let payload = self.payload.0.to_string();
        let (seq, appended_at) = (self.seq.into(), self.pts_ms.into());
        table.push(&[
            run.into(),
            seq,
            appended_at,
            self.kind.as_str().into(),
            payload.as_str().into(),
        ])
    }
}

/// A payload without `signals`, which are the rows of another file and may be half a million.
struct Payload(Value);

impl<'de> Deserialize<'de> for Payload {
    fn deserialize<D: Deserializer<'de>>(json: D) -> Result<Payload, D::Error> {
        json.deserialize_map(Fields)
    }
}

struct Fields;

impl<'de> Visitor<'de> for Fields {
    type Value = Payload;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a payload")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut fields: A) -> Result<Payload, A::Error> {
        let mut kept = Map::new();
        while let Some(name) = fields.next_key::<String>()? {
            if name == "signals" {
                fields.next_value::<IgnoredAny>()?;
            } else {
                let value = fields.next_value()?;
                kept.insert(name, value);
            }
        }
        Ok(Payload(Value::Object(kept)))
    }
}
