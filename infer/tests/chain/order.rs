//! Tests of the order of backends, fallbacks, and backends that may not be fallbacks.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use infer::{BackendChain, FailureKind, InferError, InferenceRequest, ProviderKind};
use scripted_model::{ScriptedServer, Step, refusing_url};

use crate::support::{chain, configs, known, request, server, tls};

async fn says(text: &str) -> ScriptedServer {
    server(Step::chat(text)).await
}

#[tokio::test]
async fn the_next_backend_answers_where_the_first_fails() {
    let good = says("b").await;
    for (name, step) in [
        ("an error", Some(Step::html(500))),
        ("no HTTP", Some(Step::raw("?"))),
        ("a wrong model", Some(Step::json(404, &serde_json::json!({})))),
        ("too many requests", Some(Step::rate_limited(Some("1")))),
        ("nobody there", None),
    ] {
        let bad = match step {
            Some(step) => Ok(server(step).await),
            None => Err(refusing_url().await.expect("a free port")),
        };
        let url = bad.as_ref().map_or_else(String::clone, ScriptedServer::base_url);
        let log = Arc::new(Mutex::new(Vec::new()));
        let told = Arc::clone(&log);
        let chain = chain(&[&url, &good.base_url()]).observed_by(move |attempt| {
            let how = (attempt.provider.to_owned(), attempt.outcome());
            told.lock().expect("whole").push(how);
        });
        let answer = chain.infer(&request(), &()).await.expect("an answer");
        assert!(answer.cost.latency < Duration::from_secs(5), "{name}: {:?}", answer.cost.latency);
        let read = (
            &*answer.provider,
            answer.fallback_used,
            answer.cost.attempts,
            answer.cost.tokens.total,
        );
        assert_eq!(read, ("b", true, 2, 17), "{name}");
        let log = log.lock().expect("whole");
        assert_eq!(log[1], ("b".to_owned(), "ok"), "{name}");
        assert_ne!(log[0].1, "ok", "{name}");
    }
}

#[tokio::test]
async fn a_backend_that_hangs_leaves_the_others_their_time() {
    let (hangs, good) = (server(Step::hang()).await, says("b").await);
    let (a, b) = (hangs.base_url(), good.base_url());
    for (name, own_time, timeout) in [
        ("its own time is short", "timeout_ms = 200", None),
        ("its own time is short, the caller's is not", "timeout_ms = 200", request().timeout),
        ("the caller's time is short", "", Some(Duration::from_secs(2))),
    ] {
        let entries = [("a", "openai_compat", &*a, own_time), ("b", "openai_compat", &*b, "")];
        let chain = BackendChain::new(configs(&entries), tls(), known).expect("a chain");
        let answer =
            chain.infer(&InferenceRequest { timeout, ..request() }, &()).await.expect(name);
        assert_eq!((&*answer.provider, answer.fallback_used), ("b", true), "{name}");
    }
}

#[tokio::test]
async fn without_fallback_the_first_answers_or_nobody() {
    let (bad, good) = (server(Step::html(500)).await, says("b").await);
    let chain = chain(&[&bad.base_url(), &good.base_url()]);
    let alone = InferenceRequest { allow_fallback: false, ..request() };
    let Err(InferError::Failed(failed)) = chain.infer(&alone, &()).await else {
        panic!("the first fails");
    };
    let failed: Vec<_> = failed.iter().map(|one| (&*one.provider, &one.failure)).collect();
    assert_eq!(failed, [("a", &FailureKind::http(500))]);
    assert_eq!(good.seen().len(), 0);
}

/// Returns a chain of vLLM, SGLang, mlx for one model, and Gemini.
async fn family() -> (Vec<ScriptedServer>, BackendChain) {
    let gemini = serde_json::json!({"candidates": [{"finishReason": "STOP",
        "content": {"parts": [{"text": "gemini"}]}}], "usageMetadata": {"totalTokenCount": 3}});
    let gemini = server(Step::json(200, &gemini)).await;
    let servers = vec![says("vllm").await, says("sglang").await, says("mac").await, gemini];
    let urls: Vec<String> = servers.iter().map(ScriptedServer::base_url).collect();
    let entries = [
        ("vllm", "openai_compat", urls[0].as_str(), "openai_kind = \"vllm\""),
        ("sglang", "openai_compat", urls[1].as_str(), "openai_kind = \"sglang\""),
        (
            "mac",
            "openai_compat",
            urls[2].as_str(),
            "openai_kind = \"mlx\"\nmodel = \"own-model\"\nupstream_model = \"org/own-4bit\"",
        ),
        ("cloud", "gemini", urls[3].as_str(), ""),
    ];
    (servers, BackendChain::new(configs(&entries), tls(), known).expect("a chain"))
}

#[tokio::test]
async fn the_model_and_the_kind_asked_for_decide_who_answers() {
    let (servers, chain) = family().await;
    let cases = [
        ("by priority", "qwen3-vl-8b", None, "vllm", false),
        ("the kind asked for", "qwen3-vl-8b", Some(ProviderKind::Sglang), "sglang", false),
        ("a kind that does not serve it", "qwen3-vl-8b", Some(ProviderKind::Mlx), "vllm", true),
        ("its own model", "own-model", None, "mac", false),
        ("a family", "gemini-2.5-flash", None, "cloud", false),
        ("another's family", "gemini-2.5-flash", Some(ProviderKind::Vllm), "cloud", true),
    ];
    for (name, model, primary, provider, fallback) in cases {
        let request = InferenceRequest { model: model.to_owned(), primary, ..request() };
        let answer = chain.infer(&request, &()).await.expect("an answer");
        assert_eq!((&*answer.provider, answer.fallback_used), (provider, fallback), "{name}");
        assert_eq!(answer.model, model, "{name}");
    }
    let own = servers[2].seen();
    assert_eq!(own.len(), 1, "the conversion is asked for its own model only");
    assert_eq!(own[0].json()["model"], "org/own-4bit");
    let gemini = servers[3].seen();
    assert_eq!(gemini[0].path, "/v1beta/models/gemini-2.5-flash:generateContent");
    assert_eq!(gemini[0].header("x-goog-api-key"), Some(crate::support::KEY));
}

#[tokio::test]
async fn who_is_asked_and_who_cannot_be_is_said() {
    let (_servers, chain) = family().await;
    let empty = BackendChain::new(Vec::new(), tls(), known).expect("a chain");
    assert_eq!(empty.infer(&request(), &()).await, Err(InferError::NoBackend));
    let model = "another".to_owned();
    let unknown = InferenceRequest { model: model.clone(), ..request() };
    assert_eq!(chain.infer(&unknown, &()).await, Err(InferError::NotServed { model }));
    let kind = ProviderKind::Mlx;
    let alone = InferenceRequest { primary: Some(kind), allow_fallback: false, ..request() };
    assert_eq!(chain.infer(&alone, &()).await, Err(InferError::NoProvider { kind }));
    let names =
        |model: &str| chain.candidates(model).map(|b| b.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names("qwen3-vl-8b"), ["vllm", "sglang"], "in the order of asking");
    assert_eq!(names("own-model"), ["mac"]);
    assert_eq!(names("gemini-2.5-flash"), ["cloud"]);
    assert_eq!(names("another"), Vec::<String>::new());
}
