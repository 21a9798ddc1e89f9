//! Requests to reason: the bounds of their fields, and the effects of some of them.

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{LARGE, MODEL, finding, reason, state};
use crate::support::{Setup, model::Model, shared};

#[test]
fn every_field_has_its_bounds() {
    let server = shared();
    let run = server.create_run();
    let crop = |x: f64, width: f64| json!({"x": x, "y": 0, "width": width, "height": 1});
    // A source that is not there is what is wrong with a body that is right.
    let rows = [
        (json!({}), "source_uri"),
        (json!({"model": null}), "model"),
        (json!({"model": "gpt-0"}), "model"),
        (json!({"first_pass_model": "gpt-0"}), "first_pass_model"),
        (json!({"second_pass_model": "gpt-0"}), "second_pass_model"),
        (json!({"second_pass_threshold": 1.1}), "second_pass_threshold"),
        (json!({"sampling_policy": "fixed"}), "fixed_fps"),
        (json!({"chunk_size": 4}), "chunk_size"),
        (json!({"chunk_size": 501}), "chunk_size"),
        (json!({"semantic_prompt": "x".repeat(4097)}), "semantic_prompt"),
        (json!({"semantic_prompt": "x".repeat(4096)}), "source_uri"),
        (json!({"semantic_frames_per_chunk": 5}), "semantic_frames_per_chunk"),
        (json!({"semantic_frames_per_chunk": 2, "visual_diff": true}), "semantic_frames_per_chunk"),
        (json!({"semantic_frame_max_edge": 63}), "semantic_frame_max_edge"),
        (json!({"semantic_timeout_ms": 99}), "semantic_timeout_ms"),
        (json!({"crop": []}), "crop"),
        (json!({"crop": {"x": 0}}), "crop.y"),
        (json!({"crop": crop(-0.1, 0.5)}), "crop.x"),
        (json!({"crop": crop(0.6, 0.5)}), "crop.width"),
        (json!({"crop": crop(0.6, 0.0)}), "crop.width"),
        (json!({"crop": {"x": 0, "y": 0.6, "width": 1, "height": 0.5}}), "crop.height"),
        (json!({"crop": crop(0.5, 0.5)}), "source_uri"),
        (json!({"output_schema": "{}"}), "output_schema"),
        (json!({"output_schema": {"$ref": "http://a/b"}}), "output_schema"),
        (json!({"index_name": ""}), "index_name"),
        (json!({"video_clip_duration_s": 0}), "video_clip_duration_s"),
        (json!({"video_clip_duration_s": 60.5}), "video_clip_duration_s"),
        (json!({"video_clip_duration_s": -1}), "video_clip_duration_s"),
        (json!({"vlm_concurrency": 0}), "vlm_concurrency"),
        (json!({"vlm_concurrency": 65}), "vlm_concurrency"),
        (json!({"temporal_chain": 1}), "temporal_chain"),
        (json!({"trace_id": "a b"}), "trace_id"),
        (json!({"window_size": 1}), "window_size"),
        (json!({"unknown": 1}), "source_uri"),
    ];
    for (more, field) in rows {
        let mut more = more;
        more["source_uri"] = json!("missing.mp4");
        let reply = reason(&server, &run, &more);
        assert_eq!((reply.status, reply.code().as_str()), (422, "validation_error"), "{more}");
        assert_eq!(reply.fields()[0], field, "{more}: {}", reply.text);
    }
    assert_eq!(state(&server, &run), "pending");
    for (more, expected) in [
        (json!({"crop": crop(0.6, 0.5)}), "x and width are together more than 1"),
        (json!({"crop": crop(0.6, 0.0)}), "greater than 0 and at most 1"),
        (json!({"video_clip_duration_s": -1}), "greater than 0 and at most 60"),
        (json!({"output_schema": {"$ref": "#/a"}}), "not there, at /"),
        (json!({"output_schema": {"pattern": "(a{1000}){1000}"}}), "pattern at /pattern that"),
    ] {
        let reply = reason(&server, &run, &more);
        assert!(reply.text.contains(expected), "{more}: {}", reply.text);
    }
}

#[test]
fn crops_are_told_or_refused_and_words_may_be_few_or_long() {
    let mut long: Value = serde_json::from_str(&finding("van waits", 0.9)).expect("JSON");
    long["description"] = json!("d".repeat(20_000));
    let model = Model::start(move |seen| match seen.json()["model"].as_str() {
        Some(LARGE) => Step::chat(&long.to_string()),
        _ => Step::chat(r#"{"event_type": "van waits"}"#),
    });
    let server = model.behind(Setup::temporary().clips()).start();
    let run = server.create_run();
    let crop = json!({"x": 0.5, "y": 0.5, "width": 0.000_001, "height": 0.5});
    reason(&server, &run, &json!({"crop": crop})).assert_invalid("crop", &crop);
    assert_eq!(model.server.seen().len(), 0, "nobody was asked");

    // A schema of one's own needs no confidence.
    let more = json!({
        "max_frames": 30, "crop": {"x": 0.25, "y": 0, "width": 0.5, "height": 1},
        "semantic_frame_max_edge": 64,
        "output_schema": {"type": "object", "required": ["event_type"]},
    });
    let reply = reason(&server, &run, &more).assert_ok();
    let answer = reply.json();
    assert_eq!(answer["metadata"][29]["coordinate_schema"], "sightline.image.v1");
    let coordinates = &answer["metadata"][29]["coordinates"];
    assert_eq!(coordinates["requested_region"]["x"], 0.25);
    let decoded = &server.payloads(&run, "frames_decoded")[0];
    assert_eq!(coordinates["source_extent"]["width"], decoded["width"]);
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    assert_eq!((&chunk["event_type"], &chunk["confidence"]), (&json!("van_waits"), &Value::Null));
    let said = server.get(&format!("/v1/runs/{run}/interactions")).json();
    assert_eq!(said["interactions"][0]["confidence"], Value::Null);
    let marker = &answer["markers"][0];
    assert_eq!(marker["event_type"], "van_waits");
    assert!(marker["confidence"].as_f64() > Some(0.0), "the gate's: {marker}");
    assert_eq!(server.record(&run)["model"], MODEL);

    let run = server.create_run();
    let more = json!({"max_frames": 30, "first_pass_model": LARGE});
    let answer = reason(&server, &run, &more).json();
    assert_eq!(answer["metadata"][0]["model"], LARGE, "who was asked");
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    assert_eq!(
        (&chunk["truncated"], chunk["description"].as_str().map(str::len)),
        (&json!(true), Some(16_384))
    );
    assert_eq!(server.payloads(&run, "analysis_generated")[0]["model"], LARGE);
}
