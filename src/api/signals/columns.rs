//! Signals as columns: the records of the JSON answer as an Arrow stream.

use axum::response::Response;
use gate::SelectionReason;
use http::{HeaderMap, header};
use serde::Serialize;
use serde_json::{Map, Value};

use super::super::{
    error::ApiError,
    streamed_json::{READING_BYTES, sent},
};
use crate::base::arrow::{self, Column, Kind, ROWS_MAX};

/// Media type of an Arrow IPC stream.
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Returns true if the `Accept` header prefers Arrow to JSON, or both equally.
pub fn wants_arrow(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut arrow, mut json) = (0.0, 0.0);
    for range in given.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        match &*name {
            ARROW => arrow = quality,
            "application/json" => json = quality,
            _ => {}
        }
    }
    arrow > 0.0 && arrow >= json
}

const fn column(path: &'static str, kind: Kind) -> Column {
    Column { path, kind, is_nullable: false }
}

const fn nullable(path: &'static str, kind: Kind) -> Column {
    Column { path, kind, is_nullable: true }
}

/// Columns of frames.
pub const OF_FRAMES: [Column; 16] = [
    column("frame_index", Kind::Unsigned),
    nullable("source_frame_index", Kind::Unsigned),
    column("pts_ms", Kind::Signed),
    column("perceptual_hash", Kind::Text),
    column("luma_mean", Kind::Number),
    column("flicker_score", Kind::Number),
    column("ghosting_score", Kind::Number),
    column("noise_variance_score", Kind::Number),
    nullable("scene_score", Kind::Number),
    nullable("activity_score", Kind::Number),
    nullable("activity_region.x", Kind::Number),
    nullable("activity_region.y", Kind::Number),
    nullable("activity_region.width", Kind::Number),
    nullable("activity_region.height", Kind::Number),
    column("kept", Kind::Flag),
    column("reason", Kind::Text),
];

/// Columns of buckets, without the counts of reasons.
const OF_BUCKETS: [Column; 24] = [
    column("first_frame", Kind::Unsigned),
    column("last_frame", Kind::Unsigned),
    column("start_pts_ms", Kind::Signed),
    column("end_pts_ms", Kind::Signed),
    column("frames", Kind::Unsigned),
    column("kept_frames", Kind::Unsigned),
    column("luma_mean.min", Kind::Number),
    column("luma_mean.max", Kind::Number),
    column("luma_mean.mean", Kind::Number),
    column("flicker_score.min", Kind::Number),
    column("flicker_score.max", Kind::Number),
    column("flicker_score.mean", Kind::Number),
    column("ghosting_score.min", Kind::Number),
    column("ghosting_score.max", Kind::Number),
    column("ghosting_score.mean", Kind::Number),
    column("noise_variance_score.min", Kind::Number),
    column("noise_variance_score.max", Kind::Number),
    column("noise_variance_score.mean", Kind::Number),
    nullable("scene_score.min", Kind::Number),
    nullable("scene_score.max", Kind::Number),
    nullable("scene_score.mean", Kind::Number),
    nullable("activity_score.min", Kind::Number),
    nullable("activity_score.max", Kind::Number),
    nullable("activity_score.mean", Kind::Number),
];

/// Returns the columns of buckets; the counts of each reason come last.
pub fn of_buckets() -> Vec<Column> {
    let reasons =
        SelectionReason::ALL.into_iter().map(|reason| column(counted(reason), Kind::Unsigned));
    OF_BUCKETS.into_iter().chain(reasons).collect()
}

fn counted(reason: SelectionReason) -> &'static str {
    match reason {
        SelectionReason::InitialFrame => "reasons.initial_frame",
        SelectionReason::SceneCut => "reasons.scene_cut",
        SelectionReason::ActivityStarted => "reasons.activity_started",
        SelectionReason::ActivityPeak => "reasons.activity_peak",
        SelectionReason::ActivitySettled => "reasons.activity_settled",
        SelectionReason::PeriodicKeepalive => "reasons.periodic_keepalive",
        SelectionReason::ExposureShift => "reasons.exposure_shift",
        SelectionReason::FlickerSuspected => "reasons.flicker_suspected",
        SelectionReason::GhostingSuspected => "reasons.ghosting_suspected",
        SelectionReason::NoiseVarianceSpike => "reasons.noise_variance_spike",
        SelectionReason::NoTrigger => "reasons.no_trigger",
    }
}

/// Streams `records` as Arrow batches; `about` becomes the metadata of the schema.
pub fn answer<T: Serialize>(
    columns: Vec<Column>,
    about: &Map<String, Value>,
    mut records: impl Iterator<Item = Result<T, ApiError>> + Send + 'static,
) -> Result<Response, ApiError> {
    let schema = arrow::schema(&columns, about);
    let batches = std::iter::from_fn(move || {
        let rows = records.by_ref().take(ROWS_MAX).map(|record| {
            let row = serde_json::to_value(record?);
            Ok(row.expect("our own types with string keys are writable"))
        });
        match rows.collect::<Result<Vec<Value>, ApiError>>() {
            Ok(rows) if rows.is_empty() => None,
            Ok(rows) => Some(Ok(arrow::batch(&columns, &rows))),
            Err(error) => Some(Err(error)),
        }
    });
    let parts =
        std::iter::once(Ok(schema)).chain(batches).chain(std::iter::once_with(|| Ok(arrow::end())));
    sent(ARROW, Box::new(parts.fuse()), READING_BYTES)
}
