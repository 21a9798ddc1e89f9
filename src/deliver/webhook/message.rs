//! Webhook message of an event: a CloudEvent in structured mode.

use std::iter;

use bytes::Bytes;
use media::Seq;
use serde::Serialize;
use serde_json::value::RawValue;
use timeline::{EventKind, StreamedEvent, TimelineError};

use super::Webhook;
use crate::runs::registry::next_piece;

/// Maximum bytes of a payload in a message; a longer one is replaced by a reference.
const PAYLOAD_BYTES_MAX: u64 = 256 << 10;

/// Message of one event; identical for every attempt.
pub struct WebhookMessage {
    pub seq: Seq,
    pub kind: EventKind,
    /// Value of `webhook-id`: ids of webhook and event, by which receivers can drop repetitions.
    /// The event's id has its time, as a restored log gives its number to another event.
    pub id: String,
    pub body: Bytes,
}

#[derive(Serialize)]
struct CloudEvent<'a> {
    specversion: &'static str,
    id: String,
    source: &'a str,
    r#type: String,
    subject: &'a str,
    time: String,
    datacontenttype: &'static str,
    /// CloudEvents extension: reference to a payload that is too long for the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    dataref: Option<String>,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    run_id: &'a str,
    seq: u64,
    pts_ms: i64,
    kind: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
}

impl WebhookMessage {
    /// Creates the message of `event`, sent by the server `source`; reads the payload.
    pub fn new(
        webhook: &Webhook,
        source: &str,
        event: StreamedEvent,
    ) -> Result<WebhookMessage, TimelineError> {
        let head = event.head;
        let (run, seq, kind) = (head.run.to_string(), head.seq.0, head.kind.as_str());
        let event_id = format!("{seq}_{}", head.at.epoch_ms);
        let payload = if event.payload_bytes() <= PAYLOAD_BYTES_MAX {
            let mut payload = event.into_payload();
            let text = iter::from_fn(|| next_piece(&mut payload)).collect::<Result<String, _>>()?;
            Some(RawValue::from_string(text).expect("the log holds JSON"))
        } else {
            None
        };
        let dataref = format!("/v1/runs/{run}/events?from_seq={seq}&limit=1");
        let id = format!("{}_{event_id}", webhook.id);
        let body = CloudEvent {
            specversion: "1.0",
            id: event_id,
            source,
            r#type: format!("sightline.{kind}"),
            subject: &run,
            time: head.at.rfc3339(),
            datacontenttype: "application/json",
            dataref: payload.is_none().then_some(dataref),
            data: Data { run_id: &run, seq, pts_ms: head.at.epoch_ms, kind, payload },
        };
        let body = serde_json::to_vec(&body).expect("JSON with string keys is writable");
        Ok(WebhookMessage { seq: head.seq, kind: head.kind, id, body: body.into() })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use media::{BlobHash, RequestId, RunId, Score, WallTime};
    use serde_json::Value;
    use timeline::{
        Event, FindingKind, FindingPayload, NewEvent, Signals, Timeline, TimelineOptions,
    };

    use super::*;
    use crate::{deliver::webhook::tests::webhook, runs::registry::tests::samples};

    const RUN: RunId = RunId::from_bytes([1; 16]);

    fn message(event: Event) -> Value {
        let dir = tempfile::tempdir().expect("a directory");
        let clock = Arc::new(|| WallTime { epoch_ms: 62_000 });
        let options = TimelineOptions { clock, ..TimelineOptions::default() };
        let (log, _) = Timeline::open(dir.path(), options).expect("opens");
        log.append_wait(vec![NewEvent { run: RUN, event }]).expect("appended");
        let event = log.get_parts(Seq(1)).expect("readable").expect("there");
        let message =
            WebhookMessage::new(&webhook(RUN), "urn:sightline:node-x", event).expect("made");
        assert_eq!(message.id, "wh-02020202020202020202020202020202_1_62000");
        serde_json::from_slice(&message.body).expect("JSON")
    }

    /// Returns the message of a finding with a description of this size.
    fn found(description_bytes: usize) -> Value {
        let finding = FindingPayload {
            frame_index: 1,
            pts_ms: 40,
            confidence: Score::from_millionths(500_000),
            description: "d".repeat(description_bytes),
            ..FindingPayload::default()
        };
        message(Event::Found(FindingKind::Vlm, finding))
    }

    #[test]
    fn a_payload_is_sent_along_unless_it_is_large() {
        let small = found(100);
        assert_eq!(small["id"], "1_62000");
        assert_eq!(small["data"]["payload"]["frame_index"], 1);
        assert_eq!(small.get("dataref"), None);
        let large = found(PAYLOAD_BYTES_MAX as usize);
        assert_eq!(large["data"].get("payload"), None);
        assert_eq!(large["dataref"], format!("/v1/runs/{RUN}/events?from_seq=1&limit=1"));
        assert_eq!(large["data"]["kind"], "vlm");
    }

    #[test]
    fn an_event_whose_signals_cannot_be_read_is_sent_as_damaged() {
        let lost = Signals::Column { hash: BlobHash::from_bytes([7; 32]), count: 1 };
        let decoded = samples::decoded(RequestId::from_bytes([1; 8]), lost);
        let payload = message(Event::FramesDecoded(decoded))["data"]["payload"].take();
        assert_eq!((&payload["signals"], &payload["damaged"]), (&Value::Null, &Value::Bool(true)));
    }
}
