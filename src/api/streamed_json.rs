//! Streams answers, JSON above all, in pieces that are produced while they are sent.
//!
//! A frame's signals are a few hundred bytes of JSON; an event may hold half a million frames, and a run a
//! million events. Only one piece is in memory, however slowly the client reads.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::{BoxError, Extension};
use timeline::{EventMeta, PayloadChunks, StreamedEvent};

use super::{prelude::*, send_budget::BufferedBytes};
use crate::{
    base::{
        blocking::blocking,
        stepped_body::{Step, joined, stepped},
    },
    runs::registry::next_piece,
};

/// Minimum size of a piece, bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Number of events per read of the log; a payload is at most 1 MiB.
const READ: usize = 16;
/// Bytes charged for an answer that is read while it is sent.
pub const READING_BYTES: usize = 1 << 20;

/// Piece of an answer's text, or the error that ends the answer early.
pub type Text = ApiResult<String>;

/// Iterator over a run's events, of one kind or all, up to the end of the log at its creation; reads disk.
///
/// Returns an error if the run is deleted meanwhile, as its events may be gone.
pub struct Snapshot {
    timeline: Timeline,
    run: Arc<Run>,
    kind: Option<EventKind>,
    next: Seq,
    last: Seq,
    read: std::vec::IntoIter<StreamedEvent>,
}

impl Snapshot {
    /// Creates an iterator over the events from `from` on.
    pub fn new(
        timeline: &Timeline,
        run: &Arc<Run>,
        from: Seq,
        kind: Option<EventKind>,
    ) -> Snapshot {
        let (run, read) = (Arc::clone(run), Vec::new().into_iter());
        let (timeline, last) = (timeline.clone(), timeline.head());
        Snapshot { timeline, run, kind, next: from, last, read }
    }

    fn read_on(&mut self) -> ApiResult<()> {
        let read = self.timeline.read_parts(self.run.id(), self.next, READ, self.kind)?;
        if !self.run.lifecycle().is_visible() {
            return Err(ApiError::RUN_NOT_FOUND);
        }
        self.next = Seq(read.last().map_or(self.last, |event| event.head.seq).0 + 1);
        self.read = read.into_iter();
        Ok(())
    }
}

impl Iterator for Snapshot {
    type Item = ApiResult<StreamedEvent>;

    fn next(&mut self) -> Option<ApiResult<StreamedEvent>> {
        if self.read.len() == 0
            && self.next <= self.last
            && let Err(error) = self.read_on()
        {
            self.next = Seq(self.last.0 + 1);
            return Some(Err(error));
        }
        self.read.next().filter(|event| event.head.seq <= self.last).map(Ok)
    }
}

/// Number of events that an answer leaves out because they cannot be read; clones count together.
#[derive(Clone, Default)]
pub struct DamagedEvents(Arc<AtomicU64>);

impl DamagedEvents {
    /// Returns true if the event is readable. An unreadable one is logged and counted.
    pub fn intact(&self, event: &ApiResult<StreamedEvent>) -> bool {
        let damage = event.as_ref().ok().and_then(StreamedEvent::damage);
        let Some(error) = damage else { return true };
        tracing::error!(%error, "an event cannot be read");
        self.add(1);
        false
    }

    /// Counts further events.
    pub fn add(&self, count: u64) {
        self.0.fetch_add(count, Relaxed);
    }

    /// Returns the end of the answer after its list, with the count unless it is 0.
    pub fn end(&self) -> String {
        match self.0.load(Relaxed) {
            0 => "}".to_owned(),
            count => format!(r#","damaged_events":{count}}}"#),
        }
    }
}

/// Returns the events as items of a JSON array, each with its run id if `with_run`.
pub fn event_texts(
    events: impl Iterator<Item = ApiResult<StreamedEvent>> + Send + 'static,
    with_run: bool,
) -> impl Iterator<Item = Text> + Send + 'static {
    EventTexts { events, payload: None, with_run, comma: "" }
}

struct EventTexts<I> {
    events: I,
    payload: Option<PayloadChunks>,
    with_run: bool,
    comma: &'static str,
}

impl<I: Iterator<Item = ApiResult<StreamedEvent>>> Iterator for EventTexts<I> {
    type Item = Text;

    fn next(&mut self) -> Option<Text> {
        if let Some(payload) = &mut self.payload {
            let piece = next_piece(payload);
            if piece.is_none() {
                self.payload = None;
            }
            return Some(piece.unwrap_or_else(|| Ok("}".to_owned())).map_err(ApiError::from));
        }
        let event = match self.events.next()? {
            Ok(event) => event,
            Err(error) => return Some(Err(error)),
        };
        if let Some(error) = event.damage() {
            tracing::error!(%error, seq = %event.head.seq, "an event cannot be read");
        }
        let text = self.open(event.head);
        self.payload = Some(event.into_payload());
        Some(Ok(text))
    }
}

