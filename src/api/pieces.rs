//! Events as a JSON answer, written piece by piece while it is sent.
//!
//! A frame of signals is a few hundred bytes of JSON and an event may have half a million of
//! them: what is in memory is one piece, however slowly the caller reads.

use std::{
    pin::Pin,
    task::{Context, Poll},
};

use axum::{
    BoxError, Extension,
    body::Body,
    response::{IntoResponse, Response},
};
use bytes::Bytes;
use http::header;
use http_body::{Body as HttpBody, Frame};
use timeline::{EventHead, EventParts, PayloadText, TimelineError};

use super::unsent::Holds;
use crate::blocking::{Died, blocking};

/// A piece is sent once it is at least this long.
const PIECE_BYTES: usize = 64 << 10;

/// The text of an answer that has events in it; reads the disk.
pub struct EventsText {
    before: String,
    events: std::vec::IntoIter<EventParts>,
    /// Of the event that is being written.
    payload: Option<PayloadText>,
    with_run: bool,
    comma: &'static str,
    after: Option<String>,
}

impl EventsText {
    /// `events` as a JSON array between `before` and `after`, each with its run where asked.
    pub fn new(
        before: String,
        events: Vec<EventParts>,
        with_run: bool,
        after: String,
    ) -> EventsText {
        let before = before + "[";
        let events = events.into_iter();
        let after = Some(format!("]{after}"));
        EventsText { before, events, payload: None, with_run, comma: "", after }
    }

    /// The answer, which has been read as far as its first piece.
    pub fn answer(mut self) -> Result<Response, TimelineError> {
        let first = self.next()?.unwrap_or_default();
        let events: usize = self.events.as_slice().iter().map(EventParts::held_bytes).sum();
        let holds = Holds((first.len() + events) as u64);
        let body = match self.after {
            None => Body::from(first),
            Some(_) => {
                Body::new(Pieces { first: Some(first), state: State::Ready(Box::new(self)) })
            }
        };
        let kind = [(header::CONTENT_TYPE, "application/json")];
        Ok((Extension(holds), kind, body).into_response())
    }

    fn next(&mut self) -> Result<Option<String>, TimelineError> {
        let mut text = std::mem::take(&mut self.before);
        while text.len() < PIECE_BYTES {
            if let Some(payload) = &mut self.payload {
                match payload.next() {
                    Some(piece) => text.push_str(&piece?),
                    None => {
                        self.payload = None;
                        text.push('}');
                    }
                }
            } else if let Some(event) = self.events.next() {
                self.open(event.head, &mut text);
                self.payload = Some(event.into_payload());
            } else {
                match self.after.take() {
                    Some(after) => text.push_str(&after),
                    None => break,
                }
            }
        }
        Ok((!text.is_empty()).then_some(text))
    }

