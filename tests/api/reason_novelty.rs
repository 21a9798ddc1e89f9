//! Chunks of a recorded file that show nothing new repeat the answer before them.

use std::collections::BTreeMap;

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{finding, reason};
use crate::support::{Setup, model::Model, onnx_runtime, this_test};

#[test]
fn what_shows_nothing_new_repeats_an_answer_of_the_last_two_seconds() {
    let Some(runtime) = onnx_runtime::runtime(&this_test()) else { return };
    let mut asked = 0;
    let model = Model::start(move |_| {
        asked += 1;
        Step::chat(&finding(&format!("answer {asked}"), 0.9))
    });
    let setup = model.behind(Setup::temporary().clips());
    let setup = setup.var("SERVICE_NOVELTY_MODEL_PATH", "built-in");
    let server = setup.var("SERVICE_ONNXRUNTIME_PATH", runtime.to_str().expect("text")).start();
    let run = server.create_run();
    let more = json!({"source_uri": "screen.mp4", "chunk_size": 10, "max_frames": 400});
    reason(&server, &run, &more).assert_ok();
    let events = server.events(&run);
    let of_kind = |event: &&Value| event["kind"] == "semantic_chunk_inferred";
    let chunks: BTreeMap<u64, &Value> = events
        .iter()
        .filter(of_kind)
        .map(|event| (event["seq"].as_u64().expect("a number"), &event["payload"]))
        .collect();
    assert!(chunks.len() > 10, "{} chunks", chunks.len());
    let repeats: Vec<(&Value, &Value)> = chunks
        .values()
        .filter_map(|chunk| Some((*chunk, chunks[&chunk["reused_from_seq"].as_u64()?])))
        .collect();
    let (asked, repeated) = (model.server.seen().len(), repeats.len());
    assert_eq!(asked + repeated, chunks.len(), "nobody is asked about what shows nothing new");
    assert!(asked > 0 && repeated > 0, "{asked} asked and {repeated} repeated");
    for (chunk, first) in repeats {
        for field in ["summary", "description", "event_type", "object_label", "confidence"] {
            assert_eq!(chunk[field], first[field], "{field} of {chunk}");
        }
        assert_eq!((&chunk["provider"], &chunk["total_tokens"]), (&Value::Null, &json!(0)));
        assert!(first.get("reused_from_seq").is_none(), "an answer of its own: {first}");
        let at = |chunk: &Value, field: &str| chunk[field].as_i64().expect("a number");
        let since = at(chunk, "start_pts_ms") - at(first, "end_pts_ms");
        assert!((0..=2000).contains(&since), "{since} ms after it");
    }
    let counted = server.metric("service_novelty_decisions_total{decision=\"reuse\"}");
    assert_eq!(counted, repeated as f64);
}
