//! Converts the API's records to rows of the files.

use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tables::{Cell, Table, TableError, sides};

use crate::{activity::EpisodeRecord, analysis::STREAM, wire::MarkerRecord};

pub fn push_episode(table: &mut Table, run: &str, found: &EpisodeRecord) -> Result<(), TableError> {
    let region = found.region.as_ref();
    let [x, y, width, height] = sides(region.map(|it| [it.x, it.y, it.width, it.height]));
    // As JSON, because the writer does not support lists.
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

/// Returns a marker's row; its event and time are null, as the API does not give them.
pub fn marker_cells(marker: &MarkerRecord) -> [Cell<'_>; 15] {
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
        Cell::Null,
        Cell::Null,
    ]
}

/// Event, as in the response of `GET /v1/runs/{id}/events`.
#[derive(Deserialize)]
pub struct EventRow {
    seq: u64,
    pts_ms: i64,
    kind: String,
    payload: Payload,
}

impl EventRow {
    /// Returns the stream, if this is the event of its frames, or of the beginning of their recording.
    pub fn stream(&self) -> Option<&str> {
        let payload = &self.payload.kept;
        match self.kind.as_str() {
            "frames_decoded" => payload["stream_id"].as_str(),
            "ingest_started" => payload["ingest"]["stream_id"].as_str().or(Some(STREAM)),
            _ => None,
        }
    }

    pub fn push(&self, table: &mut Table, run: &str) -> Result<(), TableError> {
        let payload = self.payload.kept.to_string();
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

/// Payload without `signals`, up to half a million, which are rows of another file.
#[derive(Deserialize)]
struct Payload {
    #[serde(rename = "signals", default)]
    _signals: IgnoredAny,
    #[serde(flatten)]
    kept: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_recording_that_goes_on_has_a_stream_too() {
        let rows = [
            ("frames_decoded", json!({ "stream_id": "a", "signals": [] }), Some("a")),
            ("ingest_started", json!({ "ingest": { "stream_id": "b" } }), Some("b")),
            ("ingest_started", json!({ "ingest": {} }), Some(STREAM)),
            ("activity_started", json!({ "stream_id": "c" }), None),
        ];
        for (kind, payload, expected) in rows {
            let row = json!({ "seq": 1, "pts_ms": 2, "kind": kind, "payload": payload });
            let row: EventRow = serde_json::from_value(row).expect("an event");
            assert_eq!(row.stream(), expected, "{kind}");
        }
    }
}
