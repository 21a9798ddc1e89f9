//! Common parts of the providers' APIs: a request to bytes, bytes to a reply.
//!
//! The encoders are pure: no socket, no clock. What a backend does not say is `None` or zero, what
//! is malformed is a failure that says so.

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

/// Way to ask for an answer that matches a schema. Programs and their versions differ in what they
/// take, so each API has an order in which they are tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SchemaMode {
    /// The parameter of today.
    Native,
    /// Today's parameter, and the schema in the prompt for versions that ignore it.
    NativeAndPrompt,
    /// The parameter of earlier versions.
    Legacy,
    /// Any JSON; the schema is in the prompt.
    AnyJson,
    /// The prompt alone.
    PromptOnly,
}

impl SchemaMode {
    /// The prompt repeats the schema.
    fn is_in_prompt(self) -> bool {
        self != SchemaMode::Native
    }
}

/// A reply that does not match the schema, and the fault that the model is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RepairPrompt {
    /// Text that the model wrote.
    pub answer: String,
    /// Fault of the answer.
    pub problem: String,
}

/// Request as a provider's API takes it.
#[derive(Clone, Debug)]
pub(crate) struct ProviderRequest<'a> {
    pub request: &'a InferenceRequest,
    /// Name of the model at the backend.
    pub model: &'a str,
    /// Most tokens of the answer.
    pub max_tokens: Option<u32>,
    /// Matters where the request has a schema.
    pub schema_mode: SchemaMode,
    /// The model lost itself in white space before.
    pub compact: bool,
    pub correction: Option<&'a RepairPrompt>,
}

impl ProviderRequest<'_> {
    fn schema(&self) -> Option<&OutputSchema> {
        self.request.schema.as_deref()
    }

    /// The prompt, with what the form adds to it.
    fn prompt(&self) -> String {
        let mut prompt = self.request.prompt.clone();
        if let Some(schema) = self.schema().filter(|_| self.schema_mode.is_in_prompt()) {
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
    /// Instruction to the model.
    fn instruction(&self) -> String {
        format!(
            "That answer does not match the required JSON Schema: {}. Answer again with the \
             corrected JSON value, and nothing else.",
            self.problem
        )
    }
}

/// Reply of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProviderReply {
    /// The text, hidden reasoning left out.
    pub text: String,
    pub finish: FinishReason,
    pub tokens: TokenUsage,
}

impl ApiProtocol {
    /// The forms in which a schema may be sent, in the order to try them.
    pub(crate) fn schema_modes(self) -> &'static [SchemaMode] {
        match self {
            ApiProtocol::Openai(kind) => openai::schema_modes(kind),
            ApiProtocol::Gemini => gemini::SCHEMA_MODES,
        }
    }

    /// The body of a request.
    pub(crate) fn body(self, ask: &ProviderRequest<'_>) -> Vec<u8> {
        match self {
            ApiProtocol::Openai(_) => openai::body(ask),
            ApiProtocol::Gemini => gemini::body(ask),
        }
    }

    /// The reply in the body of a 2xx response.
    pub(crate) fn reply(self, body: &[u8]) -> Result<ProviderReply, FailureKind> {
        match self {
            ApiProtocol::Openai(_) => openai::reply(body),
            ApiProtocol::Gemini => gemini::reply(body),
        }
    }
}

/// The error response is about the form in which the schema was sent, so that another may do.
pub(crate) fn refuses_schema_mode(status: u16, body: &[u8]) -> bool {
    const WORDS: [&str; 4] = ["response_format", "schema", "grammar", "guided"];
    if !matches!(status, 400 | 422) {
        return false;
    }
    let said = String::from_utf8_lossy(body).to_ascii_lowercase();
    WORDS.iter().any(|word| said.contains(word))
}

/// A picture as base64, made while the request is written.
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

/// `body` as a JSON object.
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

/// More tokens than any context holds: such a count is none, or one wrong answer would spend a day's
/// budget.
const COUNT_MAX: u64 = 1 << 24;

/// The first of `keys` that `usage` counts.
fn count(usage: &Value, keys: &[&str]) -> Option<u64> {
    let counted = |key: &&str| usage.get(key)?.as_u64().filter(|count| *count <= COUNT_MAX);
    keys.iter().find_map(counted)
}

/// The reply kept as `name` under `fixtures/replies`.
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

    /// A model that is held to a schema writes its fields in the order in which it reads them.
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
                let (max_tokens, compact, correction) = (None, false, None);
                let ask = ProviderRequest {
                    request: &request,
                    model: "m",
                    max_tokens,
                    schema_mode: form,
                    compact,
                    correction,
                };
                let body = String::from_utf8(api.body(&ask)).expect("JSON is UTF-8");
                // In the prompt the quotes are escaped.
                let place = |field: &&str| {
                    let told = body.find(&format!("{field}\\\":"));
                    told.or_else(|| body.find(&format!("{field}\":")))
                };
                let places: Vec<_> = fields.iter().map(place).collect();
                assert!(places.is_sorted() && places[0].is_some(), "{api:?} {form:?}: {body}");
            }
        }
    }

    /// Fixes the words that every model gets beside the prompt, in all versions of it: a change of
    /// them gives every template its next version.
    #[test]
    fn what_is_said_beside_the_prompt_is_as_the_versions_know_it() {
        let schema = OutputSchema::compile(default_schema().clone()).ok().map(Arc::new);
        let request = InferenceRequest { schema, ..InferenceRequest::new("m", "") };
        let correction = RepairPrompt { answer: String::new(), problem: "P".to_owned() };
        let (form, max_tokens) = (SchemaMode::PromptOnly, None);
        let ask = ProviderRequest {
            request: &request,
            model: "m",
            max_tokens,
            schema_mode: form,
            compact: true,
            correction: None,
        };
        let found = fingerprint(&[&ask.prompt(), &correction.instruction()]);
        assert_eq!(found, 0x2358_189b_fe6d_709f, "{found:#x}");
    }

    /// Replaces the value at some pointer of `value` by `other`.
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
        /// Any value in any place of a reply gives a reply or a failure.
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
