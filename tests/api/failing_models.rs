//! A model that fails is said: in the answer, the events, the run, the log and the metrics.

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{LARGE, MODEL, finding, reason};
use crate::support::{
    Server, Setup, assert_has,
    model::{Model, prompt, stock},
    shared, with,
};

/// Outcome of a reasoning's models: in its answer, and the same in its last event and in the run.
fn semantic(server: &Server, run: &str, answer: &Value) -> Value {
    let said = answer["semantic"].clone();
    assert_eq!(server.payloads(run, "run_completed")[0]["semantic"], said, "the event");
    assert_eq!(server.record(run)["semantic"], said, "the run");
    said
}

#[test]
fn a_wrong_name_is_said_everywhere() {
    let dir = tempfile::tempdir().expect("a directory");
    let model = stock(&["Qwen/Qwen3-VL-8B-Instruct"], finding("van waits", 0.9));
    let log = dir.path().join("log");
    let setup = model.behind(Setup::new(dir.path()).clips()).log_to(&log);
    let server = setup.start();
    let run = server.create_run();
    assert_eq!(server.record(&run)["semantic"], Value::Null);
    let reply = reason(&server, &run, &json!({})).assert_ok();
    let error = format!("http 404: The model `{MODEL}` does not exist");
    let expected = json!({
        "requested": true, "chunks_asked": 3, "chunks_failed": 3, "error": error,
        "fallback_used": true,
    });
    assert_eq!(semantic(&server, &run, &reply.json()), expected);
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    let why = chunk["semantic_error"].as_str().unwrap_or_default();
    assert!(why.contains("status 404") && why.contains("does not exist"), "{why}");
    assert_eq!(reply.json()["metadata"][0]["finish_reason"], "other");
    assert_eq!(server.metric("service_reason_chunks_total{outcome=\"failed\"}"), 3.0);
    let direct = server.post("/v1/infer", &json!({"model": MODEL, "prompt": "x"}));
    assert!(direct.status == 500 && direct.text.contains("does not exist"), "{direct}");
    let provider = server.get("/v1/models").json()["providers"][0].clone();
    assert!(!provider["last_error"].to_string().contains("does not exist"), "{provider}");
    drop(server);
    let lines = std::fs::read_to_string(&log).expect("a log");
    let warns = |line: &&str| line.contains("WARN") && line.contains("no model answers");
    let warned: Vec<&str> = lines.lines().filter(warns).collect();
    assert_eq!(warned.len(), 1, "{lines}");
    assert!(warned[0].contains(&run) && warned[0].contains("does not exist"), "{warned:?}");
    let server = setup.start();
    assert_eq!(server.record(&run)["semantic"], expected, "after a restart");
}

#[test]
fn nobody_asked_and_some_without_an_answer_are_told_apart() {
    let (alone, unserved) = (shared().with_clips(), "no inference backend is configured");
    let rows = [
        (json!({}), true),
        (json!({"first_pass_model": LARGE}), true),
        (json!({"semantic_prompt": ""}), false),
        (json!({"semantic_inference": false}), false),
    ];
    let shown = |semantic: &Value| {
        let fields = ["requested", "chunks_asked", "chunks_failed", "error", "fallback_used"];
        Value::from(fields.map(|field| semantic[field].clone()).to_vec())
    };
    for (more, is_used) in rows {
        let run = alone.create_run();
        let reply = reason(&alone, &run, &more).assert_ok().json();
        let error = is_used.then_some(unserved);
        let expected = json!([is_used, 0, 0, error, is_used]);
        assert_eq!(shown(&semantic(&alone, &run, &reply)), expected, "{more}");
        let metadata = &reply["metadata"][0];
        assert_eq!(metadata["finish_reason"], "gate", "{more}");
        let asked = more["first_pass_model"].as_str().unwrap_or(MODEL);
        assert!(asked != MODEL || metadata["model"] == MODEL, "{more}: {metadata}");
        // The run is told of it once.
        let told = alone.payloads(&run, "semantic_fallback_activated");
        let fallback = &metadata["fallback"];
        let found = (told.len(), &fallback["used"]);
        assert_eq!(found, (usize::from(is_used), &json!(is_used)), "{more}");
        if is_used {
            let why = told[0]["reason"].as_str().expect("a text");
            assert!(why.contains(unserved), "{more}: {why}");
            assert_has(fallback, &json!({"reason": why, "from_model": asked}));
        }
    }
    let refused = json!({"error": {"message": "at http://10.0.0.1/x: too many pictures"}});
    let model = Model::start(move |seen| match seen.number {
        1 => Step::json(400, &refused),
        _ => Step::chat(&finding("van waits", 0.9)),
    });
    let server = model.behind(Setup::temporary().clips()).start();
    let run = server.create_run();
    let reply = reason(&server, &run, &json!({"vlm_concurrency": 1})).json();
    let error = "http 400: at *** too many pictures";
    assert_eq!(shown(&semantic(&server, &run, &reply)), json!([true, 3, 1, error, true]));
    let ends = |metadata: &Value| metadata["finish_reason"].clone();
    let metadata = reply["metadata"].as_array().expect("an array");
    assert_eq!([0, 30, 60].map(|at| ends(&metadata[at])), ["stop", "other", "stop"]);
}

