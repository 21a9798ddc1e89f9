//! Chains of scripted backends.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use infer::{
    BackendChain, BackendConfig, Completion, FailureKind, InferError, InferenceRequest,
    OutputSchema,
};
use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use scripted_model::{ScriptedServer, Step};
use serde_json::{Value, json};

/// Upper limit for a wait, far longer than any expected delay.
pub const PATIENCE: Duration = Duration::from_secs(20);
/// Key of every backend here; no message may contain it.
pub const KEY: &str = "sk-never-shown";

/// Returns a TLS client without roots: most scripted backends speak plain HTTP.
pub fn tls() -> ClientConfig {
    trusting(RootCertStore::empty())
}

/// Returns a TLS client that trusts `roots`.
pub fn trusting(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("the provider has the default versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// Returns the curated id of a name, for these tests.
pub fn known(name: &str) -> Option<&'static str> {
    match name {
        "qwen3-vl-8b" | "Qwen/Qwen3-VL-8B-Instruct" => Some("qwen3-vl-8b"),
        "gemma-3-27b" => Some("gemma-3-27b"),
        "gemini-2.5-flash" => Some("gemini-2.5-flash"),
        _ => None,
    }
}

/// Parses the backends of the entries `name, type, URL, further lines`, in this order.
pub fn configs(entries: &[(&str, &str, &str, &str)]) -> Vec<BackendConfig> {
    let entries = entries.iter().enumerate().map(|(priority, (name, kind, url, more))| {
        format!(
            "[[backends]]\nname = \"{name}\"\ntype = \"{kind}\"\nbase_url = \"{url}\"\n\
             api_key = \"{KEY}\"\npriority = {priority}\n{more}\n"
        )
    });
    let text: String = entries.collect();
    BackendConfig::parse("test.toml", &text, &|_| None).expect("the file is right")
}

/// Returns a chain of OpenAI-compatible backends at `urls`, called `a`, `b`, ...
pub fn chain(urls: &[&str]) -> BackendChain {
    let names = ["a", "b", "c", "d"];
    let entries: Vec<_> =
        urls.iter().zip(names).map(|(url, name)| (name, "openai_compat", *url, "")).collect();
    BackendChain::new(configs(&entries), tls(), known).expect("a chain")
}

/// Starts a backend that answers each question with `step`.
pub async fn server(step: Step) -> ScriptedServer {
    ScriptedServer::with_steps(Vec::new(), step).await.expect("a server")
}

/// Starts a backend that answers with `steps` and then always with `last`; returns a chain of it alone.
pub async fn alone(steps: Vec<Step>, last: Step) -> (ScriptedServer, BackendChain) {
    let server = ScriptedServer::with_steps(steps, last).await.expect("a server");
    let chain = chain(&[&server.base_url()]);
    (server, chain)
}

pub fn request() -> InferenceRequest {
    InferenceRequest {
        timeout: Some(PATIENCE),
        ..InferenceRequest::new("qwen3-vl-8b", "What is it?")
    }
}

/// Returns a request whose answer is `{"label": string, "confidence"?: number}`.
pub fn structured() -> InferenceRequest {
    let schema = json!({"type": "object", "required": ["label"], "properties": {
        "label": {"type": "string"}, "confidence": {"type": "number"}}});
    let schema = OutputSchema::compile(schema).expect("a usable schema");
    InferenceRequest { schema: Some(Arc::new(schema)), ..request() }
}

/// Returns the one failure of a chain of one backend.
pub fn only_failure(result: Result<Completion, InferError>) -> FailureKind {
    let Err(InferError::Failed(failed)) = result else {
        panic!("one failure: {result:?}");
    };
    assert_eq!(failed.len(), 1, "{failed:?}");
    failed.into_iter().map(|one| one.failure).next().expect("one failure")
}

/// Waits until `done` returns true; `what` names the condition in the panic message.
pub async fn until(what: &str, done: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !done() {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Returns the value of `key` in the JSON of an answer.
pub fn field(answer: &Completion, key: &str) -> Value {
    answer.json.as_ref().map(|json| json[key].clone()).unwrap_or_default()
}
