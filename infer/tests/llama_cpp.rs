//! Chain against a real llama.cpp server with a model that writes random text.
#![allow(missing_docs)]

#[path = "../../tests/support/model_server.rs"]
mod model_server;
#[path = "../../tests/support/python.rs"]
mod python;
#[path = "../../tests/support/skip.rs"]
mod skip;

use std::{sync::Arc, time::Duration};

use infer::{
    BackendChain, BackendConfig, Completion, FailureKind, FinishReason, InferError,
    InferenceRequest, OutputSchema, PromptImage, ProviderKind,
};
use serde_json::{Value, json};

use crate::model_server::{KEY, ModelServer};

/// Name of the model in the service; llama.cpp calls it `noise`.
const MODEL: &str = "small";

/// Returns a prompt longer than the model's context: one letter is one token.
fn long() -> String {
    "n".repeat(32_768)
}

/// Returns a grey picture of 16 x 16 pixels.
fn picture() -> PromptImage {
    let jpeg = include_bytes!("grey.jpg").as_slice().into();
    PromptImage { jpeg, caption: "At 0.000 s:".to_owned() }
}

/// Returns a chain of one llama.cpp backend with `key` and the configuration line `more`.
fn chain(models: &ModelServer, key: &str, more: &str) -> BackendChain {
    chain_after(models, "", &format!("api_key = \"{key}\"\n{more}"))
}

/// Returns a chain of the backends in `before`, then llama.cpp with `more`.
fn chain_after(models: &ModelServer, before: &str, more: &str) -> BackendChain {
    let text = format!(
        "{before}\n[[backends]]\nname = \"noise\"\ntype = \"openai_compat\"\nbase_url = \"{}\"\n\
         model = \"{MODEL}\"\nupstream_model = \"noise\"\npriority = 9\n{more}\n",
        models.url()
    );
    let configs = BackendConfig::parse("backends.toml", &text, &|_| None).expect("backends");
    // Another test of this process may have installed the provider.
    rustls::crypto::aws_lc_rs::default_provider().install_default().ok();
    let roots = rustls::RootCertStore::empty();
    let tls = rustls::ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    BackendChain::new(configs, tls, |_| None).expect("a chain")
}

fn schema() -> Arc<OutputSchema> {
    let schema = json!({
        "type": "object",
        "properties": {
            "event_type": {"type": "string", "minLength": 1, "maxLength": 40},
            "people": {"type": "integer", "minimum": 0, "maximum": 9},
            "seen": {"type": "array", "items": {"enum": ["car", "dog"]}, "maxItems": 3},
        },
        "required": ["event_type", "people", "seen"],
        "additionalProperties": false,
    });
    Arc::new(OutputSchema::compile(schema).expect("a schema"))
}

fn request() -> InferenceRequest {
    InferenceRequest {
        timeout: Some(Duration::from_secs(60)),
        ..InferenceRequest::new(MODEL, "What is there?")
    }
}

/// Returns the answer of the only attempt and checks that its tokens are counted.
async fn answered(chain: &BackendChain, request: &InferenceRequest) -> Completion {
    let answer = chain.infer(request, &()).await.expect("an answer");
    assert_eq!((&*answer.provider, answer.cost.attempts), ("noise", 1), "{answer:?}");
    assert!(answer.cost.tokens.prompt > 0 && answer.cost.tokens.completion > 0, "{answer:?}");
    assert_eq!(answer.cost.tokens.total, answer.cost.tokens.prompt + answer.cost.tokens.completion);
    answer
}

/// Asserts that the answer is exactly the JSON that [`schema`] requires.
fn assert_structured(answer: &Completion) {
    let json = answer.json.as_ref().expect("structured");
    assert_eq!(schema().validate(json), Ok(()), "{json}");
    assert_eq!(serde_json::from_str::<Value>(&answer.text).ok().as_ref(), Some(json));
}

/// Returns the failure of the only backend.
async fn failure(chain: &BackendChain, request: &InferenceRequest) -> FailureKind {
    match chain.infer(request, &()).await {
        Err(InferError::Failed(mut failed)) if failed.len() == 1 => failed.remove(0).failure,
        other => panic!("not one failure: {other:?}"),
    }
}

#[tokio::test]
async fn it_answers_refuses_and_stands_in() {
    let name = "it_answers_refuses_and_stands_in";
    let Some(models) = ModelServer::start(name, 0) else { return };
    words_end_by_themselves_or_where_they_must(&models).await;
    more_at_once_than_it_has_slots_get_their_own_answers(&models).await;
    refusals_are_told_by_status_and_hold_no_key(&models).await;
    it_stands_in_for_a_backend_that_is_not_there(&models).await;
}

