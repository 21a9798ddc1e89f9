//! Fields of a question: read once, for single questions and those of a batch.

use std::{ops::RangeInclusive, sync::Arc, time::Duration};

use infer::{InferenceRequest, OutputSchema, ProviderKind};
use media::{BlobHash, RunId};
use serde_json::Value;
use utoipa::ToSchema;

use crate::{
    api::{openapi::terms, reason::model_name},
    base::{
        catalog::Catalog,
        json::{Fields, Int, Problem, Text, boolean, name, number, parsed, said},
    },
};

/// A prompt.
pub type PromptText = Text<1, 32_768>;
/// Most tokens of an answer.
pub type MaxTokens = Int<1, 4096>;
/// Time for a whole answer.
pub type TimeoutMs = Int<1, 120_000>;
type ModelText = Text<1, 128>;
/// Sampling temperatures.
pub const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
/// Pictures of a question.
pub const IMAGES: RangeInclusive<usize> = 0..=8;
const PROVIDERS: &str = "vllm, sglang, gemini, mlx";

/// A question to a model.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `Asked::read` reads")]
pub struct InferRequest {
    /// Id of a model of `GET /v1/models`, or its makers' name of it.
    #[schema(inline)]
    model: ModelText,
    #[schema(inline)]
    prompt: PromptText,
    /// A run of the caller's whose timeline tells of the answer.
    run_id: Option<terms::RunId>,
    /// Most tokens of the answer; when missing the backend's own limit or, on a server that gives out
    /// tokens by the day, 4096.
    #[schema(inline)]
    max_tokens: Option<MaxTokens>,
    temperature: Option<terms::Temperature>,
    /// Time for the answer, retries and fallbacks included, and for the wait for a permit except in
    /// a batch; each backend's own, after the wait, when missing.
    #[schema(inline)]
    timeout_ms: Option<TimeoutMs>,
    /// Another backend may answer when the first does not; true when missing.
    allow_fallback: Option<bool>,
    /// Kind of the backends to ask first.
    primary_provider: Option<terms::ProviderKind>,
    /// JSON Schema of the answer; a `$ref` may only point into it.
    output_schema: Option<terms::AnyObject>,
    /// Pictures, shown to the model after the prompt and in this order.
    #[schema(max_items = 8)]
    images: Option<Vec<ImageRequest>>,
}

/// A picture of a question.
#[derive(ToSchema)]
#[expect(dead_code, reason = "says what `picture` reads")]
struct ImageRequest {
    keyframe: terms::KeyframeRef,
}

/// A still of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Picture {
    /// The run that it is of.
    pub run: RunId,
    /// The still.
    pub hash: BlobHash,
}

/// A question that can be asked.
#[derive(Debug)]
pub struct Asked {
    /// Request to the model, without its pictures.
    pub request: InferenceRequest,
    /// The run that it is for.
    pub run: Option<RunId>,
    /// Its pictures.
    pub pictures: Vec<Picture>,
}

impl Asked {
    /// Reads a question about a model of `catalog`; `None` when something was refused.
    pub fn read(fields: &mut Fields<'_>, catalog: &Catalog) -> Option<Asked> {
        let model = fields.required("model", |value| model_name(catalog, value));
        let model = model.map(|model| model.as_str().to_owned());
        let prompt = fields.required("prompt", said(PromptText::read));
        let run = fields.optional("run_id", parsed);
        let max_tokens = fields.optional("max_tokens", MaxTokens::read);
        let temperature = fields.optional("temperature", number(TEMPERATURE));
        let timeout = fields.optional("timeout_ms", TimeoutMs::read).map(Duration::from_millis);
        let allow_fallback = fields.optional("allow_fallback", boolean).unwrap_or(true);
        let primary = fields.optional("primary_provider", name(PROVIDERS, ProviderKind::from_name));
        let schema = fields.optional("output_schema", schema);
        let pictures = fields.objects("images", IMAGES, picture);
        let request = InferenceRequest {
            model: model?,
            prompt: prompt?.to_owned(),
            images: Vec::new(),
            max_tokens: max_tokens.and_then(|count| u32::try_from(count).ok()),
            temperature,
            timeout,
            schema,
            primary,
            allow_fallback,
        };
        Some(Asked { request, run, pictures: pictures.unwrap_or_default() })
    }
}

fn schema(value: &Value) -> Result<Arc<OutputSchema>, Problem> {
    if !value.is_object() {
        return Err("must be a JSON Schema object, not its text".into());
    }
    OutputSchema::compile(value.clone()).map(Arc::new).map_err(|error| error.to_string().into())
}

fn picture(fields: &mut Fields<'_>) -> Option<Picture> {
    fields.required("keyframe", |value| {
        let object = value.as_object();
        object.ok_or_else(|| "must be an object of run_id and sha256 (64 lower-case digits)".into())
    })?;
    fields.object("keyframe", |fields| {
        let (run, hash) = (fields.required("run_id", parsed), fields.required("sha256", parsed));
        Some(Picture { run: run?, hash: hash? })
    })
}
