//! Tests of requests to and replies of OpenAI-compatible programs.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{body, reply};
use crate::{
    FinishReason, InferenceRequest, OutputSchema, PromptImage, TokenUsage,
    provider_api::{ProviderRequest, SchemaMode, fixture, refuses_schema_mode},
};

fn request() -> InferenceRequest {
    InferenceRequest::new("m", "What is it?")
}

fn written(request: &InferenceRequest, form: SchemaMode) -> Value {
    let ask = ProviderRequest { model: "upstream", ..ProviderRequest::of(request, form) };
    serde_json::from_slice(&body(&ask)).expect("the body is JSON")
}

#[test]
fn a_question_without_pictures_is_plain_text() {
    let expected = json!({"model": "upstream", "stream": false,
        "messages": [{"role": "user", "content": "What is it?"}]});
    assert_eq!(written(&request(), SchemaMode::Native), expected);
}

#[test]
fn each_picture_follows_its_caption() {
    let image = |jpeg: &'static [u8], caption: &str| PromptImage {
        jpeg: Bytes::from_static(jpeg),
        caption: caption.to_owned(),
    };
    let images = vec![image(b"\xff\xd8\x01", "at 1.5 s"), image(b"\xff\xd8\x02", "")];
    let request =
        InferenceRequest { images, max_tokens: Some(7), temperature: Some(0.5), ..request() };
    let written = written(&request, SchemaMode::Native);
    assert_eq!((&written["max_tokens"], &written["temperature"]), (&json!(7), &json!(0.5)));
    let expected = json!([
        {"type": "text", "text": "What is it?"},
        {"type": "text", "text": "at 1.5 s"},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9gB"}},
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,/9gC"}},
    ]);
    assert_eq!(written["messages"][0]["content"], expected);
}

#[test]
fn a_schema_is_sent_in_the_form_that_is_tried() {
    let schema = json!({"type": "object"});
    let compiled = OutputSchema::compile(schema.clone()).expect("a usable schema");
    let request = InferenceRequest { schema: Some(Arc::new(compiled)), ..request() };
    let native = json!({"type": "json_schema",
        "json_schema": {"name": "answer", "strict": true, "schema": schema}});
    let any = json!({"type": "json_object", "schema": schema});
    let cases = [
        (SchemaMode::Native, native.clone(), Value::Null, false),
        (SchemaMode::NativeAndPrompt, native, Value::Null, true),
        (SchemaMode::Legacy, Value::Null, schema, true),
        (SchemaMode::AnyJson, any, Value::Null, true),
        (SchemaMode::PromptOnly, Value::Null, Value::Null, true),
    ];
    for (form, format, guided, is_told) in cases {
        let written = written(&request, form);
        assert_eq!(written["response_format"], format, "{form:?}");
        assert_eq!(written["guided_json"], guided, "{form:?}");
        let prompt = written["messages"][0]["content"].as_str().unwrap_or_default();
        assert_eq!(prompt.ends_with("{\"type\":\"object\"}"), is_told, "{form:?}: {prompt}");
    }
}

