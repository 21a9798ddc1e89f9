//! Tests of requests to and replies of the Gemini API.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};

use super::{body, reply};
use crate::{
    FinishReason, InferenceRequest, OutputSchema, PromptImage, TokenUsage,
    provider_api::{ProviderRequest, RepairPrompt, SchemaMode, fixture, refuses_schema_mode},
};

fn request(schema: Option<Value>) -> InferenceRequest {
    let compiled = |value| OutputSchema::compile(value).expect("a usable schema");
    InferenceRequest {
        images: vec![PromptImage {
            jpeg: Bytes::from_static(b"\xff\xd8\x01"),
            caption: "at 2 s".to_owned(),
        }],
        max_tokens: Some(64),
        temperature: Some(0.0),
        schema: schema.map(|value| Arc::new(compiled(value))),
        ..InferenceRequest::new("gemini-2.5-flash", "What is it?")
    }
}

fn written(
    request: &InferenceRequest,
    form: SchemaMode,
    correction: Option<&RepairPrompt>,
) -> Value {
    let ask = ProviderRequest { correction, ..ProviderRequest::of(request, form) };
    serde_json::from_slice(&body(&ask)).expect("the body is JSON")
}

#[test]
fn a_question_holds_its_pictures() {
    let expected = json!({
        "contents": [{"role": "user", "parts": [
            {"text": "What is it?"},
            {"text": "at 2 s"},
            {"inlineData": {"mimeType": "image/jpeg", "data": "/9gB"}},
        ]}],
        "generationConfig": {"maxOutputTokens": 64, "temperature": 0.0},
    });
    assert_eq!(written(&request(None), SchemaMode::Native, None), expected);
}

#[test]
fn a_correction_is_a_turn_of_the_model_and_one_of_the_user() {
    let correction = RepairPrompt { answer: "{}".to_owned(), problem: "/: no label".to_owned() };
    let written = written(&request(None), SchemaMode::Native, Some(&correction));
    assert_eq!(written["contents"][1], json!({"role": "model", "parts": [{"text": "{}"}]}));
    assert_eq!(written["contents"][2]["role"], "user");
}

#[test]
fn a_schema_is_sent_in_the_form_that_is_tried() {
    let schema = json!({"type": "object", "additionalProperties": false, "required": ["label"],
        "properties": {"label": {"type": ["string", "null"], "maxLength": 9},
            "boxes": {"type": "array", "items": {"type": "integer"}}}});
    let reduced = json!({"type": "OBJECT", "required": ["label"],
        "propertyOrdering": ["label", "boxes"], "properties": {
        "label": {"type": "STRING", "nullable": true, "maxLength": 9},
        "boxes": {"type": "ARRAY", "items": {"type": "INTEGER"}}}});
    let request = request(Some(schema.clone()));
    let mime = json!("application/json");
    let cases = [
        (SchemaMode::Native, &mime, &schema, &Value::Null),
        (SchemaMode::Legacy, &mime, &Value::Null, &reduced),
        (SchemaMode::AnyJson, &mime, &Value::Null, &Value::Null),
        (SchemaMode::PromptOnly, &Value::Null, &Value::Null, &Value::Null),
    ];
    for (form, mime, json_schema, schema) in cases {
        let config = written(&request, form, None)["generationConfig"].clone();
        assert_eq!(&config["responseMimeType"], mime, "{form:?}");
        assert_eq!(&config["responseJsonSchema"], json_schema, "{form:?}");
        assert_eq!(&config["responseSchema"], schema, "{form:?}");
    }
}

#[test]
fn replies_are_read() {
    use FinishReason::{ContentFilter, Length, Other, Stop};
    let cases = [
        ("gemini/text.200", "A red car waits.", Stop, [264, 6, 0, 270]),
        ("gemini/thoughts.200", "{\"label\": \"car\"}", Stop, [264, 7, 120, 391]),
        ("gemini/max_tokens.200", "", Length, [264, 0, 63, 327]),
        ("gemini/blocked.200", "", ContentFilter, [264, 0, 0, 264]),
        ("gemini/safety.200", "", ContentFilter, [264, 0, 0, 264]),
        ("gemini/language.200", "Une", Other, [264, 1, 0, 265]),
    ];
    for (name, text, finish, [prompt, completion, thinking, total]) in cases {
        let tokens = TokenUsage { prompt, completion, thinking, total };
        let expected = super::ProviderReply { text: text.to_owned(), finish, tokens };
        assert_eq!(reply(&fixture(name)), Ok(expected), "{name}");
    }
}

#[test]
fn what_is_not_a_reply_is_named() {
    let cases = [
        ("html", "<html>", "the body is not JSON"),
        ("an error", "{\"error\": {\"code\": 500}}", "an error with a status of success"),
        ("nothing", "{}", "no candidates"),
        (
            "no parts",
            "{\"candidates\": [{\"finishReason\": \"STOP\"}]}",
            "a candidate without parts",
        ),
    ];
    for (name, bytes, problem) in cases {
        let said = reply(bytes.as_bytes()).map_err(|failure| failure.to_string());
        assert_eq!(said, Err(format!("gave a malformed answer: {problem}")), "{name}");
    }
}

#[test]
fn a_field_that_an_older_version_does_not_know_is_about_the_form() {
    assert!(refuses_schema_mode(400, &fixture("gemini/unknown_field.400")));
    assert!(!refuses_schema_mode(400, &fixture("gemini/bad_key.400")));
}
