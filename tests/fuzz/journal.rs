//! Properties of a log whose only file holds any bytes.

use std::path::Path;

use media::{RequestId, RunId, Seq};
use timeline::{Event, NewEvent, RequestMarkerPayload, Timeline, TimelineError, TimelineOptions};

fn open(dir: &Path) -> Result<Timeline, TimelineError> {
    let options =
        TimelineOptions { grow_bytes: 64 << 10, spare_bytes: 0, ..TimelineOptions::default() };
    Timeline::open(dir, options).map(|(log, _)| log)
}

/// The first file of a log.
///
/// It is opened or refused; what is opened can be written to, and keeps what it had. Returns the
/// last event of what was opened.
pub fn journal(bytes: &[u8]) -> Option<Seq> {
    let dir = tempfile::tempdir().expect("a directory");
    let journal = dir.path().join("journal");
    std::fs::create_dir(&journal).expect("made");
    std::fs::write(journal.join("00000000000000000001.journal"), bytes).expect("written");
    let log = open(dir.path()).ok()?;
    let head = log.head();
    let before: Vec<_> = (1..=head.0).map(|seq| log.get(Seq(seq)).ok()).collect();
    let event = Event::KeepaliveRefreshed(RequestMarkerPayload {
        request_id: RequestId::from_bytes([1; 8]),
    });
    let event = NewEvent { run: RunId::from_bytes([1; 16]), event };
    log.append_wait(vec![event]).expect("there is room");
    log.close();
    drop(log);
    let log = open(dir.path()).expect("it was open before");
    assert_eq!(log.head(), Seq(head.0 + 1));
    for (seq, before) in (1..=head.0).zip(before) {
        assert_eq!(log.get(Seq(seq)).ok(), before, "event {seq}");
    }
    Some(head)
}
