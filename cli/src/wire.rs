//! Records of the HTTP API, which the command line reads, and writes with `--json`.
//!
//! Unknown fields are ignored, as the contract asks of every consumer.

use media::{EventType, Marker};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Marker, as in the response of `GET /v1/runs/{id}/markers`.
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
    pub fn kind(&self) -> EventType {
        EventType::from_name(&self.event_type)
    }
}

/// Fields used of a run in the API's responses.
#[derive(Debug, Deserialize)]
pub struct RunRecord {
    pub run_id: String,
    #[serde(default)]
    pub model: Option<String>,
}

/// Event envelope; the payload keeps the bytes that the server sent.
#[derive(Debug, Serialize, Deserialize)]
pub struct EventRecord {
    pub seq: u64,
    pub pts_ms: i64,
    pub kind: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<String>,
    pub payload: Box<RawValue>,
}

/// Response of `POST /v1/query`.
#[derive(Debug, Deserialize)]
pub struct QueryReply {
    pub matches: Vec<EventRecord>,
    pub next_from_seq: u64,
    pub has_more: bool,
}
