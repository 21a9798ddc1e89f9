//! Inference by a server that somebody else wrote: llama.cpp, with a model whose words are noise.

use serde_json::{Value, json};

use crate::support::{
    Reply, Server, Setup, assert_has,
    model_server::{KEY, ModelServer},
    this_test, with,
};

/// Name of the model in the service; llama.cpp calls it `noise`.
const MODEL: &str = "smolvlm2-256m";

/// A server whose one backend is `models`, asked with `key`.
fn server(models: &ModelServer, key: &str) -> Setup {
    let noise = format!(
        "api_key = \"${{MODEL_KEY}}\"\nmodel = \"{MODEL}\"\nupstream_model = \"noise\"\npriority = 1"
    );
    Setup::temporary()
        .backend("noise", &format!("{}/v1/", models.url()), &noise)
        .var("MODEL_KEY", key)
        // A busy machine is slow, and none of this is about how slow.
        .var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "120000")
}

/// A schema whose answers are short, whatever the model draws.
fn schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "event_type": {"type": "string", "minLength": 1, "maxLength": 40},
            "description": {"type": "string", "maxLength": 200},
            "people": {"type": "integer", "minimum": 0, "maximum": 9},
            "seen": {"type": "array", "items": {"enum": ["car", "dog"]}, "maxItems": 3},
        },
        "required": ["event_type", "description", "people", "seen"],
        "additionalProperties": false,
    })
}

/// It holds what [`schema`] asks for.
fn assert_valid(answer: &Value) {
    let length = |field: &str| answer[field].as_str().map(|text| text.chars().count());
    assert!(length("event_type").is_some_and(|length| (1..=40).contains(&length)), "{answer}");
    assert!(length("description").is_some_and(|length| length <= 200), "{answer}");
    assert!(answer["people"].as_u64().is_some_and(|people| people <= 9), "{answer}");
    let seen = answer["seen"].as_array().unwrap_or_else(|| panic!("no array: {answer}"));
    assert!(seen.len() <= 3 && seen.iter().all(|one| one == "car" || one == "dog"), "{answer}");
    assert_eq!(answer.as_object().map(serde_json::Map::len), Some(4), "{answer}");
}

fn infer(server: &Server, body: Value) -> Reply {
    server.post("/v1/infer", &with(json!({"model": MODEL, "prompt": "What is there?"}), &body))
}

/// An answer of 200, its count of tokens being a sum.
fn answered(reply: &Reply) -> Value {
    assert_eq!(reply.status, 200, "{}", reply.text);
    let answer = reply.json();
    let tokens = |kind: &str| answer["tokens"][kind].as_u64().expect("a count");
    let parts = tokens("prompt_tokens") + tokens("completion_tokens") + tokens("thinking_tokens");
    assert_eq!(tokens("total_tokens"), parts, "{answer}");
    assert!(tokens("prompt_tokens") > 0 && tokens("completion_tokens") > 0, "{answer}");
    answer
}

/// It answers in words, in part and by a schema.
fn check_answers(server: &Server) {
    let words = answered(&infer(server, json!({})));
    let expected = json!({
        "provider": "noise", "model": MODEL, "finish_reason": "stop", "fallback_used": false, "output_json": null,
    });
    assert_has(&words, &expected);
    assert!(words["output_text"].as_str().is_some_and(|text| !text.is_empty()), "{words}");
    let part = answered(&infer(server, json!({"max_tokens": 2})));
    assert_eq!(part["finish_reason"], "length");
    assert_eq!(part["tokens"]["completion_tokens"], 2);
    let run = server.create_run();
    for temperature in [0.0, 0.7, 2.0] {
        let asked = json!({"output_schema": schema(), "temperature": temperature, "run_id": run});
        let found = answered(&infer(server, asked));
        assert_valid(&found["output_json"]);
        let text = found["output_text"].as_str().expect("a text");
        assert_eq!(serde_json::from_str::<Value>(text).ok(), Some(found["output_json"].clone()));
    }
    let kinds = server.kinds(&run);
    assert_eq!(kinds.iter().filter(|kind| *kind == "inference_completed").count(), 3, "{kinds:?}");
    let listed = server.get("/v1/models").json();
    assert_eq!(listed["providers"][0]["reachable"], true, "{listed}");
    let model =
        listed["models"].as_array().expect("an array").iter().find(|one| one["id"] == MODEL);
    assert_eq!(model.expect("in the catalog")["availability"], "ready");
}

#[test]
fn llama_cpp_answers_as_it_is_asked_and_what_it_refuses_is_said_without_its_words() {
    let Some(models) = ModelServer::start(&this_test(), 0) else { return };
    let right = server(&models, KEY).clips().start();
    check_answers(&right);
    check_batch(&right);
    check_stills(&right);
    check_chunks(&right);
    // A letter is a token: more than the model has room for.
    let long = infer(&right, json!({"prompt": "n".repeat(32_768)}));
    drop(right);
    let wrong = infer(&server(&models, "wrong-key").start(), json!({}));
    for (reply, class) in [(long, "status 400"), (wrong, "status 401")] {
        let reply = reply.assert_refused(500, "internal_error");
        assert!(reply.text.contains(class), "{}", reply.text);
        for secret in ["-key", "127.0.0.1", "nnnn"] {
            assert!(!reply.text.contains(secret), "{}", reply.text);
        }
    }
}

