//! Common parts of the providers' APIs: encoding of requests, decoding of replies.
//!
//! The encoders are pure: no socket, no clock. A value that the backend omits is `None` or zero; a malformed
//! value is a failure.

pub(crate) mod gemini;
pub(crate) mod openai;
pub(crate) mod retry_info;
pub(crate) mod text;

use base64::{display::Base64Display, engine::general_purpose::STANDARD};
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::{
    FailureKind, FinishReason, InferenceRequest, OutputSchema, PromptImage, TokenUsage,
    config::ApiProtocol,
};

/// Way to request an answer that matches a schema. Programs and their versions support different ways, so
/// each API defines an order in which to try them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaMode {
    /// The current schema parameter.
    Native,
    /// The current parameter, and the schema in the prompt for versions that ignore the parameter.
    NativeAndPrompt,
    /// The schema parameter of earlier versions.
    Legacy,
    /// JSON mode, with the schema in the prompt.
    AnyJson,
    /// The schema in the prompt alone.
    PromptOnly,
}

/// Request to repair an answer that does not match the schema.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepairPrompt {
    pub answer: String,
    /// Fault of the answer, as told to the model.
    pub problem: String,
}

/// Inputs of one request to a provider's API.
#[derive(Clone, Debug)]
pub(crate) struct ProviderRequest<'a> {
    pub request: &'a InferenceRequest,
    /// Name of the model at the backend.
    pub model: &'a str,
    /// Most tokens of the answer; `None` for the backend's default.
    pub max_tokens: Option<u32>,
    /// Way to send the schema, if the request has one.
    pub schema_mode: SchemaMode,
    /// True if an earlier answer was lost in white space.
    pub compact: bool,
    pub correction: Option<&'a RepairPrompt>,
}

impl<'a> ProviderRequest<'a> {
    /// Returns the first attempt of `request` in a schema mode.
    #[cfg(test)]
    fn of(request: &'a InferenceRequest, schema_mode: SchemaMode) -> ProviderRequest<'a> {
        let (model, max_tokens) = (&*request.model, request.max_tokens);
        let (compact, correction) = (false, None);
        ProviderRequest { request, model, max_tokens, schema_mode, compact, correction }
    }

    fn schema(&self) -> Option<&OutputSchema> {
        self.request.schema.as_deref()
    }

    /// Returns the prompt with the text that the schema mode adds.
    fn prompt(&self) -> String {
        let mut prompt = self.request.prompt.clone();
        if let Some(schema) = self.schema().filter(|_| self.schema_mode != SchemaMode::Native) {
            prompt.push_str(
                "\n\nAnswer with one JSON value that matches this JSON Schema, and nothing else:\n",
            );
            prompt.push_str(&schema.value().to_string());
        }
        if self.compact {
            prompt.push_str("\n\nWrite compact JSON: no line breaks and no indentation.");
        }
        prompt
    }
}

impl RepairPrompt {
    fn instruction(&self) -> String {
        format!(
            "That answer does not match the required JSON Schema: {}. Answer again with the \
             corrected JSON value, and nothing else.",
            self.problem
        )
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderReply {
    /// Answer text without hidden reasoning.
    pub text: String,
    pub finish: FinishReason,
    pub tokens: TokenUsage,
}

impl ApiProtocol {
    /// Returns the schema modes in the order to try them.
    pub(crate) fn schema_modes(self) -> &'static [SchemaMode] {
        match self {
            ApiProtocol::Openai(kind) => openai::schema_modes(kind),
            ApiProtocol::Gemini => gemini::SCHEMA_MODES,
        }
    }

    pub(crate) fn body(self, ask: &ProviderRequest<'_>) -> Vec<u8> {
        match self {
            ApiProtocol::Openai(_) => openai::body(ask),
            ApiProtocol::Gemini => gemini::body(ask),
        }
    }

    /// Decodes the reply in the body of a 2xx response.
    pub(crate) fn reply(self, body: &[u8]) -> Result<ProviderReply, FailureKind> {
        match self {
            ApiProtocol::Openai(_) => openai::reply(body),
            ApiProtocol::Gemini => gemini::reply(body),
        }
    }
}

/// Returns true if the error response rejects the schema mode, so that another mode may work.
pub(crate) fn refuses_schema_mode(status: u16, body: &[u8]) -> bool {
    const WORDS: [&str; 4] = ["response_format", "schema", "grammar", "guided"];
    if !matches!(status, 400 | 422) {
        return false;
    }
    let said = String::from_utf8_lossy(body).to_ascii_lowercase();
    WORDS.iter().any(|word| said.contains(word))
}

/// Picture encoded as base64 while the request is serialised.
struct Base64<'a> {
    prefix: &'static str,
    image: &'a PromptImage,
}

impl Serialize for Base64<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let encoded = Base64Display::new(&self.image.jpeg, &STANDARD);
        serializer.collect_str(&format_args!("{}{encoded}", self.prefix))
    }
}

fn object(body: &[u8]) -> Result<Value, FailureKind> {
    let value: Value = serde_json::from_slice(body)
        .map_err(|_| FailureKind::Malformed { problem: "the body is not JSON" })?;
    if value.get("error").is_some_and(|error| !error.is_null()) {
        return Err(FailureKind::Malformed { problem: "an error with a status of success" });
    }
    match value {
        Value::Object(_) => Ok(value),
        _ => Err(FailureKind::Malformed { problem: "the body is not a JSON object" }),
    }
}

