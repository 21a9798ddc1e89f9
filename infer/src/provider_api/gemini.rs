//! `generateContent` of the Gemini API.

#[cfg(test)]
mod tests;

use serde::Serialize;
use serde_json::{Map, Value, json};

use super::{Base64, ProviderReply, ProviderRequest, SchemaMode, count, object};
use crate::{FailureKind, FinishReason, TokenUsage};

/// Order of the modes: JSON Schema, the older OpenAPI subset, JSON mode, the prompt alone.
pub(super) const SCHEMA_MODES: &[SchemaMode] =
    &[SchemaMode::Native, SchemaMode::Legacy, SchemaMode::AnyJson, SchemaMode::PromptOnly];

/// Keywords of the API's own schema type, in addition to `type`, `properties`, `items` and `anyOf`.
const KNOWN: [&str; 13] = [
    "format",
    "title",
    "description",
    "enum",
    "required",
    "minimum",
    "maximum",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "minProperties",
    "maxProperties",
];

#[derive(Serialize)]
struct GenerateContentRequest<'a> {
    contents: Vec<Content<'a>>,
    #[serde(rename = "generationConfig")]
    config: Map<String, Value>,
}

#[derive(Serialize)]
struct Content<'a> {
    role: &'static str,
    parts: Vec<GeminiPart<'a>>,
}

#[derive(Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
enum GeminiPart<'a> {
    Text { text: String },
    Image { inline_data: Inline<'a> },
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Inline<'a> {
    mime_type: &'static str,
    data: Base64<'a>,
}

/// Encodes the body of `POST /v1beta/models/{model}:generateContent`.
pub(super) fn body(ask: &ProviderRequest<'_>) -> Vec<u8> {
    let mut parts = vec![GeminiPart::Text { text: ask.prompt() }];
    for image in &ask.request.images {
        if !image.caption.is_empty() {
            parts.push(GeminiPart::Text { text: image.caption.clone() });
        }
        let data = Base64 { prefix: "", image };
        parts.push(GeminiPart::Image { inline_data: Inline { mime_type: "image/jpeg", data } });
    }
    let mut contents = vec![Content { role: "user", parts }];
    if let Some(correction) = ask.correction {
        let said = GeminiPart::Text { text: correction.answer.clone() };
        contents.push(Content { role: "model", parts: vec![said] });
        let told = GeminiPart::Text { text: correction.instruction() };
        contents.push(Content { role: "user", parts: vec![told] });
    }
    // Serialising strings and numbers cannot fail.
    serde_json::to_vec(&GenerateContentRequest { contents, config: config(ask) })
        .unwrap_or_default()
}

fn config(ask: &ProviderRequest<'_>) -> Map<String, Value> {
    let mut config = Map::new();
    if let Some(max) = ask.max_tokens {
        config.insert("maxOutputTokens".to_owned(), json!(max));
    }
    if let Some(temperature) = ask.request.temperature {
        config.insert("temperature".to_owned(), json!(temperature));
    }
    let Some(schema) = ask.schema() else {
        return config;
    };
    if ask.schema_mode != SchemaMode::PromptOnly {
        config.insert("responseMimeType".to_owned(), json!("application/json"));
    }
    match ask.schema_mode {
        SchemaMode::Native | SchemaMode::NativeAndPrompt => {
            config.insert("responseJsonSchema".to_owned(), schema.value().clone());
        }
        SchemaMode::Legacy => {
            config.insert("responseSchema".to_owned(), reduced(schema.value()));
        }
        SchemaMode::AnyJson | SchemaMode::PromptOnly => {}
    }
    config
}

/// Converts `schema` to the API's own schema type. Unsupported keywords are dropped, as the answer is
/// validated against the whole schema in any case.
fn reduced(schema: &Value) -> Value {
    let Value::Object(fields) = schema else {
        return json!({});
    };
    let mut out = Map::new();
    for key in KNOWN {
        if let Some(value) = fields.get(key) {
            out.insert(key.to_owned(), value.clone());
        }
    }
    let types: Vec<&str> = match fields.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    if let Some(first) = types.iter().find(|name| **name != "null") {
        out.insert("type".to_owned(), json!(first.to_ascii_uppercase()));
    }
    if types.contains(&"null") {
        out.insert("nullable".to_owned(), json!(true));
    }
    if let Some(Value::Object(properties)) = fields.get("properties") {
        // The API keeps no order of fields unless `propertyOrdering` states one.
        let names: Vec<&String> = properties.keys().collect();
        out.insert("propertyOrdering".to_owned(), json!(names));
        let reduced = properties.iter().map(|(name, one)| (name.clone(), reduced(one)));
        out.insert("properties".to_owned(), Value::Object(reduced.collect()));
    }
    if let Some(items) = fields.get("items") {
        out.insert("items".to_owned(), reduced(items));
    }
    if let Some(Value::Array(choices)) = fields.get("anyOf") {
        out.insert("anyOf".to_owned(), choices.iter().map(reduced).collect());
    }
    Value::Object(out)
}

pub(super) fn reply(body: &[u8]) -> Result<ProviderReply, FailureKind> {
    let malformed = |problem| FailureKind::Malformed { problem };
    let value = object(body)?;
    let tokens = tokens(value.get("usageMetadata").unwrap_or(&Value::Null));
    let filtered =
        ProviderReply { text: String::new(), finish: FinishReason::ContentFilter, tokens };
    let blocked = value.pointer("/promptFeedback/blockReason").and_then(Value::as_str);
    if blocked.is_some_and(|reason| reason != "BLOCK_REASON_UNSPECIFIED") {
        return Ok(filtered);
    }
    let candidate = value.pointer("/candidates/0").ok_or_else(|| malformed("no candidates"))?;
    let finish = finish(candidate.get("finishReason").and_then(Value::as_str));
    if finish == FinishReason::ContentFilter {
        return Ok(filtered);
    }
    let parts = candidate.pointer("/content/parts").and_then(Value::as_array);
    // A reply has no parts at all if thinking used up the token limit.
    if parts.is_none() && finish != FinishReason::Length {
        return Err(malformed("a candidate without parts"));
    }
    let is_thought = |part: &&Value| part.get("thought").and_then(Value::as_bool) == Some(true);
    let said = parts.into_iter().flatten().filter(|part| !is_thought(part));
    let text = said.filter_map(|part| part.get("text")?.as_str()).collect();
    Ok(ProviderReply { text, finish, tokens })
}

fn finish(reason: Option<&str>) -> FinishReason {
    match reason {
        Some("STOP") => FinishReason::Stop,
        Some("MAX_TOKENS") => FinishReason::Length,
        Some(
            "SAFETY" | "RECITATION" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII" | "IMAGE_SAFETY",
        ) => FinishReason::ContentFilter,
        _ => FinishReason::Other,
    }
}

fn tokens(usage: &Value) -> TokenUsage {
    let prompt = count(usage, &["promptTokenCount"]).unwrap_or(0);
    let completion = count(usage, &["candidatesTokenCount"]).unwrap_or(0);
    let thinking = count(usage, &["thoughtsTokenCount"]).unwrap_or(0);
    TokenUsage::of(prompt, completion, thinking, count(usage, &["totalTokenCount"]))
}