#[test]
fn plain_words_are_a_description_and_the_callers_object_is_an_output() {
    let said = "A white van waits\nin front of a house.";
    let object = r#"{"vans": 2, "colours": ["white"]}"#;
    let model = Model::start(move |seen| {
        Step::chat(if prompt(seen).contains("As an object") { object } else { said })
    });
    let server = model.behind(Setup::temporary().clips()).start();
    let schema = json!({"type": "object", "required": ["vans"]});
    let of = |more: Value| {
        let run = server.create_run();
        let reply = reason(&server, &run, &more).assert_ok();
        let chunk = server.payloads(&run, "semantic_chunk_inferred").remove(0);
        let found = server.get(&format!("/v1/runs/{run}/interactions")).json();
        (semantic(&server, &run, &reply.json()), chunk, found["interactions"][0].clone(), run)
    };
    for more in [json!({"max_frames": 30}), json!({"max_frames": 30, "output_schema": schema})] {
        let (outcome, chunk, interaction, run) = of(more);
        assert_has(&outcome, &json!({"chunks_asked": 1, "chunks_failed": 0}));
        let expected = json!({"description": said, "confidence": null, "raw_output": said,
            "semantic_error": null});
        assert_has(&chunk, &expected);
        assert_has(&interaction, &json!({"description": said, "output": null}));
        let hits = server.post("/v1/search", &json!({"query": "white van", "run_id": run})).json();
        assert_eq!(hits["total_hits"], 1, "{hits}");
    }
    assert_eq!(server.metric("service_reason_chunks_total{outcome=\"plain_text\"}"), 2.0);
    // Whoever asks for JSON directly is given nothing else.
    let asked = json!({"model": MODEL, "prompt": "x", "output_schema": {"type": "object"}});
    assert_eq!(server.post("/v1/infer", &asked).status, 500);
    let more =
        json!({"max_frames": 30, "output_schema": schema, "semantic_prompt": "As an object"});
    let (_, chunk, interaction, _) = of(more);
    let output = json!({"vans": 2, "colours": ["white"]});
    assert_eq!((&interaction["output"], &chunk["output"]), (&output, &output));
}

#[test]
fn what_would_change_the_meaning_is_refused_and_a_longer_source_is_said() {
    let server = shared().with_clips();
    let run = server.create_run();
    let rows = [
        (json!({"media": {}}), "media"),
        (json!({"local_audio": {}}), "local_audio"),
        (json!({"first_pass_model": "gpt-0"}), "first_pass_model"),
        (json!({"semantic_frames_per_chunk": 2, "visual_diff": true}), "semantic_frames_per_chunk"),
        (json!({"crop": {"x": 0.6, "y": 0, "width": 0.5, "height": 1}}), "crop.width"),
        (json!({"output_schema": {"$ref": "http://a/b"}}), "output_schema"),
    ];
    for (more, field) in rows {
        let refused = reason(&server, &run, &more).assert_status(422);
        assert_eq!(refused.fields()[0], field, "{more}: {}", refused.text);
    }
    let ingest = |max_frames: u64, more: Value| {
        let body = with(json!({"source_uri": "talk.mp4", "max_frames": max_frames}), &more);
        let run = server.create_run();
        let answer = server.post_run(&run, "ingest", &body).json();
        server.post_run(&run, "stop", &json!({}));
        (answer["decoded_frames"].as_u64().expect("a count"), answer["more_frames"].clone())
    };
    for more in [json!({}), json!({"sampling_policy": "fixed", "fixed_fps": 2})] {
        let (all, is_longer) = ingest(500_000, more.clone());
        assert_eq!(is_longer, false, "{more}");
        for (max_frames, expected) in [(all, false), (all - 1, true), (1, true)] {
            assert_eq!(ingest(max_frames, more.clone()), (max_frames, json!(expected)), "{more}");
        }
    }
    let reasoned = reason(&server, &run, &json!({"max_frames": 30, "semantic_inference": false}));
    let expected = json!({"more_frames": true, "truncated": null, "frame_metadata_included": true});
    assert_has(&reasoned.json(), &expected);
    let brief = json!({"max_frames": 30, "include_frame_metadata": false});
    let answer = reason(&server, &server.create_run(), &brief).json();
    let expected = json!({"generated": 30, "metadata": [], "frame_metadata_included": false});
    assert_has(&answer, &expected);
}
