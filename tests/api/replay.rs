//! Same input, same events: in two processes, and as the golden file says.
//!
//! `UPDATE_GOLDEN=1` writes the golden file anew; the diff is for a person to read.

use std::path::Path;

use serde_json::json;

use crate::support::{Setup, clips, setting};

/// Ids and their lengths in hexadecimal digits.
const IDS: [(&str, usize); 3] = [("run-", 32), ("req-", 16), ("mk-", 16)];

/// Replaces every id by its prefix, which leaves what must not differ.
fn without_ids(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    'text: while let Some(first) = rest.chars().next() {
        for (prefix, digits) in IDS {
            let hex = rest.strip_prefix(prefix).and_then(|tail| tail.get(..digits));
            if hex.is_some_and(|hex| hex.bytes().all(|byte| byte.is_ascii_hexdigit())) {
                out.push_str(prefix);
                rest = &rest[prefix.len() + digits..];
                continue 'text;
            }
        }
        out.push(first);
        rest = &rest[first.len_utf8()..];
    }
    out
}

/// One line an event, kind and payload as the server wrote them, from a server of its own.
fn timeline_of(clips: &Path) -> String {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).root(clips).start();
    let run = server.create_run();
    let ingest = json!({"source_uri": "talk_friday.mp4", "sample_fps": 10, "max_frames": 60});
    let reply = server.post(&format!("/v1/runs/{run}/ingest"), &ingest);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let reply = server.post(&format!("/v1/runs/{run}/analyze"), &json!({"model": "m"}));
    assert_eq!(reply.status, 200, "{}", reply.text);
    let text = server.get(&format!("/v1/runs/{run}/events?limit=1000")).text;
    let events = text.split(r#"{"seq":"#).skip(1);
    let lines = events.map(|event| {
        let (_, event) = event.split_once(r#""kind":"#).expect("a kind");
        without_ids(event.trim_end_matches([',', ']', '}'])) + "\n"
    });
    lines.collect()
}

#[test]
fn two_processes_write_the_same_events() {
    let Some(clips) = clips("two_processes_write_the_same_events") else { return };
    let (first, second) = (timeline_of(&clips), timeline_of(&clips));
    assert!(first.lines().count() > 4, "{first}");
    assert_eq!(first, second);

    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden/talk_friday.events");
    if setting("UPDATE_GOLDEN").is_some() {
        std::fs::create_dir_all(golden.parent().expect("has one")).expect("made");
        std::fs::write(&golden, &first).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).expect("the golden file");
    for (at, (found, expected)) in first.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "event {at}; UPDATE_GOLDEN=1 accepts the new ones");
    }
    assert_eq!(first.lines().count(), expected.lines().count());
}
