//! A log whose files are damaged under the server: what callers are told, and what the server is.

use std::os::unix::fs::FileExt;

use serde_json::{Value, json};

use super::activity;
use crate::support::{Setup, assert_has, files, wait_until};

#[test]
fn damage_is_an_internal_error_whose_details_are_in_the_log_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = dir.path().join("stderr");
    let setup = Setup::new(dir.path()).clips().log_to(&said);
    let server = setup.start();
    let run = server.ingested(&json!({"source_uri": "street.mp4", "max_frames": 1100}));
    drop(server);
    let columns = files(&dir.path().join("data/log/columns"));
    assert!(!columns.is_empty(), "the signals are in files of their own");
    columns.iter().for_each(|file| std::fs::remove_file(file).expect("removed"));
    let server = setup.start();
    // An event without its signals is an error of that event alone.
    let events = server.events(&run);
    let query = server.post("/v1/query", &json!({"run_id": run}));
    for events in [&events, query.json()["matches"].as_array().expect("an array")] {
        let lost: Vec<_> =
            events.iter().filter(|event| event["payload"]["damaged"] == true).collect();
        assert!(lost.iter().map(|event| &event["kind"]).eq(["frames_decoded"]), "{events:?}");
        assert_has(&lost[0]["payload"], &json!({"signals": null, "decoded_frames": 1100}));
        assert_eq!(query.json()["next_from_seq"], events.len() + 1);
    }
    // A thread of its own writes it.
    let logged = |wanted: &dyn Fn(&Value) -> bool| {
        let text = std::fs::read_to_string(&said).expect("readable");
        text.lines().flat_map(serde_json::from_str::<Value>).any(|line| wanted(&line))
    };
    let get = |what: &str| server.get(&format!("/v1/runs/{run}/{what}"));
    let analyze = server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"}));
    let rows = [("analyze", analyze), ("frames/3", get("frames/3")), ("signals", get("signals"))];
    for (what, reply) in rows {
        let told = (reply.status, reply.code(), reply.json()["error"]["message"].clone());
        assert_eq!(told, (500, "internal_error".to_owned(), json!("internal error")), "{what}");
        assert!(!reply.text.contains("columns"), "{}", reply.text);
        let (request, path) = (reply.header("x-request-id"), format!("/v1/runs/{run}/{what}"));
        wait_until(&format!("{what}: the log says which file under {request}"), || {
            logged(&|line| ["columns", request].iter().all(|it| line.to_string().contains(it)))
        });
        let is_told = |line: &Value| line["path"] == path && line["status"] == 500;
        wait_until(&format!("{what}: the log tells of {request}"), || {
            logged(&|line| line["request_id"] == request && is_told(line))
        });
    }
    assert!(logged(&|line| line["message"] == "listening" && line["addr"] == server.addr()));
    let state = get("state");
    assert_eq!(state.status, 200, "what is not damaged is served: {}", state.text);
}

#[test]
fn answers_made_of_events_count_those_that_cannot_be_read() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = activity::start(Setup::new(dir.path()));
    let run = server.create_run();
    activity::ingested(&server, &run, json!({"zones": activity::halves()}));
    let search = || server.post("/v1/search", &json!({"query": "left"})).assert_ok().json();
    let found = search();
    server.post_run(&run, "analyze", &json!({"model": "qwen3-vl-8b"})).assert_ok();
    let journal = dir.path().join("data/log/journal/00000000000000000001.journal");
    let bytes = std::fs::read(&journal).expect("readable");
    let journal = std::fs::File::options().write(true).open(journal).expect("opens");
    // Each list, its items, and a field of these whose text, or else name, is first in one's record. Episodes
    // have stills, so these come after them.
    for (list, items, field) in [
        ("markers", "markers", "marker_id"),
        ("activity", "episodes", "peak_score"),
        ("keyframes", "keyframes", "image_sha256"),
    ] {
        let answer = || server.get(&format!("/v1/runs/{run}/{list}")).assert_ok().json();
        let before = answer();
        assert!(before.get("damaged_events").is_none(), "{before}");
        let wanted = before[items][0][field].as_str().unwrap_or(field).as_bytes();
        let at = bytes.windows(wanted.len()).position(|some| some == wanted).expect("a record");
        journal.write_all_at(&[bytes[at] ^ 1], at as u64).expect("written");
        let after = answer();
        let count = |answer: &Value| answer[items].as_array().expect("an array").len();
        assert_eq!(count(&after), count(&before) - 1, "{after}");
        assert_eq!(after["damaged_events"], 1, "{after}");
    }
    // The episode's start names its zone, as its end does.
    let hits = |answer: &Value| answer["hits"].as_array().expect("an array").len();
    let after = search();
    assert_eq!((hits(&after), &after["damaged_events"]), (hits(&found) - 1, &json!(1)), "{after}");
    // The events of activity are none of the summary's.
    let runs = server.get("/v1/runs?include=summary").json();
    assert_eq!(runs[0]["summary"]["damaged_events"], 2, "{runs}");
    // A filter finds them, as they may be among what it asks for.
    let events = server.get(&format!("/v1/runs/{run}/events?index=another")).json();
    assert_eq!(events["events"].as_array().map(Vec::len), Some(3), "{events}");
}
