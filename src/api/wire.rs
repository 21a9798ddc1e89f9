//! Response types: what the domain types look like in JSON.

use std::fmt::{Display, Write};

use media::{Marker, Rate, RequestId, RunId, Score, WallTime};
use serde::{Serialize, Serializer};
use timeline::{KeyframeStored, StoredEvent};

use crate::session::registry::{Run, RunLimits};

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
}

impl RunAnswer {
    /// Only the ids.
    pub fn new(request_id: RequestId, run_id: RunId) -> RunAnswer {
        RunAnswer { request_id, run_id, status: None, state: None }
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
            created_at: rfc3339(snapshot.created_at),
            updated_at: rfc3339(snapshot.updated_at),
            expires_at: snapshot.expires_at(limits.ttl).map(rfc3339),
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

/// Writes events as a JSON array; payloads are copied as the log has them.
pub fn events_json(events: &[StoredEvent], with_run: bool) -> String {
    let payloads: usize = events.iter().map(|event| event.payload.len() + 160).sum();
    let mut text = String::with_capacity(payloads + 2);
    text.push('[');
    for (at, StoredEvent { head, payload }) in events.iter().enumerate() {
        let separator = if at == 0 { "" } else { "," };
        let (seq, at_ms, kind) = (head.seq, head.at.epoch_ms, head.kind.as_str());
        // Every part but the payload is digits or a fixed name, and the payload is valid JSON.
        let head = format_args!(r#"{separator}{{"seq":{seq},"pts_ms":{at_ms},"kind":"{kind}""#);
        write(&mut text, head);
        if with_run {
            let run = events[at].head.run;
            write(&mut text, format_args!(r#","run_id":"{run}""#));
        }
        write(&mut text, format_args!(r#","payload":{payload}}}"#));
    }
    text.push(']');
    text
}

fn write(text: &mut String, part: std::fmt::Arguments<'_>) {
    text.write_fmt(part).expect("a string takes every write");
}

/// RFC 3339 in UTC with milliseconds.
pub fn rfc3339(time: WallTime) -> String {
    let (days, ms) = (time.epoch_ms.div_euclid(86_400_000), time.epoch_ms.rem_euclid(86_400_000));
    let (year, month, day) = civil(days);
    let (s, ms) = (ms / 1000, ms % 1000);
    let (h, m, s) = (s / 3600, s / 60 % 60, s % 60);
    format!("{year:04}-{month:02}-{day:02}T{h:02}:{m:02}:{s:02}.{ms:03}Z")
}

/// Days since 1970 to the proleptic Gregorian calendar, by eras of 400 years from a March 1st.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_times_are_written_as_rfc_3339() {
        let cases = [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_799_999, "2000-02-29T23:59:59.999Z"),
            (1_709_164_800_000, "2024-02-29T00:00:00.000Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (-1, "1969-12-31T23:59:59.999Z"),
        ];
        for (epoch_ms, expected) in cases {
            assert_eq!(rfc3339(WallTime { epoch_ms }), expected);
        }
    }
}
