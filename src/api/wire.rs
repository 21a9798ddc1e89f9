//! Response types: what the domain types look like in JSON.

use std::fmt::Display;

use media::{Marker, Rate, RequestId, RunId, Score, WallTime};
use serde::{Serialize, Serializer};
use timeline::KeyframeStored;

use crate::session::registry::{JobProgress, Run, RunLimits};

/// Serializes by `Display`.
pub fn shown<T: Display, S: Serializer>(value: &T, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(value)
}

/// Serializes a score as a number in [0, 1].
pub fn fraction<S: Serializer>(value: &Score, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(value.as_f64())
}

/// Frames a second as a number, or null.
pub fn fps(rate: Option<Rate>) -> Option<f64> {
    rate.map(Rate::as_f64)
}

/// What an action on a run answers.
#[derive(Serialize)]
pub struct RunAnswer {
    /// The request.
    #[serde(serialize_with = "shown")]
    pub request_id: RequestId,
    /// The run.
    #[serde(serialize_with = "shown")]
    pub run_id: RunId,
    /// Its state, under the name that the action's answer gives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<&'static str>,
    /// The same under another name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<&'static str>,
    /// How far the ingest under way has come.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub progress: Option<ProgressRecord>,
}

/// How far an ingest has come.
#[derive(Serialize)]
pub struct ProgressRecord {
    frames: u64,
    pts_ms: i64,
}

impl From<JobProgress> for ProgressRecord {
    fn from(JobProgress { frames, pts_ms }: JobProgress) -> ProgressRecord {
        ProgressRecord { frames, pts_ms }
    }
}

impl RunAnswer {
    /// Only the ids.
    pub fn new(request_id: RequestId, run_id: RunId) -> RunAnswer {
        RunAnswer { request_id, run_id, status: None, state: None, progress: None }
    }
}

/// A run as lists show it.
#[derive(Serialize)]
pub struct RunRecord {
    #[serde(skip_serializing_if = "Option::is_none")]
    request_id: Option<String>,
    #[serde(serialize_with = "shown")]
    run_id: RunId,
    status: &'static str,
    mode: String,
    model: Option<String>,
    source_uri: Option<String>,
    source: Option<&'static str>,
    session_id: Option<String>,
    tenant_id: Option<String>,
    created_at: String,
    updated_at: String,
    expires_at: Option<String>,
}

impl RunRecord {
    /// The record of `run`, with the request's id where a single run is asked for.
    pub fn new(run: &Run, limits: RunLimits, request_id: Option<RequestId>) -> RunRecord {
        let (origin, snapshot) = (run.origin(), run.snapshot());
        let source = match (origin.session, &snapshot.source_uri) {
            (Some(_), _) => Some("whip"),
            (None, Some(_)) => Some("file"),
            (None, None) => None,
        };
        RunRecord {
            request_id: request_id.map(|id| id.to_string()),
            run_id: run.id(),
            status: snapshot.lifecycle.as_str(),
            mode: origin.mode.clone(),
            model: origin.model.clone(),
            source,
            session_id: origin.session.map(|session| session.to_string()),
            tenant_id: origin.tenant.clone(),
            created_at: snapshot.created_at.rfc3339(),
            updated_at: snapshot.updated_at.rfc3339(),
            expires_at: snapshot.expires_at(limits.ttl).map(WallTime::rfc3339),
            source_uri: snapshot.source_uri.as_deref().map(str::to_owned),
        }
    }
}

/// A marker.
#[derive(Serialize)]
pub struct MarkerRecord<'a> {
    #[serde(serialize_with = "shown")]
    marker_id: media::MarkerId,
    #[serde(serialize_with = "shown")]
    run_id: RunId,
    stream_id: &'a str,
    event_type: &'a str,
    status: &'static str,
    start_frame: u64,
    end_frame: u64,
    start_pts_ms: i64,
    end_pts_ms: i64,
    #[serde(serialize_with = "fraction")]
    confidence: Score,
    #[serde(skip_serializing_if = "Option::is_none")]
    supersedes_marker_id: Option<String>,
}

impl<'a> MarkerRecord<'a> {
    /// The record of `marker`.
    pub fn new(marker: &'a Marker) -> MarkerRecord<'a> {
        MarkerRecord {
            marker_id: marker.marker_id,
            run_id: marker.run_id,
            stream_id: marker.stream_id.as_str(),
            event_type: marker.event_type.as_str(),
            status: marker.status.as_str(),
            start_frame: marker.start_frame,
            end_frame: marker.end_frame,
            start_pts_ms: marker.start_pts_ms,
            end_pts_ms: marker.end_pts_ms,
            confidence: marker.confidence,
            supersedes_marker_id: marker.supersedes_marker_id.map(|id| id.to_string()),
        }
    }
}

/// A stored still.
#[derive(Serialize)]
pub struct KeyframeRecord {
    seq: u64,
    frame_index: u64,
    pts_ms: i64,
    event_type: String,
    description: String,
    image_ref: String,
    image_media_type: &'static str,
    image_bytes: u64,
    #[serde(serialize_with = "shown")]
    image_sha256: media::BlobHash,
}

impl KeyframeRecord {
    /// The record of the still that the event at `seq` names.
    pub fn new(seq: media::Seq, still: KeyframeStored) -> KeyframeRecord {
        KeyframeRecord {
            seq: seq.0,
            frame_index: still.frame_index,
            pts_ms: still.pts_ms,
            event_type: still.event_type.as_str().to_owned(),
            description: still.description,
            image_ref: still.image_ref,
            image_media_type: "image/jpeg",
            image_bytes: still.image_bytes,
            image_sha256: still.image_sha256,
        }
    }
}
