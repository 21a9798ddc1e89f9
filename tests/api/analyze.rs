//! Analyze: what it refuses, what it says of recorded frames, and the markers it leaves.

use serde_json::{Value, json};

use crate::support::{Reply, Setup, clips};

fn message(reply: &Reply, field: &str) -> String {
    let json = reply.json();
    let details = json["error"]["details"].as_array().cloned().unwrap_or_default();
    let detail = details.iter().find(|detail| detail["field"] == field);
    let detail = detail.unwrap_or_else(|| panic!("nothing said of {field}: {}", reply.text));
    detail["message"].as_str().expect("a text").to_owned()
}

#[test]
fn a_run_that_has_ended_is_a_conflict_before_its_frames_are_looked_for() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/analyze");
    assert_eq!(server.post(&path, &json!({"model": "m"})).fields(), ["frames"]);
    assert_eq!(server.post(&format!("/v1/runs/{run}/stop"), &json!({})).status, 200);
    assert_eq!(server.post(&path, &json!({"model": "m"})).status, 409);
    assert_eq!(server.post(&path, &json!({"model": ""})).status, 422, "the body comes first");
}

#[test]
fn a_name_that_is_none_of_a_list_is_answered_with_the_list() {
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).start();
    let query = json!({"run_id": server.create_run(), "kind": "markers"});
    let kinds = message(&server.post("/v1/query", &query), "kind");
    assert!(kinds.contains("marker_emitted") && kinds.contains("run_created"), "{kinds}");
    let models = message(&server.post("/v1/runs", &json!({"model": "gpt"})), "model");
    assert!(models.contains("qwen3-vl-4b"), "{models}");
}

#[test]
fn recorded_frames_are_reported_as_they_were_decoded() {
    let Some(clips) = clips("recorded_frames_are_reported_as_they_were_decoded") else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let server = Setup::new(dir.path()).root(&clips).var("SERVICE_INGEST_STILLS", "none").start();
    let run = server.create_run();
    let source = json!({"source_uri": "nature_flower.mp4", "sampling_policy": "fixed", "fixed_fps": 2, "max_frames": 6, "stream_id": "cam"});
    let reply = server.post(&format!("/v1/runs/{run}/ingest"), &source);
    assert_eq!(reply.status, 200, "{}", reply.text);
    let rows = [
        (json!({}), ""),
        (json!({"stream_id": "cam"}), ""),
        (json!({"stream_id": "other"}), "stream_id"),
        (json!({"sampling_policy": "fixed", "fixed_fps": 2}), ""),
        (json!({"sampling_policy": "fixed", "fixed_fps": 3}), "fixed_fps"),
        (json!({"sampling_policy": "fixed"}), "fixed_fps"),
        (json!({"sampling_policy": "source_fps_adaptive"}), "sampling_policy"),
    ];
    for (mut body, field) in rows {
        body["model"] = json!("m");
        let reply = server.post(&format!("/v1/runs/{run}/analyze"), &body);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{body}");
        assert_eq!(reply.status, if field.is_empty() { 200 } else { 422 }, "{body}");
        if field.is_empty() {
            let metadata = &reply.json()["metadata"][0];
            let found = (&metadata["sampling_policy"], &metadata["sample_fps"]);
            assert_eq!(found, (&json!("fixed"), &json!(2.0)), "{body}");
        }
    }
    let events = server.events(&run);
    let analysed: Vec<&Value> =
        events.iter().filter(|event| event["kind"] == "analysis_generated").collect();
    assert_eq!(analysed.len(), 3);
    assert!(analysed.iter().all(|event| event["payload"]["sampling_policy"] == "fixed"));
}
