//! Signals as columns: the records of the JSON answer as an Arrow stream.

use gate::SelectionReason;
use serde_json::Map;

use super::super::streamed_json::sent;
use crate::{
    api::prelude::*,
    base::arrow::{self, Column, Kind, ROWS_MAX},
};

/// Media type of an Arrow IPC stream.
pub const ARROW: &str = "application/vnd.apache.arrow.stream";

/// Returns true if the `Accept` header prefers Arrow to JSON, or both equally; `*/*` stands for JSON.
pub fn wants_arrow(headers: &HeaderMap) -> bool {
    let given = headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok());
    let (mut arrow, mut json, mut application, mut any) = (0.0, None, None, 0.0);
    for range in given.flat_map(|value| value.split(',')) {
        let mut parts = range.split(';').map(str::trim);
        let name = parts.next().unwrap_or_default().to_ascii_lowercase();
        let quality = parts.find_map(|part| part.strip_prefix("q=")?.parse().ok()).unwrap_or(1.0);
        match &*name {
            ARROW => arrow = quality,
            "application/json" => json = Some(quality),
            "application/*" => application = Some(quality),
            "*/*" => any = quality,
            _ => {}
        }
    }
    arrow > 0.0 && arrow >= json.or(application).unwrap_or(any)
}

fn column(path: impl Into<String>, kind: Kind) -> Column {
    Column { path: path.into(), kind, is_nullable: false }
}

fn nullable(path: &str, kind: Kind) -> Column {
    Column { path: path.to_owned(), kind, is_nullable: true }
}

pub fn of_frames() -> Vec<Column> {
    vec![
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
    ]
}

/// Returns the columns of buckets; the counts of each reason come last.
pub fn of_buckets() -> Vec<Column> {
    let spread = |signal: &str, is_nullable| {
        let kind = Kind::Number;
        ["min", "max", "mean"].map(|of| Column {
            path: format!("{signal}.{of}"),
            kind,
            is_nullable,
        })
    };
    let mut columns = vec![
        column("first_frame", Kind::Unsigned),
        column("last_frame", Kind::Unsigned),
        column("start_pts_ms", Kind::Signed),
        column("end_pts_ms", Kind::Signed),
        column("frames", Kind::Unsigned),
        column("kept_frames", Kind::Unsigned),
    ];
    for signal in ["luma_mean", "flicker_score", "ghosting_score", "noise_variance_score"] {
        columns.extend(spread(signal, false));
    }
    for signal in ["scene_score", "activity_score"] {
        columns.extend(spread(signal, true));
    }
    let reasons = SelectionReason::ALL.map(SelectionReason::as_str);
    columns.extend(reasons.map(|name| column(format!("reasons.{name}"), Kind::Unsigned)));
    columns
}

/// Streams `records` as Arrow batches; `about` becomes the metadata of the schema.
pub fn answer<T: Serialize>(
    columns: Vec<Column>,
    about: &Map<String, Value>,
    mut records: impl Iterator<Item = ApiResult<T>> + Send + 'static,
) -> ApiResult {
    let schema = arrow::schema(&columns, about);
    let batches = std::iter::from_fn(move || {
        let rows = records.by_ref().take(ROWS_MAX).map(|record| {
            let row = serde_json::to_value(record?);
            Ok(row.expect("our own types with string keys are writable"))
        });
        match rows.collect::<ApiResult<Vec<Value>>>() {
            Ok(rows) if rows.is_empty() => None,
            Ok(rows) => Some(Ok(arrow::batch(&columns, &rows))),
            Err(error) => Some(Err(error)),
        }
    });
    let parts =
        std::iter::once(Ok(schema)).chain(batches).chain(std::iter::once_with(|| Ok(arrow::end())));
    sent(ARROW, Box::new(parts.fuse()), READING_BYTES)
}
