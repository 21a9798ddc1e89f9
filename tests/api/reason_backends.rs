//! Reasoning and who is asked: another backend, none that serves a model, and one that is away.

use std::time::Instant;

use scripted_model::Step;
use serde_json::{Value, json};

use super::reason::{LARGE, finding, reason};
use crate::support::{
    Setup, assert_has,
    model::Model,
    model_server::{KEY, ModelServer},
    this_test, with,
};

#[test]
fn another_backend_answers_for_one_that_refuses_and_that_is_told() {
    let model = Model::start(|_| Step::chat(&finding("van waits", 0.2)));
    let unused = std::net::TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let dead = format!("http://{}", unused.expect("a port"));
    let setup = Setup::temporary().clips().backend("dead", &dead, "priority = 1");
    let server = setup.backend("alive", &model.server.base_url(), "priority = 2").start();
    let run = server.create_run();
    let more = json!({"max_frames": 30, "second_pass_model": LARGE, "second_pass_threshold": 0.7});
    let reply = reason(&server, &run, &more).assert_ok();
    let chunk = &server.payloads(&run, "semantic_chunk_inferred")[0];
    // Tokens of both passes.
    let expected = json!({
        "provider": "alive", "tier": "second", "provider_fallback_used": true, "prompt_tokens": 24,
        "completion_tokens": 10,
    });
    assert_has(chunk, &expected);
    assert_eq!(reply.json()["tokens"]["total_tokens"], 34);
}

#[test]
fn a_model_that_no_backend_serves_leaves_it_to_the_gate() {
    let own = "model = \"qwen3-vl-4b\"\nupstream_model = \"own\"\npriority = 1";
    let server = Setup::temporary().clips().backend("small", "http://127.0.0.1:9", own).start();
    let run = server.create_run();
    reason(&server, &run, &json!({"max_frames": 30, "model": LARGE})).assert_ok();
    let told = &server.payloads(&run, "semantic_fallback_activated")[0];
    let why = told["reason"].as_str().expect("a text");
    assert!(why.contains("serves the model"), "{why}");
    let run = server.create_run();
    let second = json!({"max_frames": 30, "second_pass_model": LARGE});
    reason(&server, &run, &second).assert_invalid("second_pass_model", LARGE);
}

/// A restart of a model server, and one that is loading its model.
#[test]
fn a_model_that_is_away_for_a_moment_costs_no_chunk() {
    let mut away: Option<Instant> = None;
    let model = Model::start(move |seen| {
        if seen.number < 3 {
            return Step::chat(&finding("van waits", 0.9));
        }
        match away.get_or_insert_with(Instant::now).elapsed().as_millis() {
            0..1000 => Step::close(),
            1000..2000 => Step::html(503),
            2000..3000 => Step::rate_limited(Some("1")),
            _ => Step::chat(&finding("van waits", 0.9)),
        }
    });
    let server = model.behind(Setup::temporary().clips()).start();
    let run = server.create_run();
    reason(&server, &run, &json!({"chunk_size": 5})).assert_ok();
    let inferred = server.payloads(&run, "semantic_chunk_inferred");
    assert_eq!(inferred.len(), 18);
    for chunk in &inferred {
        assert_eq!(chunk["event_type"], "van_waits", "{chunk}");
    }
    let attempts: u64 = inferred.iter().filter_map(|chunk| chunk["attempts"].as_u64()).sum();
    assert!(attempts > 18, "what was asked in vain is told: {attempts}");
}

/// Name in the service of a model whose words are noise; llama.cpp calls it `noise`.
const NOISE: &str = "smolvlm2-256m";

/// By a server that somebody else wrote; `infer/tests/llama_cpp.rs` asks it each way.
#[test]
fn llama_cpp_is_asked_about_every_chunk_of_a_clip() {
    let Some(models) = ModelServer::start(&this_test(), 0) else { return };
    let noise = format!(
        "api_key = \"${{MODEL_KEY}}\"\nmodel = \"{NOISE}\"\nupstream_model = \"noise\"\npriority = 1"
    );
    let setup = Setup::temporary().clips().var("MODEL_KEY", KEY);
    // A busy machine is slow, and none of this is about how slow.
    let setup = setup.var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "120000");
    let server = setup.backend("noise", &format!("{}/v1/", models.url()), &noise).start();
    let diff = json!({"visual_diff": true, "semantic_frames_per_chunk": 1});
    for more in [json!({}), json!({"temporal_chain": true}), diff] {
        let run = server.create_run();
        let body = json!({
            "source_uri": "talk.mp4", "model": NOISE, "max_frames": 90,
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
