//! Reasoning by a server that somebody else wrote: llama.cpp, with a model whose words are noise. `infer/tests/llama_cpp.rs` asks
//! it each way.

use serde_json::{Value, json};

use crate::support::{
    Setup, assert_has,
    model_server::{KEY, ModelServer},
    this_test, with,
};

/// Name of the model in the service; llama.cpp calls it `noise`.
const MODEL: &str = "smolvlm2-256m";

#[test]
fn llama_cpp_is_asked_about_every_chunk_of_a_clip() {
    let Some(models) = ModelServer::start(&this_test(), 0) else { return };
    let noise = format!(
        "api_key = \"${{MODEL_KEY}}\"\nmodel = \"{MODEL}\"\nupstream_model = \"noise\"\npriority = 1"
    );
    let setup = Setup::temporary().clips().var("MODEL_KEY", KEY);
    // A busy machine is slow, and none of this is about how slow.
    let setup = setup.var("SERVICE_INFERENCE_WAIT_TIMEOUT_MS", "120000");
    let server = setup.backend("noise", &format!("{}/v1/", models.url()), &noise).start();
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
