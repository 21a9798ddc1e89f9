//! Untrusted names reach no terminal unescaped: none can clear the screen or reorder text.

use media::is_hidden;
use serde_json::{Value, json};

use crate::remote::{RUN, Script, event, ok, snapshot};

/// Clears the screen, ends a line, reorders text, and contains C1's control sequence introducer.
const NASTY: &str = "a\u{1b}[2Jb\rc\u{202e}d\u{9b}31me\u{7f}f\u{2066}g\u{2028}h";

fn marker() -> Value {
    json!({ "marker_id": "mk-1", "run_id": RUN, "stream_id": NASTY, "event_type": NASTY,
        "status": "exact", "start_frame": 3, "end_frame": 5, "start_pts_ms": 0, "end_pts_ms": 80,
        "confidence": 0.75 })
}

#[test]
fn names_of_others_reach_no_terminal_raw() {
    let run = json!({ "run_id": RUN, "status": "pending", "source_uri": NASTY, "source": NASTY });
    let events = || snapshot(&[event(1, "ingest_received", json!({ "source_uri": NASTY }))]);
    let hit = json!({ "seq": 1, "run_id": RUN, "pts_ms": 0, "kind": NASTY, "snippet": NASTY,
        "description": NASTY });
    let refusal = json!({ "error": { "code": "x", "message": NASTY, "request_id": NASTY,
        "details": [{ "field": NASTY, "message": NASTY }] } });
    let markers = || ok(json!({ "run_id": RUN, "markers": [marker()] }));
    let search = || ok(json!({ "scanned": 1, "total_hits": 1, "hits": [hit] }));
    let rows: Vec<(&[&str], _)> = vec![
        (&["runs", "list"], ok(json!([run]))),
        (&["runs", "list", "--json"], ok(json!([run]))),
        (&["runs", "show", RUN], ok(run.clone())),
        (&["runs", "show", RUN, "--json"], ok(run.clone())),
        (&["events", RUN], events()),
        (&["events", RUN, "--json"], events()),
        (&["markers", RUN], markers()),
        (&["markers", RUN, "--json"], markers()),
        (&["search", "x"], search()),
        (&["search", "x", "--json"], search()),
        (&["runs", "list"], (422, refusal.to_string())),
        (&["runs", "list"], (500, NASTY.to_owned())),
    ];
    for (args, (status, body)) in rows {
        let outcome = Script::start(vec![(status, body)]).run(args);
        assert_eq!(outcome.code == 0, status == 200, "{args:?}: {}", outcome.stderr);
        for said in [&outcome.stdout, &outcome.stderr] {
            let raw = said.chars().find(|&c| is_hidden(c) && c != '\n');
            assert_eq!(raw, None, "{args:?}: {said:?}");
        }
        if args.contains(&"--json") {
            // Only escaped: a program reads the original text.
            let printed = outcome.json().to_string();
            assert!(printed.contains(&json!(NASTY).to_string()), "{args:?}: {printed}");
        }
    }
}

#[test]
fn json_that_is_passed_on_stays_on_its_line() {
    let spread = snapshot(&[event(1, "ingest_received", json!({ "source_uri": "a" }))])
        .1
        .replace("{\"source_uri\":\"a\"}", "{\r\n\t\"source_uri\": \"a\"\r}");
    let outcome = Script::start(vec![(200, spread)]).run(&["events", RUN, "--json"]);
    assert_eq!(outcome.stdout.lines().count(), 1, "{:?}", outcome.stdout);
    assert_eq!(outcome.json()["payload"], json!({ "source_uri": "a" }));
}
