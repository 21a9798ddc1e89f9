//! Frame metadata: alike for frames of an ingest and of a caller.

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
