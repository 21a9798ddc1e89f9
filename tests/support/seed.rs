//! A log as an earlier server left it, written before a server starts on it.

use std::path::Path;

use media::{RequestId, RunId};
use timeline::{Event, NewEvent, RunCreated, Timeline, TimelineOptions};

/// The log of a server that keeps its data in `dir`; it is closed when dropped.
pub fn log(dir: &Path) -> Timeline {
    Timeline::open(&dir.join("data/log"), TimelineOptions::default()).expect("a log").0
}

/// Appends these events of `run`.
pub fn append(log: &Timeline, run: RunId, events: impl IntoIterator<Item = Event>) {
    let batch = events.into_iter().map(|event| NewEvent { run, event });
    log.append_wait(batch.collect()).expect("durable");
}

/// The first event of a run of `owner`.
pub fn created(owner: &str) -> Event {
    Event::RunCreated(RunCreated {
        request_id: RequestId::from_bytes([1; 8]),
        mode: "balanced".to_owned(),
        model: None,
        principal_key: owner.to_owned(),
        tenant_id: None,
    })
}