/// A batch is in order.
fn check_batch(server: &Server) {
    // A letter is a token: the seventh has more than there is room for, and the others are told
    // apart by their counts.
    let request = |index: usize| {
        let prompt = "n".repeat(if index == 7 { 32_768 } else { index + 1 });
        json!({"model": MODEL, "prompt": prompt, "output_schema": schema()})
    };
    let requests: Vec<Value> = (0..24).map(request).collect();
    // More at once than llama.cpp has slots for.
    let reply = server
        .post("/v1/infer/batch", &json!({"requests": requests, "max_parallel": 8}))
        .assert_ok();
    let batch = reply.json();
    assert_has(&batch, &json!({"processed": 24, "succeeded": 23, "failed": 1}));
    let results = batch["results"].as_array().expect("an array");
    assert_eq!(results.len(), 24);
    let mut counted = 0;
    for (index, result) in results.iter().enumerate() {
        assert_has(result, &json!({"index": index, "ok": index != 7}));
        if index != 7 {
            assert_valid(&result["result"]["output_json"]);
            let count = result["result"]["tokens"]["prompt_tokens"].as_u64().expect("a count");
            assert!(count > counted, "of another request: {result}");
            counted = count;
        }
    }
}

#[test]
fn hidden_reasoning_is_no_part_of_an_answer() {
    let Some(models) = ModelServer::start(&this_test(), 12) else { return };
    let server = server(&models, KEY).start();
    for prompt in ["What is there?", "Who is there?", "Where is it?"] {
        let found = answered(&infer(&server, json!({"prompt": prompt, "output_schema": schema()})));
        assert_valid(&found["output_json"]);
        let text = found["output_text"].as_str().expect("a text");
        assert!(text.starts_with('{') && text.ends_with('}'), "{text}");
    }
}

/// Stored stills are pictures that it takes.
fn check_stills(server: &Server) {
    let run = server.ingested(&json!({"source_uri": "talk.mp4", "sampling_policy": "fixed", "fixed_fps": 2, "max_frames": 40}));
    let kept = server.get(&format!("/v1/runs/{run}/keyframes")).json();
    let kept = kept["keyframes"].as_array().expect("an array");
    let hashes: Vec<&Value> = kept.iter().map(|still| &still["image_sha256"]).collect();
    assert!(!hashes.is_empty(), "{kept:?}");
    let prompt_tokens = |images: Vec<Value>| {
        let found = answered(&infer(server, json!({"images": images, "output_schema": schema()})));
        assert_valid(&found["output_json"]);
        found["tokens"]["prompt_tokens"].as_u64().expect("a count")
    };
    let image = |hash: &Value| json!({"keyframe": {"run_id": run, "sha256": hash}});
    let none = prompt_tokens(Vec::new());
    let one = prompt_tokens(vec![image(hashes[0])]);
    let two = prompt_tokens(vec![image(hashes[0]), image(hashes[hashes.len() - 1])]);
    assert!(none < one && one < two, "pictures are tokens: {none}, {one}, {two}");
}

/// It is asked about every chunk of a clip.
fn check_chunks(server: &Server) {
    let diff = json!({"visual_diff": true, "semantic_frames_per_chunk": 1});
    for more in [json!({}), json!({"temporal_chain": true}), diff] {
        let run = server.create_run();
        let body = json!({
            "source_uri": "talk.mp4", "model": MODEL, "max_frames": 90,
            "semantic_prompt": "What happens?", "semantic_frames_per_chunk": 2,
        });
        let reply = server.post_run(&run, "reason", &with(body, &more));
        assert_eq!(reply.status, 200, "{more}: {}", reply.text);
        assert_eq!(reply.json()["tokens"]["chunks_analyzed"], 3, "{more}: {}", reply.text);
        let chunks = server.payloads(&run, "semantic_chunk_inferred");
        assert_eq!(chunks.len(), 3, "{more}");
        for chunk in &chunks {
            assert_has(chunk, &json!({"provider": "noise", "semantic_error": null}));
            assert!(
                chunk["confidence"].as_f64().is_some_and(|sure| (0.0..=1.0).contains(&sure)),
                "{chunk}"
            );
            for field in ["event_type", "summary", "description", "raw_output"] {
                assert!(
                    chunk[field].as_str().is_some_and(|text| !text.is_empty()),
                    "{field}: {chunk}"
                );
            }
            assert!(chunk["completion_tokens"].as_u64().is_some_and(|count| count > 0), "{chunk}");
        }
        let said =
            |marker: &Value| chunks.iter().any(|chunk| chunk["event_type"] == marker["event_type"]);
        let markers = reply.json()["markers"].as_array().expect("an array").clone();
        assert!(!markers.is_empty() && markers.iter().all(said), "{more}: {markers:?}");
        let found = server.get(&format!("/v1/runs/{run}/interactions")).json();
        assert_eq!(found["count"], 3, "{found}");
        assert_eq!(server.kinds(&run).last().map(String::as_str), Some("run_completed"));
    }
}
