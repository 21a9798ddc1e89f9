//! Frame metadata: alike for frames of an ingest and of a caller, with no part that is not a value.

use serde_json::{Value, json};

use crate::support::{Server, shared};

fn analyze(server: &Server, run: &str, body: &Value) -> Vec<Value> {
    let reply = server.post_run(run, "analyze", body).assert_ok();
    reply.json()["metadata"].as_array().expect("an array").clone()
}

/// The same without what names the run, the request and where the frames come from.
fn common(mut metadata: Vec<Value>) -> Vec<Value> {
    for frame in &mut metadata {
        for name in ["run_id", "ordering_key", "trace"] {
            frame.as_object_mut().expect("an object").remove(name).expect("there");
        }
        frame["window"]["source"].take();
    }
    metadata
}

#[test]
fn frames_of_a_caller_are_told_as_those_of_an_ingest_are() {
    let server = shared().with_clips();
    let run = server.create_run();
    let sampling = json!({"sampling_policy": "fixed", "fixed_fps": 5});
    let mut source = sampling.clone();
    (source["source_uri"], source["max_frames"]) = (json!("motion.mp4"), json!(12));
    server.post_run(&run, "ingest", &source).assert_ok();
    let decoded = server.payloads(&run, "frames_decoded").remove(0);
    let mut body = sampling;
    body["model"] = json!("qwen3-vl-8b");
    let ingested = analyze(&server, &run, &body);
    body["frames"] = decoded["signals"].clone();
    let given = analyze(&server, &server.create_run(), &body);
    assert_eq!(common(ingested), common(given));
}

#[test]
fn every_part_has_a_value() {
    let server = shared();
    let run = server.create_run();
    let frame = |index: u64, pts_ms: i64| {
        json!({
            "frame_index": index, "pts_ms": pts_ms, "perceptual_hash": 255, "luma_mean": 0.5,
            "flicker_score": 0.1, "ghosting_score": 0.9, "noise_variance_score": 0.1,
        })
    };
    let fixed = json!({"sampling_policy": "fixed", "fixed_fps": 4});
    let rows = [
        (vec![frame(0, 0), frame(1, 40), frame(2, 80)], json!({}), 25.0),
        (vec![frame(0, 0), frame(1, 40)], fixed, 4.0),
    ];
    for (frames, more, expected) in rows {
        let mut body = more;
        (body["model"], body["frames"]) = (json!("qwen3-vl-8b"), frames.into());
        for metadata in analyze(&server, &run, &body) {
            assert_eq!(metadata["sample_fps"], expected, "{body}");
            let events = metadata["annotations"]["events"].as_array().expect("an array");
            assert!(events.iter().all(|event| event["description"].is_string()), "{metadata}");
            let trace = &metadata["trace"];
            let digits = trace["span_id"].as_str().expect("a string");
            assert_eq!(trace["request_id"], format!("req-{digits}"));
        }
    }
}
