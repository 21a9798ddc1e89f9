//! Chat completions as implemented by vLLM, SGLang, llama.cpp, Ollama, LM Studio and mlx-vlm.

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Value, json};

use super::{Base64, ProviderReply, ProviderRequest, SchemaMode, count, object, text};
use crate::{FailureKind, FinishReason, TokenUsage, config::OpenaiKind};

/// Returns the schema modes for `kind` in the order to try them.
pub(super) fn schema_modes(kind: Option<OpenaiKind>) -> &'static [SchemaMode] {
    match kind {
        // vLLM versions without `response_format` take `guided_json`.
        Some(OpenaiKind::Vllm) => {
            &[SchemaMode::Native, SchemaMode::Legacy, SchemaMode::AnyJson, SchemaMode::PromptOnly]
        }
        // Versions of mlx-vlm without structured output silently ignore the parameter.
        Some(OpenaiKind::Mlx) => &[SchemaMode::NativeAndPrompt, SchemaMode::PromptOnly],
        Some(OpenaiKind::Sglang) | None => {
            &[SchemaMode::Native, SchemaMode::AnyJson, SchemaMode::PromptOnly]
        }
    }
}

#[derive(Serialize)]
struct ChatRequest<'a> {
    model: &'a str,
    messages: Vec<Message<'a>>,
    stream: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_tokens: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    temperature: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    response_format: Option<Value>,
    #[serde(skip_serializing_if = "Option::is_none")]
    guided_json: Option<&'a Value>,
}

#[derive(Serialize)]
struct Message<'a> {
    role: &'static str,
    content: Content<'a>,
}

/// Content of a message; text alone is sent as a string, as servers of text-only models take no list.
#[derive(Serialize)]
#[serde(untagged)]
enum Content<'a> {
    Text(String),
    Parts(Vec<ContentPart<'a>>),
}

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum ContentPart<'a> {
    Text { text: &'a str },
    ImageUrl { image_url: ImageUrl<'a> },
}

#[derive(Serialize)]
struct ImageUrl<'a> {
    url: Base64<'a>,
}

/// Encodes the body of `POST /v1/chat/completions`.
pub(super) fn body(ask: &ProviderRequest<'_>) -> Vec<u8> {
    let prompt = ask.prompt();
    let mut messages = vec![Message { role: "user", content: content(ask, &prompt) }];
    if let Some(correction) = ask.correction {
        let said = Content::Text(correction.answer.clone());
        messages.push(Message { role: "assistant", content: said });
        let told = Content::Text(correction.instruction());
        messages.push(Message { role: "user", content: told });
    }
    let schema = ask.schema().map(|schema| schema.value());
    let body = ChatRequest {
        model: ask.model,
        messages,
        stream: false,
        max_tokens: ask.max_tokens,
        temperature: ask.request.temperature,
        response_format: schema.and_then(|schema| response_format(ask.schema_mode, schema)),
        guided_json: schema.filter(|_| ask.schema_mode == SchemaMode::Legacy),
    };
    // Serialising strings and numbers cannot fail.
    serde_json::to_vec(&body).unwrap_or_default()
}

fn content<'a>(ask: &ProviderRequest<'a>, prompt: &'a str) -> Content<'a> {
    if ask.request.images.is_empty() {
        return Content::Text(prompt.to_owned());
    }
    let mut parts = vec![ContentPart::Text { text: prompt }];
    for image in &ask.request.images {
        if !image.caption.is_empty() {
            parts.push(ContentPart::Text { text: &image.caption });
        }
        let url = Base64 { prefix: "data:image/jpeg;base64,", image };
        parts.push(ContentPart::ImageUrl { image_url: ImageUrl { url } });
    }
    Content::Parts(parts)
}

fn response_format(form: SchemaMode, schema: &Value) -> Option<Value> {
    match form {
        SchemaMode::Native | SchemaMode::NativeAndPrompt => Some(json!({
            "type": "json_schema",
            "json_schema": {"name": "answer", "strict": true, "schema": schema},
        })),
        // Versions of llama.cpp without `json_schema` read the schema from here; others ignore it.
        SchemaMode::AnyJson => Some(json!({"type": "json_object", "schema": schema})),
        SchemaMode::Legacy | SchemaMode::PromptOnly => None,
    }
}

pub(super) fn reply(body: &[u8]) -> Result<ProviderReply, FailureKind> {
    let malformed = |problem| FailureKind::Malformed { problem };
    let value = object(body)?;
    let choice = value.get("choices").and_then(|choices| choices.get(0));
    let choice = choice.ok_or_else(|| malformed("no choices"))?;
    let message = choice.get("message").ok_or_else(|| malformed("a choice without a message"))?;
    let tokens = tokens(value.get("usage").unwrap_or(&Value::Null));
    let says =
        |field: &str| message.get(field).and_then(Value::as_str).is_some_and(|s| !s.is_empty());
    let reason = choice.get("finish_reason").and_then(Value::as_str);
    if matches!(reason, Some("abort" | "error")) {
        return Err(FailureKind::Malformed { problem: "the answer was broken off" });
    }
    let finish = finish(reason);
    if says("refusal") || finish == FinishReason::ContentFilter {
        let (text, finish) = (String::new(), FinishReason::ContentFilter);
        return Ok(ProviderReply { text, finish, tokens });
    }
    let reasoned = says("reasoning_content") || says("reasoning");
    let text = match message.get("content") {
        Some(Value::String(content)) => text::without_thinking(content, finish),
        Some(Value::Array(parts)) => {
            let said = parts.iter().filter_map(|part| part.get("text")?.as_str());
            text::without_thinking(&said.collect::<String>(), finish)
        }
        // Reasoning used up the token limit, or is the whole output.
        None | Some(Value::Null) if reasoned || finish == FinishReason::Length => String::new(),
        None | Some(Value::Null) => return Err(malformed("a message without content")),
        Some(_) => return Err(malformed("content that is not text")),
    };
    Ok(ProviderReply { text, finish, tokens })
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        // mlx-vlm reports the stop reason of its generator.
        Some("stop" | "eos" | "eos_token") => FinishReason::Stop,
        Some("length" | "max_tokens") => FinishReason::Length,
        Some("content_filter") => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

/// Returns the counts in `usage`; mlx-vlm names them as the Responses API does.
fn tokens(usage: &Value) -> TokenUsage {
    let prompt = count(usage, &["prompt_tokens", "input_tokens"]).unwrap_or(0);
    let written = count(usage, &["completion_tokens", "output_tokens"]).unwrap_or(0);
    let details = usage
        .get("completion_tokens_details")
        .or_else(|| usage.get("output_tokens_details"))
        .and_then(|details| count(details, &["reasoning_tokens"]));
    // SGLang reports reasoning tokens next to the details instead of inside them.
    let thinking = details.or_else(|| count(usage, &["reasoning_tokens"])).unwrap_or(0);
    // Reasoning counts as part of the completion, unless its count is larger.
    let completion = written.checked_sub(thinking).unwrap_or(written);
    TokenUsage::of(prompt, completion, thinking, count(usage, &["total_tokens"]))
}
