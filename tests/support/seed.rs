//! A log as an earlier server left it, written before a server starts on it.

use std::{path::Path, sync::Arc};

use media::{
    BlobHash, EventType, Marker, MarkerId, MarkerOrigin, MarkerStatus, RequestId, RunId, Score,
    SessionId, WallTime,
};
use timeline::{
    AnalysisGenerated, Event, FindingKind, FindingPayload, KeyframeStored, NewEvent, RunCreated,
    SamplingPolicy, SessionRunCreated, Timeline, TimelineError, TimelineOptions,
};

use super::eventually;

pub const SESSION: SessionId = SessionId::from_bytes([8; 16]);
const REQUEST: RequestId = RequestId::from_bytes([1; 8]);

/// The log of a server that keeps its data in `dir`; it is closed when dropped.
pub fn log(dir: &Path) -> Timeline {
    opened(dir, &TimelineOptions::default())
}

/// The same by a clock that stands.
pub fn log_at(dir: &Path, epoch_ms: i64) -> Timeline {
    let clock = Arc::new(move || WallTime { epoch_ms });
    let options = TimelineOptions { clock, ..TimelineOptions::default() };
    opened(dir, &options)
}

/// A process that another thread forks has the lock of a log that is closed, until it is its own program.
fn opened(dir: &Path, options: &TimelineOptions) -> Timeline {
    eventually("the log is let go", || {
        match Timeline::open(&dir.join("data/log"), options.clone()) {
            Err(TimelineError::Locked { .. }) => None,
            opened => Some(opened.expect("a log").0),
        }
    })
}

pub fn append(log: &Timeline, run: RunId, events: impl IntoIterator<Item = Event>) {
    let batch = events.into_iter().map(|event| NewEvent { run, event });
    log.append_wait(batch.collect()).expect("durable");
}

pub fn created(owner: &str) -> Event {
    Event::RunCreated(RunCreated {
        request_id: REQUEST,
        mode: "balanced".to_owned(),
        model: None,
        principal_key: owner.to_owned(),
        tenant_id: None,
    })
}

pub fn session_created(owner: &str) -> Event {
    Event::SessionRunCreated(SessionRunCreated {
        principal_key: owner.to_owned(),
        session_id: SESSION,
        tenant_id: None,
    })
}

pub fn described(description: &str) -> Event {
    let finding = FindingPayload {
        session_id: Some(SESSION),
        description: description.to_owned(),
        ..FindingPayload::default()
    };
    Event::Found(FindingKind::Vlm, finding)
}

/// A still of a frame, of 25 a second.
pub fn still(frame_index: u64) -> KeyframeStored {
    KeyframeStored {
        frame_index,
        pts_ms: frame_index as i64 * 40,
        event_type: EventType::KeyframeKeep,
        reason: None,
        description: String::new(),
        image_ref: "x".to_owned(),
        image_bytes: 1,
        image_sha256: BlobHash::from_bytes([frame_index as u8; 32]),
        truncated: false,
    }
}

/// A marker of one frame, of 25 a second.
pub fn marker(run_id: RunId, event_type: EventType, frame: u64) -> Marker {
    let pts_ms = frame as i64 * 40;
    Marker {
        marker_id: MarkerId::from_bytes(frame.to_be_bytes()),
        run_id,
        stream_id: "main".parse().expect("a label"),
        event_type,
        status: MarkerStatus::Exact,
        start_frame: frame,
        end_frame: frame,
        start_pts_ms: pts_ms,
        end_pts_ms: pts_ms,
        confidence: Score::ONE,
        supersedes_marker_id: None,
        analysis_id: None,
        origin: Some(MarkerOrigin::Gate),
        beside: false,
    }
}

/// An analysis that gave one marker of one frame.
pub fn analysis(stream: &str) -> AnalysisGenerated {
    AnalysisGenerated {
        request_id: REQUEST,
        stream_id: stream.parse().expect("a label"),
        frames: 1,
        window_size: 16,
        segment_ms: 250,
        sampling_policy: SamplingPolicy::Fixed,
        sample_fps: None,
        mode: None,
        model: "qwen3-vl-8b".to_owned(),
        markers: 1,
        analysis_id: None,
        gate: None,
        zones: None,
    }
}