/// Fields read from a reply: text, finish reason, and tokens of prompt, completion, thinking, total.
type Read = Result<(&'static str, FinishReason, [u64; 4]), &'static str>;

fn check(name: &str, bytes: &[u8], expected: Read) {
    let read = reply(bytes).map_err(|failure| failure.to_string());
    let expected = expected.map(|(text, finish, [prompt, completion, thinking, total])| {
        let tokens = TokenUsage { prompt, completion, thinking, total };
        super::ProviderReply { text: text.to_owned(), finish, tokens }
    });
    let expected = expected.map_err(|problem| format!("gave a malformed answer: {problem}"));
    assert_eq!(read, expected, "{name}");
}

/// Replies written by hand from the programs' documentation; see `fixtures/README.md`.
#[test]
fn replies_as_the_programs_document_them_are_read() {
    use FinishReason::{ContentFilter, Length, Other, Stop};
    let cases: [(&str, Read); 13] = [
        ("vllm/text.200", Ok(("A red car waits.", Stop, [1210, 6, 0, 1216]))),
        ("vllm/reasoning.200", Ok(("{\"label\": \"car\"}", Stop, [1210, 7, 40, 1257]))),
        ("vllm/length.200", Ok(("{\"label\": \"a red", Length, [1210, 6, 0, 1216]))),
        ("sglang/text.200", Ok(("A red car waits.", Stop, [812, 6, 0, 818]))),
        ("sglang/think.200", Ok(("A red car.", Stop, [812, 4, 30, 846]))),
        ("mlx-vlm/text.200", Ok(("A red car waits.", Stop, [640, 6, 0, 646]))),
        ("ollama/reasoning.200", Ok(("A car.", Stop, [300, 25, 0, 325]))),
        ("lm-studio/text.200", Ok(("A red car waits.", Stop, [410, 6, 0, 416]))),
        ("openai/parts.200", Ok(("A red car.", Stop, [85, 4, 0, 89]))),
        ("openai/refusal.200", Ok(("", ContentFilter, [85, 8, 0, 93]))),
        ("openai/no_usage.200", Ok(("A red car.", Other, [0, 0, 0, 0]))),
        ("openai/null_usage.200", Ok(("", ContentFilter, [0, 0, 0, 0]))),
        ("openai/tool_call.200", Err("a message without content")),
    ];
    for (name, expected) in cases {
        check(name, &fixture(name), expected);
    }
}

/// The answers are random text; the test checks that they are found and reasoning is removed.
#[test]
fn what_a_real_server_gave_is_read() {
    use FinishReason::{Length, Stop};
    let cases = [
        ("llama.cpp/plain.200", Stop, false),
        ("llama.cpp/greedy.200", Stop, false),
        ("llama.cpp/json_object.200", Stop, false),
        // The server answers with its one model, whichever is requested.
        ("llama.cpp/another_model.200", Stop, false),
        ("llama.cpp/pictures.200", Stop, false),
        ("llama.cpp/schema.200", Stop, false),
        ("llama.cpp/schema_cut.200", Length, false),
        ("llama.cpp/length.200", Length, false),
        ("llama.cpp/thinking.200", Stop, false),
        ("llama.cpp/thinking_only.200", Length, true),
        ("mlx-vlm/plain.200", Stop, false),
        ("mlx-vlm/length.200", Length, false),
        ("mlx-vlm/described.200", Stop, false),
    ];
    for (name, finish, is_empty) in cases {
        let read = reply(&fixture(name)).expect("a reply");
        assert_eq!((read.finish, read.text.is_empty()), (finish, is_empty), "{name}");
        assert!(!read.text.contains("long outside"), "{name}: {}", read.text);
        assert_eq!(read.tokens.total, read.tokens.prompt + read.tokens.completion, "{name}");
    }
}

#[test]
fn what_a_real_server_refused_is_no_reply() {
    for name in [
        "llama.cpp/wrong_key.401",
        "llama.cpp/no_messages.400",
        "llama.cpp/malformed.400",
        "llama.cpp/unknown_path.404",
        "llama.cpp/models.200",
        "mlx-vlm/another_model.400",
        "mlx-vlm/malformed.422",
        "mlx-vlm/models.200",
        "mlx-vlm/no_messages.422",
        "mlx-vlm/no_picture.500",
        "mlx-vlm/unknown_path.404",
        "mlx-vlm/wrong_key.401",
    ] {
        let read = reply(&fixture(name)).map_err(|failure| failure.class());
        assert_eq!(read.err(), Some("malformed"), "{name}");
    }
}

#[test]
fn what_is_not_a_reply_is_named() {
    let cases: [(&str, &str, &str); 9] = [
        ("html", "<html>", "the body is not JSON"),
        ("nothing", "", "the body is not JSON"),
        ("a list", "[]", "the body is not a JSON object"),
        ("an error", "{\"error\": \"busy\"}", "an error with a status of success"),
        ("no choices", "{\"choices\": []}", "no choices"),
        ("choices of another type", "{\"choices\": {}}", "no choices"),
        ("no message", "{\"choices\": [{}]}", "a choice without a message"),
        ("no content", "{\"choices\": [{\"message\": {}}]}", "a message without content"),
        (
            "a number",
            "{\"choices\": [{\"message\": {\"content\": 1}}]}",
            "content that is not text",
        ),
    ];
    for (name, bytes, problem) in cases {
        check(name, bytes.as_bytes(), Err(problem));
    }
}

#[test]
fn counts_that_are_no_counts_are_none() {
    let usage = json!({"prompt_tokens": -1, "completion_tokens": 2.5, "total_tokens": "many",
        "completion_tokens_details": null});
    let body = json!({"choices": [{"message": {"content": "a"}}], "usage": usage}).to_string();
    check("odd usage", body.as_bytes(), Ok(("a", FinishReason::Other, [0, 0, 0, 0])));
    let apart = json!({"prompt_tokens": 1, "completion_tokens": 2,
        "completion_tokens_details": {"reasoning_tokens": 10}});
    let body = json!({"choices": [{"message": {"content": "a"}}], "usage": apart}).to_string();
    check("counted apart", body.as_bytes(), Ok(("a", FinishReason::Other, [1, 2, 10, 13])));
}

#[test]
fn refusals_of_the_form_are_told_from_others() {
    let cases = [
        ("vllm/grammar.400", 400, true),
        ("lm-studio/json_object.400", 400, true),
        ("llama.cpp/schema_refused.400", 400, true),
        ("llama.cpp/too_long.400", 400, false),
        ("llama.cpp/no_picture.400", 400, false),
        ("vllm/no_model.404", 404, false),
        ("mlx-vlm/too_long.400", 400, false),
        ("mlx-vlm/malformed.422", 422, false),
        // mlx-vlm reports an unusable schema with its own error.
        ("mlx-vlm/schema_refused.500", 500, false),
    ];
    for (name, status, expected) in cases {
        assert_eq!(refuses_schema_mode(status, &fixture(name)), expected, "{name}");
    }
}
