//! Tests of responses and the steps that follow them.

use std::{sync::Arc, time::Duration};

use serde_json::{Value, json};

use super::{EvaluatedResponse, NextStep, RequestRetries};
use crate::{
    FailureKind, InferenceRequest, OutputSchema,
    config::{ApiProtocol, OpenaiKind},
    http::{HttpResponse, NoResponse},
};

const API: ApiProtocol = ApiProtocol::Openai(None);
const PATIENCE: Duration = Duration::from_secs(10);

fn request(with_schema: bool) -> InferenceRequest {
    let schema =
        json!({"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}});
    let schema = OutputSchema::compile(schema).expect("a usable schema");
    InferenceRequest {
        max_tokens: Some(100),
        schema: with_schema.then(|| Arc::new(schema)),
        ..InferenceRequest::new("m", "What is it?")
    }
}

fn response(status: u16, body: impl Into<Vec<u8>>) -> Result<HttpResponse, NoResponse> {
    Ok(HttpResponse { status, retry_after: None, body: body.into() })
}

fn chat(text: &str, finish: &str) -> Result<HttpResponse, NoResponse> {
    let body = json!({"choices": [{"message": {"content": text}, "finish_reason": finish}],
        "usage": {"prompt_tokens": 3, "completion_tokens": 2, "total_tokens": 5}});
    response(200, body.to_string())
}

fn limited(seconds: u64) -> Result<HttpResponse, NoResponse> {
    Ok(HttpResponse {
        status: 429,
        retry_after: Some(Duration::from_secs(seconds)),
        body: Vec::new(),
    })
}

fn stale() -> Result<HttpResponse, NoResponse> {
    Err(NoResponse { failure: FailureKind::Closed, is_stale: true })
}

fn told(judged: &EvaluatedResponse) -> String {
    match &judged.next {
        NextStep::Done(answer) => format!("done {}", answer.text),
        NextStep::Again => "again".to_owned(),
        NextStep::Failed(failure) => format!("failed {}", failure.class()),
    }
}

fn sent(turns: &RequestRetries) -> Value {
    serde_json::from_slice(&turns.body()).expect("the body is JSON")
}

#[test]
fn each_reason_to_ask_again_is_used_once() {
    const EMPTY: &str = r#"{"choices": [{"message": {"content": ""}, "finish_reason": null}]}"#;
    const ERROR: &str = r#"{"error": {"message": "x"}}"#;
    let spaces = format!("{{{}", " ".repeat(200));
    let fading = format!("a{}", " ".repeat(200));
    let grammar = "{\"message\": \"grammar of response_format cannot be compiled\"}";
    let (whole, cut) = (|text: &str| chat(text, "stop"), |text: &str| chat(text, "length"));
    type Case = (&'static str, Vec<Result<HttpResponse, NoResponse>>, &'static str);
    let plain: Vec<Case> = vec![
        ("text", vec![whole("a")], "done a"),
        ("text that ends early", vec![cut("a")], "done a"),
        ("no words", vec![whole(" \n")], "failed empty"),
        ("no content", vec![response(200, EMPTY)], "failed empty"),
        ("all room went into thinking", vec![cut(""), whole("a")], "again, done a"),
        ("words and then white space", vec![cut(&fading), cut(&fading)], "again, failed truncated"),
        ("white space after the words", vec![cut("a\n")], "done a\n"),
        ("a rest within the time", vec![limited(2), whole("a")], "again, done a"),
        ("two rests", vec![limited(2), limited(2)], "again, failed rate limited"),
        ("a long rest", vec![limited(60)], "failed rate limited"),
        ("no rest told", vec![response(429, "")], "failed rate limited"),
        ("a refusal", vec![response(400, grammar)], "failed http 4xx"),
        ("a redirect", vec![response(302, "")], "failed http other"),
        ("not JSON", vec![response(200, "<html>")], "failed malformed"),
        ("an error inside", vec![response(200, ERROR)], "failed malformed"),
        ("filtered", vec![chat("", "content_filter")], "failed filtered"),
        ("no connection", vec![Err(FailureKind::Refused.into())], "failed refused"),
        ("a connection that was gone", vec![stale(), whole("a")], "again, done a"),
        ("two of them", vec![stale(), stale()], "again, failed closed"),
        ("one that broke", vec![Err(FailureKind::Closed.into())], "failed closed"),
    ];
    let (half, valid) = ("{\"n\":", "{\"n\":1}");
    let with_schema: Vec<Case> = vec![
        ("a valid answer", vec![whole(valid)], "done {\"n\":1}"),
        ("corrected", vec![whole("{}"), whole(valid)], "again, done {\"n\":1}"),
        ("never corrected", vec![whole("{}"), whole("{\"n\":\"1\"}")], "again, failed schema"),
        ("never JSON", vec![whole("a car"), whole("a car")], "again, failed schema"),
        ("room helps", vec![cut(half), whole(valid)], "again, done {\"n\":1}"),
        ("room does not help", vec![cut(half), cut(half)], "again, failed truncated"),
        ("valid, but cut", vec![cut(valid), cut(valid)], "again, failed truncated"),
        ("white space", vec![whole(&spaces), whole(&spaces)], "again, failed truncated"),
        (
            "room, then a correction",
            vec![cut("{"), whole("{}"), whole("{}")],
            "again, again, failed schema",
        ),
        ("forms", [(); 3].map(|()| response(400, grammar)).into(), "again, again, failed http 4xx"),
        ("another refusal", vec![response(400, "the context is too long")], "failed http 4xx"),
        ("broken", vec![response(500, "<html>")], "failed http 5xx"),
    ];
    for (has_schema, cases) in [(false, plain), (true, with_schema)] {
        for (name, came, expected) in cases {
            let mut turns = RequestRetries::new(API, Arc::new(request(has_schema)), "m");
            let steps = came.into_iter().map(|came| told(&turns.evaluate(came, PATIENCE)));
            assert_eq!(steps.collect::<Vec<_>>().join(", "), expected, "{name}");
        }
    }
}

#[test]
fn more_room_is_asked_for_up_to_a_limit() {
    for (had, expected) in
        [(Some(100), 456), (Some(4096), 8448), (Some(16_000), 16_384), (None, 260)]
    {
        let request = InferenceRequest { max_tokens: had, ..request(true) };
        let mut turns = RequestRetries::new(API, Arc::new(request), "m");
        assert_eq!(sent(&turns)["max_tokens"], json!(had), "{had:?}");
        turns.evaluate(chat("{", "length"), PATIENCE);
        assert_eq!(sent(&turns)["max_tokens"], json!(expected), "{had:?}");
    }
    let at_the_limit = InferenceRequest { max_tokens: Some(16_384), ..request(true) };
    let mut turns = RequestRetries::new(API, Arc::new(at_the_limit), "m");
    assert_eq!(told(&turns.evaluate(chat("{", "length"), PATIENCE)), "failed truncated");
}

/// Callers add the wait to their clocks.
#[test]
fn a_rest_without_end_is_told_as_a_day() {
    let delay = json!({"@type": "google.rpc.RetryInfo", "retryDelay": format!("{}s", u64::MAX)});
    let body = json!({"error": {"details": [delay]}}).to_string();
    for limited in [limited(u64::MAX), response(429, body)] {
        let mut turns = RequestRetries::new(API, Arc::new(request(false)), "m");
        let retry_after = Some(Duration::from_secs(86_400));
        let judged = turns.evaluate(limited, PATIENCE);
        assert_eq!(judged.failure, Some(FailureKind::RateLimited { retry_after }));
    }
}

#[test]
fn an_answer_is_corrected_only_where_that_is_allowed() {
    let mut turns = RequestRetries::new(API, Arc::new(request(true)), "m");
    turns.may_correct = false;
    assert_eq!(told(&turns.evaluate(chat("{}", "stop"), PATIENCE)), "failed schema");
    assert!(!turns.has_corrected());
    let room = turns.evaluate(chat("{", "length"), PATIENCE);
    assert_eq!(told(&room), "again", "more room is another matter");
}

#[test]
fn each_request_is_estimated_by_what_is_sent() {
    let mut turns = RequestRetries::new(API, Arc::new(request(true)), "m");
    let first = turns.tokens_estimate();
    turns.evaluate(chat("{", "length"), PATIENCE);
    assert_eq!(turns.tokens_estimate(), first + 356, "456 in place of 100");
    let long = format!("{{\"n\": \"{}\"}}", "x".repeat(3000));
    turns.evaluate(chat(&long, "stop"), PATIENCE);
    assert!(turns.tokens_estimate() > first + 1356, "{} and the answer", turns.tokens_estimate());
}

#[test]
fn a_correction_shows_the_model_its_answer_and_what_is_wrong_with_it() {
    let request = request(true);
    let mut turns = RequestRetries::new(API, Arc::new(request), "m");
    let judged = turns.evaluate(chat("{\"n\":\"x\"}", "stop"), PATIENCE);
    assert_eq!((judged.tokens.total, judged.failure.map(|f| f.class())), (5, Some("schema")));
    let messages = sent(&turns)["messages"].clone();
    assert_eq!(messages[1], json!({"role": "assistant", "content": "{\"n\":\"x\"}"}));
    let told = messages[2]["content"].as_str().unwrap_or_default();
    assert!(told.contains("/n: ") && told.contains("integer"), "{told}");
}

#[test]
fn a_model_lost_in_white_space_is_asked_for_compact_json() {
    let request = request(true);
    let mut turns = RequestRetries::new(API, Arc::new(request), "m");
    turns.evaluate(chat(&format!("{{{}", "\n".repeat(100)), "length"), PATIENCE);
    let prompt = sent(&turns)["messages"][0]["content"].clone();
    assert!(prompt.as_str().unwrap_or_default().contains("compact JSON"), "{prompt}");
}

#[test]
fn the_forms_of_each_program_are_tried_in_order() {
    let named = |turns: &RequestRetries| {
        let body = sent(turns);
        let format = body["response_format"]["type"].as_str().unwrap_or("none").to_owned();
        let guided = if body["guided_json"].is_null() { "" } else { " guided" };
        let prompt = body["messages"][0]["content"].as_str().unwrap_or_default();
        let is_told = if prompt.contains("JSON Schema") { " told" } else { "" };
        format!("{format}{guided}{is_told}")
    };
    let cases: [(_, &[&str]); 4] = [
        (
            Some(OpenaiKind::Vllm),
            &["json_schema", "none guided told", "json_object told", "none told"],
        ),
        (Some(OpenaiKind::Sglang), &["json_schema", "json_object told", "none told"]),
        (Some(OpenaiKind::Mlx), &["json_schema told", "none told"]),
        (None, &["json_schema", "json_object told", "none told"]),
    ];
    for (kind, expected) in cases {
        let request = request(true);
        let mut turns = RequestRetries::new(ApiProtocol::Openai(kind), Arc::new(request), "m");
        let mut forms = vec![named(&turns)];
        while turns.evaluate(response(422, "response_format"), PATIENCE).next == NextStep::Again {
            forms.push(named(&turns));
        }
        assert_eq!(forms, expected, "{kind:?}");
    }
}
