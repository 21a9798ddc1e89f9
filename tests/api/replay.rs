//! Same input, same events: twice in a process, and as the golden file says, which another wrote.
//!
//! `UPDATE_GOLDEN=1` writes the golden file anew; the diff is for a person to read.

use std::path::Path;

use clips::pick_one;
use serde_json::{Value, json};

use crate::support::{Server, Setup, setting};

/// Ids and their lengths in hexadecimal digits.
const IDS: [(&str, usize); 6] =
    [("run-", 32), ("req-", 16), ("mk-", 16), ("an-", 16), ("job-", 32), ("sess-", 32)];

/// Replaces every id by its prefix, which leaves what must not differ.
pub fn without_ids(text: &str) -> String {
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

/// The events of an ingest and an analysis, as text without ids.
fn events_of(server: &Server, clip: &Path) -> String {
    let run = server.create_run();
    let name = clip.file_name().and_then(|name| name.to_str()).expect("UTF-8");
    let ingest = json!({"source_uri": name, "sample_fps": 5, "max_frames": 40});
    server.post_run(&run, "ingest", &ingest).assert_ok();
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    without_ids(&server.get(&format!("/v1/runs/{run}/events?limit=1000")).text)
}

/// Payloads that the server wrote between the wall times.
fn payloads(events: &str) -> Vec<&str> {
    let texts = events.split(r#"{"seq":"#).skip(1);
    texts.map(|event| event.split_once(r#""kind":"#).expect("a kind").1).collect()
}

/// The events for people: indented, without wall times.
fn readable(events: &str) -> String {
    let mut answer: Value = serde_json::from_str(events).expect("JSON");
    for event in answer["events"].as_array_mut().expect("an array") {
        event["pts_ms"] = Value::Null;
    }
    serde_json::to_string_pretty(&answer["events"]).expect("writable") + "\n"
}

/// Compares `found` with the golden file `name`, or writes it.
pub fn check(name: &str, found: &str) {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/golden").join(name);
    if setting("UPDATE_GOLDEN").is_some() {
        std::fs::write(&golden, found).expect("written");
    }
    let expected = std::fs::read_to_string(&golden).expect("the golden file");
    for (at, (found, expected)) in found.lines().zip(expected.lines()).enumerate() {
        assert_eq!(found, expected, "{name}:{}; UPDATE_GOLDEN=1 accepts the new events", at + 1);
    }
    assert_eq!(found.len(), expected.len(), "one is longer");
}

#[test]
fn the_same_input_gives_the_same_events() {
    let clip = pick_one("bikes.mp4", "talk_friday.mp4");
    let server = Setup::temporary().root(clip.parent().expect("a folder")).start();
    let (first, second) = (events_of(&server, &clip), events_of(&server, &clip));
    assert!(payloads(&first).len() > 4, "{first}");
    assert_eq!(payloads(&first), payloads(&second));

    let name = clip.with_extension("json");
    check(name.file_name().and_then(|name| name.to_str()).expect("UTF-8"), &readable(&first));
}