async fn words_end_by_themselves_or_where_they_must(models: &ModelServer) {
    let chain = chain(models, KEY, "");
    for temperature in [None, Some(0.0), Some(2.0)] {
        let whole = answered(&chain, &InferenceRequest { temperature, ..request() }).await;
        assert_eq!((whole.finish, &whole.json), (FinishReason::Stop, &None), "{temperature:?}");
        assert!(!whole.text.is_empty(), "{temperature:?}");
    }
    let cut = answered(&chain, &InferenceRequest { max_tokens: Some(2), ..request() }).await;
    assert_eq!((cut.finish, cut.cost.tokens.completion), (FinishReason::Length, 2));
}

#[tokio::test]
async fn a_schema_is_kept_with_and_without_pictures_and_reasoning() {
    let name = "a_schema_is_kept_with_and_without_pictures_and_reasoning";
    for thinking in [0, 12] {
        let Some(models) = ModelServer::start(name, thinking) else { return };
        for kind in ["", "vllm", "sglang", "mlx"] {
            let kind = if kind.is_empty() { "" } else { &format!("openai_kind = \"{kind}\"") };
            let chain = chain(&models, KEY, kind);
            let mut counted = 0;
            for pictures in [0, 1, 4] {
                let images = vec![picture(); pictures];
                let asked = InferenceRequest { images, schema: Some(schema()), ..request() };
                let answer = answered(&chain, &asked).await;
                assert_structured(&answer);
                assert!(answer.cost.tokens.prompt > counted, "pictures are tokens: {answer:?}");
                counted = answer.cost.tokens.prompt;
            }
        }
    }
}

async fn more_at_once_than_it_has_slots_get_their_own_answers(models: &ModelServer) {
    let chain = Arc::new(chain(models, KEY, ""));
    let mut asked = tokio::task::JoinSet::new();
    for length in 1..=16 {
        let chain = Arc::clone(&chain);
        asked.spawn(async move {
            let prompt = "n".repeat(length);
            let request = InferenceRequest { prompt, schema: Some(schema()), ..request() };
            (length, answered(&chain, &request).await)
        });
    }
    let mut answers = asked.join_all().await;
    answers.sort_by_key(|(length, _)| *length);
    // One letter is one token, so that each answer can be attributed to its prompt.
    for ((_, before), (length, after)) in answers.iter().zip(&answers[1..]) {
        assert_structured(after);
        assert_eq!(after.cost.tokens.prompt, before.cost.tokens.prompt + 1, "{length}");
    }
}

async fn refusals_are_told_by_status_and_hold_no_key(models: &ModelServer) {
    let no_picture = PromptImage { jpeg: b"no picture".as_slice().into(), caption: String::new() };
    let rows = [
        ("too long", KEY, InferenceRequest { prompt: long(), ..request() }, 400),
        (
            "too long, structured",
            KEY,
            InferenceRequest { prompt: long(), schema: Some(schema()), ..request() },
            400,
        ),
        ("no picture", KEY, InferenceRequest { images: vec![no_picture], ..request() }, 400),
        ("wrong key", "another-key", request(), 401),
    ];
    for (case, key, request, status) in rows {
        let found = failure(&chain(models, key, ""), &request).await;
        assert!(
            matches!(&found, FailureKind::Http { status: told, .. } if *told == status),
            "{case}: {found}"
        );
        assert!(!format!("{found} {found:?}").contains(key), "{case}: {found}");
    }
}

async fn it_stands_in_for_a_backend_that_is_not_there(models: &ModelServer) {
    // A port without a listener.
    let free = std::net::TcpListener::bind("127.0.0.1:0").and_then(|gone| gone.local_addr());
    let gone = format!(
        "[[backends]]\nname = \"gone\"\ntype = \"openai_compat\"\nbase_url = \"http://{}\"\n\
         model = \"{MODEL}\"\nopenai_kind = \"vllm\"\npriority = 1\n",
        free.expect("a port")
    );
    let chain = chain_after(models, &gone, &format!("api_key = \"{KEY}\""));
    let asked = InferenceRequest { primary: Some(ProviderKind::Vllm), ..request() };
    let answer = chain.infer(&asked, &()).await.expect("an answer");
    assert_eq!((&*answer.provider, answer.fallback_used), ("noise", true), "{answer:?}");
    let reached = |name: &str| (name == "noise", name.to_owned());
    let probes = chain.probe().await;
    let found: Vec<_> =
        probes.iter().map(|probe| (probe.reachable, probe.name.to_string())).collect();
    assert_eq!(found, [reached("gone"), reached("noise")]);
    let alone = InferenceRequest { allow_fallback: false, ..asked };
    assert_eq!(failure(&chain, &alone).await, FailureKind::Refused);
}