    /// Writes the event up to its payload; only digits and fixed names, so nothing to escape.
    fn open(&mut self, head: EventHead, text: &mut String) {
        let (comma, seq, at_ms, kind) =
            (self.comma, head.seq, head.at.epoch_ms, head.kind.as_str());
        text.push_str(&format!(r#"{comma}{{"seq":{seq},"pts_ms":{at_ms},"kind":"{kind}""#));
        if self.with_run {
            text.push_str(&format!(r#","run_id":"{}""#, head.run));
        }
        text.push_str(r#","payload":"#);
        self.comma = ",";
    }
}

/// The body of an answer that is longer than its first piece.
struct Pieces {
    first: Option<String>,
    state: State,
}

/// A text and its next piece, if it has one.
type Step = (Box<EventsText>, Result<Option<String>, TimelineError>);

enum State {
    Ready(Box<EventsText>),
    Reading(Pin<Box<dyn Future<Output = Result<Step, Died>> + Send>>),
    Ended,
}

impl HttpBody for Pieces {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Frame::data(first.into()))));
        }
        loop {
            match std::mem::replace(&mut self.state, State::Ended) {
                State::Ended => return Poll::Ready(None),
                State::Ready(mut text) => {
                    let read = move || {
                        let piece = text.next();
                        (text, piece)
                    };
                    self.state = State::Reading(Box::pin(blocking(read)));
                }
                State::Reading(mut reading) => {
                    let Poll::Ready(done) = reading.as_mut().poll(cx) else {
                        self.state = State::Reading(reading);
                        return Poll::Pending;
                    };
                    let piece = done.map_err(BoxError::from).and_then(|(text, piece)| {
                        self.state = State::Ready(text);
                        piece.map_err(BoxError::from)
                    });
                    return Poll::Ready(match piece {
                        Ok(piece) => piece.map(|text| Ok(Frame::data(text.into()))),
                        Err(error) => {
                            // The status is out: only cutting the answer short tells the caller.
                            tracing::error!(%error, "an answer ends early");
                            self.state = State::Ended;
                            Some(Err(error))
                        }
                    });
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use media::{RunId, Score, Seq, Signal};
    use serde_json::Value;
    use timeline::{
        Event, FramesDecoded, NewEvent, Options, RunFailed, SamplingPolicy, Signals, Timeline,
    };

    use super::*;

    const FRAMES: u64 = 20_000;

    fn signal(index: u64) -> Signal {
        Signal {
            frame_index: index,
            source_frame_index: None,
            pts_ms: index as i64 * 40,
            perceptual_hash: index,
            luma_mean: Score::ONE,
            flicker_score: Score::ONE,
            ghosting_score: Score::ONE,
            noise_variance_score: Score::ONE,
            scene_score: None,
        }
    }

    fn decoded(signals: Signals) -> Event {
        Event::FramesDecoded(FramesDecoded {
            request_id: "req-00000000000000aa".parse().expect("an id"),
            source_uri: "a.mp4".to_owned(),
            stream_id: "main".parse().expect("an id"),
            sampling_policy: SamplingPolicy::SourceFpsAdaptive,
            source_fps: None,
            sample_fps: None,
            decoded_frames: FRAMES,
            width: 16,
            height: 16,
            pixel_format: "yuv420p".to_owned(),
            decoder: None,
            decoder_fallback: None,
            truncated: false,
            signals,
        })
    }

    fn text(log: &Timeline, run: RunId) -> EventsText {
        let events = log.read_parts(run, Seq(0), 10, None).expect("read");
        EventsText::new("{\"events\":".to_owned(), events, true, ",\"next\":9}".to_owned())
    }

    #[tokio::test]
    async fn a_long_answer_is_never_whole_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, _) = Timeline::open(dir.path(), Options::default()).expect("opens");
        let run = RunId::from_bytes([7; 16]);
        let mut column = log.column_writer();
        (0..FRAMES).for_each(|index| column.push(&signal(index)).expect("room"));
        let (column, _lease) = column.finish().expect("durable");
        let failed = || Event::RunFailed(RunFailed { request_id: None, reason: "no".to_owned() });
        let events = [decoded(column), failed(), failed()];
        let batch = events.into_iter().map(|event| NewEvent { run, event }).collect();
        log.append_wait(batch).expect("appended");

        let mut pieces = text(&log, run);
        let mut joined = String::new();
        while let Some(piece) = pieces.next().expect("read") {
            assert!(piece.len() < 3 * PIECE_BYTES, "a piece of {} bytes", piece.len());
            joined.push_str(&piece);
        }
        let json: Value = serde_json::from_str(&joined).expect("JSON");
        let events = json["events"].as_array().expect("an array");
        assert_eq!((events.len(), &json["next"]), (3, &Value::from(9)));
        let signals = events[0]["payload"]["signals"].as_array().expect("an array");
        assert_eq!(signals.len(), FRAMES as usize);
        assert_eq!(events[2]["payload"]["reason"], "no");

        let answer = text(&log, run).answer().expect("read");
        let sent = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("sent");
        assert!(sent == joined.as_bytes(), "what is sent is what is written");
        let column = std::fs::read_dir(dir.path().join("columns")).expect("there").next();
        std::fs::remove_file(column.expect("one").expect("readable").path()).expect("removed");
        assert!(text(&log, run).answer().is_err(), "a lost column is told before the status");
    }
}
