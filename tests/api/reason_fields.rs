//! Requests to reason: the effects of some of their fields; [`super::limits`] has the bounds.

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{LARGE, MODEL, finding, reason};
use crate::support::{Setup, model::Model};

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
