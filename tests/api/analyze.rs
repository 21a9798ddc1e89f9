//! Analyze: what it refuses, and what it says of recorded frames.

use serde_json::json;

use crate::support::{Reply, shared};

fn message(reply: &Reply, field: &str) -> String {
    let json = reply.json();
    let details = json["error"]["details"].as_array().cloned().unwrap_or_default();
    let detail = details.iter().find(|detail| detail["field"] == field);
    let detail = detail.unwrap_or_else(|| panic!("nothing said of {field}: {}", reply.text));
    detail["message"].as_str().expect("a text").to_owned()
}

#[test]
fn a_run_that_has_ended_is_a_conflict_before_its_frames_are_looked_for() {
    let server = shared();
    let run = server.create_run();
    let path = format!("/v1/runs/{run}/analyze");
    assert_eq!(server.post(&path, &json!({"model": "qwen3-vl-8b"})).fields(), ["frames"]);
    assert_eq!(server.post_run(&run, "stop", &json!({})).status, 200);
    assert_eq!(server.post(&path, &json!({"model": "qwen3-vl-8b"})).status, 409);
    assert_eq!(server.post(&path, &json!({"model": ""})).status, 422, "the body comes first");
}

#[test]
fn a_name_that_is_none_of_a_list_is_answered_with_where_the_list_is() {
    let server = shared();
    let query = json!({"run_id": server.create_run(), "kind": "markers"});
    let kinds = message(&server.post("/v1/query", &query), "kind");
    assert!(kinds.contains("marker_emitted") && kinds.contains("run_created"), "{kinds}");
    let models = message(&server.post("/v1/runs", &json!({"model": "gpt"})), "model");
    assert!(models.contains("GET /v1/models lists them"), "{models}");
}

#[test]
fn recorded_frames_are_reported_as_they_were_decoded() {
    let server = shared().with_clips();
    let run = server.ingested(&json!({"source_uri": "motion.mp4", "sampling_policy": "fixed", "fixed_fps": 2, "max_frames": 6, "stream_id": "cam"}));
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
        body["model"] = json!("qwen3-vl-8b");
        let reply = server.post_run(&run, "analyze", &body);
        assert_eq!(reply.fields().first().map_or("", |field| field), field, "{body}");
        assert_eq!(reply.status, if field.is_empty() { 200 } else { 422 }, "{body}");
        if field.is_empty() {
            let metadata = &reply.json()["metadata"][0];
            let found = (&metadata["sampling_policy"], &metadata["sample_fps"]);
            assert_eq!(found, (&json!("fixed"), &json!(2.0)), "{body}");
        }
    }
    let analysed = server.payloads(&run, "analysis_generated");
    assert_eq!(analysed.len(), 3);
    assert!(analysed.iter().all(|payload| payload["sampling_policy"] == "fixed"));
}
