//! A log whose files are damaged under the server: what callers are told, and what the server is.

use serde_json::{Value, json};

use crate::support::{Setup, wait_until};

#[test]
fn damage_is_an_internal_error_whose_details_are_in_the_log_alone() {
    let dir = tempfile::tempdir().expect("a directory");
    let said = dir.path().join("stderr");
    let setup = Setup::new(dir.path()).clips().log_to(&said);
    let server = setup.start();
    let run = server.ingested(&json!({"source_uri": "street.mp4", "max_frames": 1100}));
    drop(server);
    let columns = dir.path().join("data/log/columns");
    let mut removed = 0;
    for entry in std::fs::read_dir(&columns).expect("readable") {
        std::fs::remove_file(entry.expect("readable").path()).expect("removed");
        removed += 1;
    }
    assert!(removed > 0, "the signals are in files of their own");
    let server = setup.start();
    let analyze = json!({"model": "qwen3-vl-8b"});
    // An event without its signals is an error of that event alone.
    let events = server.events(&run);
    let query = server.post("/v1/query", &json!({"run_id": run}));
    for events in [&events, query.json()["matches"].as_array().expect("an array")] {
        let lost: Vec<_> =
            events.iter().filter(|event| event["payload"]["damaged"] == true).collect();
        assert_eq!(lost.len(), 1, "{events:?}");
        assert_eq!(
            (&lost[0]["kind"], &lost[0]["payload"]["signals"]),
            (&json!("frames_decoded"), &Value::Null)
        );
        assert_eq!(lost[0]["payload"]["decoded_frames"], 1100);
        assert_eq!(
            events.len() as u64,
            query.json()["next_from_seq"].as_u64().expect("a number") - 1
        );
    }
    let rows = [
        (format!("/v1/runs/{run}/analyze"), "POST", analyze),
        (format!("/v1/runs/{run}/frames/3"), "GET", Value::Null),
        (format!("/v1/runs/{run}/signals"), "GET", Value::Null),
    ];
    for (path, method, body) in rows {
        let call = server.call(method, &path);
        let reply = if body.is_null() { call.send() } else { call.json(&body).send() };
        let told = (reply.status, reply.code(), reply.json()["error"]["message"].clone());
        assert_eq!(told, (500, "internal_error".to_owned(), json!("internal error")), "{path}");
        assert!(!reply.text.contains("columns"), "{}", reply.text);
        let request = reply.header("x-request-id");
        // A thread of its own writes the log.
        wait_until(&format!("{path}: the log says which file under {request}"), || {
            let lines = std::fs::read_to_string(&said).expect("readable");
            lines.lines().any(|line| line.contains(request) && line.contains("columns"))
        });
    }
    let state = server.get(&format!("/v1/runs/{run}/state"));
    assert_eq!(state.status, 200, "what is not damaged is served: {}", state.text);
}