/// Largest plausible token count, above any context length; a larger count is ignored, else one wrong reply
/// would use up a day's budget.
const COUNT_MAX: u64 = 1 << 24;

/// Returns the first count in `usage` under one of `keys`.
fn count(usage: &Value, keys: &[&str]) -> Option<u64> {
    let counted = |key: &&str| usage.get(key)?.as_u64().filter(|count| *count <= COUNT_MAX);
    keys.iter().find_map(counted)
}

/// Returns the reply stored as `name` under `fixtures/replies`.
#[cfg(test)]
fn fixture(name: &str) -> Vec<u8> {
    let path = format!("{}/../fixtures/replies/{name}.json", env!("CARGO_MANIFEST_DIR"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use std::sync::Arc;

    use super::{ProviderRequest, RepairPrompt, SchemaMode, fixture, refuses_schema_mode};
    use crate::{
        InferenceRequest, OutputSchema, config::ApiProtocol, finding::default_schema,
        prompt::fingerprint,
    };

    const APIS: [ApiProtocol; 2] = [ApiProtocol::Openai(None), ApiProtocol::Gemini];

    /// A model constrained by a schema writes the fields in the schema's order.
    #[test]
    fn a_schema_is_sent_in_the_order_of_its_author() {
        let schema = json!({"type": "object", "properties": {
            "zebra": {"type": "string"}, "mule": {"type": "string"}, "ape": {"type": "number"}}});
        let fields = ["event_type", "object_label", "summary", "confidence"];
        for (schema, fields) in
            [(&schema, &["zebra", "mule", "ape"][..]), (default_schema(), &fields)]
        {
            let request = InferenceRequest {
                schema: OutputSchema::compile(schema.clone()).ok().map(Arc::new),
                ..InferenceRequest::new("m", "?")
            };
            for (api, form) in APIS
                .into_iter()
                .flat_map(|api| api.schema_modes().iter().map(move |form| (api, *form)))
            {
                let body = api.body(&ProviderRequest::of(&request, form));
                let body = String::from_utf8(body).expect("JSON is UTF-8");
                // Quotes are escaped inside the prompt.
                let place = |field: &&str| {
                    let told = body.find(&format!("{field}\\\":"));
                    told.or_else(|| body.find(&format!("{field}\":")))
                };
                let places: Vec<_> = fields.iter().map(place).collect();
                assert!(places.is_sorted() && places[0].is_some(), "{api:?} {form:?}: {body}");
            }
        }
    }

    /// Pins the text added to every prompt, in all template versions: a change requires the next version of
    /// every template.
    #[test]
    fn what_is_said_beside_the_prompt_is_as_the_versions_know_it() {
        let schema = OutputSchema::compile(default_schema().clone()).ok().map(Arc::new);
        let request = InferenceRequest { schema, ..InferenceRequest::new("m", "") };
        let correction = RepairPrompt { answer: String::new(), problem: "P".to_owned() };
        let ask = ProviderRequest::of(&request, SchemaMode::PromptOnly);
        let ask = ProviderRequest { compact: true, ..ask };
        let found = fingerprint(&[&ask.prompt(), &correction.instruction()]);
        assert_eq!(found, 0x2358_189b_fe6d_709f, "{found:#x}");
    }

    /// Replaces the value at the pointer `path` in `value` by `other`.
    fn replaced(value: &mut Value, path: &[prop::sample::Index], other: Value) {
        let Some((step, below)) = path.split_first() else {
            *value = other;
            return;
        };
        match value {
            Value::Array(items) if !items.is_empty() => {
                let at = step.index(items.len());
                replaced(&mut items[at], below, other);
            }
            Value::Object(fields) if !fields.is_empty() => {
                let at = step.index(fields.len());
                if let Some(field) = fields.values_mut().nth(at) {
                    replaced(field, below, other);
                }
            }
            leaf => *leaf = other,
        }
    }

    proptest! {
        /// A reply with an arbitrary value in any place gives a reply or a failure.
        #[test]
        fn a_reply_with_any_value_anywhere_is_read_or_refused(
            path in proptest::collection::vec(any::<prop::sample::Index>(), 0..6),
            other in prop::sample::select(vec![
                json!(null), json!(-1), json!(1.5e300), json!("</think>"), json!([]), json!({}), json!([[1]]),
            ]),
            name in prop::sample::select(vec!["vllm/reasoning.200", "gemini/thoughts.200", "openai/parts.200"]),
        ) {
            let mut value: Value = serde_json::from_slice(&fixture(name)).expect("JSON");
            replaced(&mut value, &path, other);
            let bytes = value.to_string();
            for api in APIS {
                if let Ok(reply) = api.reply(bytes.as_bytes()) {
                    prop_assert!(reply.text.len() <= bytes.len());
                }
            }
        }

        #[test]
        fn bytes_of_any_kind_are_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            for api in APIS {
                let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
                prop_assert!(api.reply(&bytes).is_err() || is_object);
            }
            prop_assert!(!refuses_schema_mode(500, &bytes));
        }
    }
}