impl<I> EventTexts<I> {
    /// Returns the text before the payload; digits and fixed names need no escaping.
    fn open(&mut self, head: EventMeta) -> String {
        let (comma, seq, at_ms, kind) =
            (self.comma, head.seq, head.at.epoch_ms, head.kind.as_str());
        let run =
            if self.with_run { format!(r#","run_id":"{}""#, head.run) } else { String::new() };
        self.comma = ",";
        format!(r#"{comma}{{"seq":{seq},"pts_ms":{at_ms},"kind":"{kind}"{run},"payload":"#)
    }
}

/// Returns the records as items of a JSON array.
pub fn record_texts<T: Serialize>(
    records: impl Iterator<Item = ApiResult<T>> + Send + 'static,
) -> impl Iterator<Item = Text> + Send + 'static {
    let mut comma = "";
    records.map(move |record| {
        let text = serde_json::to_string(&record?);
        let text = text.expect("our own types with string keys are writable");
        Ok(std::mem::replace(&mut comma, ",").to_owned() + &text)
    })
}

/// Returns the answer of the JSON text `before`, the array of `items`, and the text `after`.
///
/// The first piece is produced before the return; the rest is charged with `held` bytes.
pub fn list(
    before: String,
    items: impl Iterator<Item = Text> + Send + 'static,
    after: impl FnOnce() -> String + Send + 'static,
    held: usize,
) -> ApiResult {
    let before = std::iter::once_with(move || Ok(before + "["));
    let after = std::iter::once_with(move || Ok("]".to_owned() + &after()));
    let texts = before.chain(items).chain(after).map(|text| text.map(String::into_bytes));
    sent("application/json", Box::new(texts.fuse()), held)
}

/// Parts of an answer; an error ends the answer early.
pub type Parts = Box<dyn Iterator<Item = ApiResult<Vec<u8>>> + Send>;

/// Returns an answer of media type `kind` made of `parts`; see [`list`].
pub fn sent(kind: &'static str, mut parts: Parts, held: usize) -> ApiResult {
    let first = piece(&mut parts)?.unwrap_or_default();
    let (holds, body) = match parts.next() {
        None => (first.len(), Body::from(first)),
        Some(part) => {
            let parts: Parts = Box::new(std::iter::once(part).chain(parts));
            let holds = first.len() + held;
            (holds, joined([Body::from(first), stepped(parts, None, read_on)]))
        }
    };
    let kind = [(header::CONTENT_TYPE, kind)];
    Ok((Extension(BufferedBytes(holds as u64)), kind, body).into_response())
}

/// Returns the next piece of `parts`; `None` at the end.
fn piece(parts: &mut Parts) -> ApiResult<Option<Vec<u8>>> {
    let mut piece = Vec::new();
    while piece.len() < PIECE_BYTES {
        match parts.next() {
            Some(part) => piece.extend(part?),
            None => break,
        }
    }
    Ok((!piece.is_empty()).then_some(piece))
}

/// Returns the next piece of `parts`, read on a thread for blocking work.
async fn read_on(mut parts: Parts) -> Step<Parts> {
    let read =
        move || -> ApiResult<_> { Ok(piece(&mut parts)?.map(|piece| (Bytes::from(piece), parts))) };
    let read = blocking(read).await.map_err(BoxError::from).and_then(|read| Ok(read?));
    // The status was already sent; only a truncated body shows the error.
    read.inspect_err(|error| tracing::error!(%error, "an answer ends early"))
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt;
    use media::{RunId, Signal};
    use serde_json::Value;
    use timeline::{Event, NewEvent, RunFailed, Signals, TimelineOptions};

    use super::*;
    use crate::runs::registry::tests::samples;

    const FRAMES: u64 = 20_000;

    fn signal(index: u64) -> Signal {
        Signal { perceptual_hash: index, ..Signal::plain(index, index as i64 * 40) }
    }

    fn decoded(signals: Signals) -> Event {
        let request = "req-00000000000000aa".parse().expect("an id");
        Event::FramesDecoded(samples::decoded(request, signals))
    }

    #[tokio::test]
    async fn a_long_answer_is_never_whole_in_memory() {
        let dir = tempfile::tempdir().expect("a directory");
        let (log, _) = Timeline::open(dir.path(), TimelineOptions::default()).expect("opens");
        let run = RunId::from_bytes([7; 16]);
        let mut column = log.column_writer();
        (0..FRAMES).for_each(|index| column.push(&signal(index)).expect("room"));
        let (column, _lease) = column.finish().expect("durable");
        let failed = || Event::RunFailed(RunFailed { request_id: None, reason: "no".to_owned() });
        let events = [decoded(column), failed(), failed()];
        let batch = events.into_iter().map(|event| NewEvent { run, event }).collect();
        log.append_wait(batch).expect("appended");

        let events = log.read_parts(run, Seq(0), 10, None).expect("read");
        let texts = event_texts(events.into_iter().map(Ok), true);
        let answer = list("{\"events\":".to_owned(), texts, || ",\"next\":9}".to_owned(), 0);
        let mut body = answer.expect("read").into_body();
        let mut joined = Vec::new();
        while let Some(frame) = body.frame().await {
            let piece = frame.expect("read").into_data().expect("data");
            assert!(piece.len() < 3 * PIECE_BYTES, "a piece of {} bytes", piece.len());
            joined.extend_from_slice(&piece);
        }
        let json: Value = serde_json::from_slice(&joined).expect("JSON");
        let events = json["events"].as_array().expect("an array");
        assert_eq!((events.len(), &json["next"]), (3, &Value::from(9)));
        let signals = events[0]["payload"]["signals"].as_array().expect("an array");
        assert_eq!(signals.len(), FRAMES as usize);
        assert_eq!(events[2]["payload"]["reason"], "no");
    }
}
