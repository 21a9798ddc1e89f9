//! Fields of an inference request, shared by single requests and batches.

use std::ops::RangeInclusive;

use infer::{InferenceRequest, OutputSchema};
use media::BlobHash;

use crate::{
    api::{prelude::*, reason::ModelName},
    base::json::{Declared, List, said},
};

pub type PromptText = BoundedText<1, 32_768>;
pub type MaxTokens = BoundedInt<1, 4096>;
pub type TimeoutMs = BoundedInt<1, 120_000>;
type ModelText = BoundedText<1, 128>;
pub const TEMPERATURE: RangeInclusive<f64> = 0.0..=2.0;
pub const IMAGES: RangeInclusive<usize> = 0..=8;

/// Inference request.
#[derive(ToSchema)]
pub struct InferRequest {
    /// Model: an id of `GET /v1/models` or an upstream name.
    #[schema(inline, value_type = ModelText)]
    model: ModelName,
    #[schema(inline)]
    prompt: PromptText,
    /// Run of the caller on whose timeline the answer is recorded.
    run_id: Option<schema_types::RunId>,
    /// Maximum number of tokens of the answer; when missing, the backend's limit or, on a server with daily
    /// token budgets, 4096.
    #[schema(inline)]
    max_tokens: Option<MaxTokens>,
    temperature: Option<schema_types::Temperature>,
    /// Timeout in milliseconds, retries and fallbacks included, and the wait for a permit except in a batch;
    /// when missing, each backend's own, from the end of the wait.
    #[schema(inline)]
    timeout_ms: Option<TimeoutMs>,
    /// True if another backend may answer when the first fails; true when missing.
    allow_fallback: Option<bool>,
    /// Kind of backends to ask first.
    primary_provider: Option<schema_types::ProviderKind>,
    /// JSON Schema of the answer; a `$ref` must point into the schema itself.
    #[schema(value_type = Option<schema_types::AnyObject>)]
    output_schema: Option<Arc<OutputSchema>>,
    /// Images, shown to the model after the prompt, in this order.
    #[schema(value_type = Option<Vec<ImageRequest>>, max_items = 8)]
    images: Option<List<ImageRequest, { *IMAGES.start() }, { *IMAGES.end() }>>,
}

declared!(InferRequest {
    model, prompt: required said(PromptText::read), run_id, max_tokens, temperature, timeout_ms, allow_fallback,
    primary_provider, output_schema: optional schema, images,
});

/// An image of an inference request.
#[derive(ToSchema)]
struct ImageRequest {
    #[schema(value_type = schema_types::KeyframeRef)]
    keyframe: StillRef,
}

declared!(ImageRequest { keyframe: required keyframe });

/// Reference to a still of a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StillRef {
    pub run_id: RunId,
    pub sha256: BlobHash,
}

declared!(StillRef { run_id: required parsed, sha256: required parsed });

impl InferRequest {
    /// Splits the request into the model request without images, the run, and the references to stills.
    pub fn parts(self) -> (InferenceRequest, Option<RunId>, Vec<StillRef>) {
        let request = InferenceRequest {
            model: self.model.0.as_str().to_owned(),
            prompt: self.prompt.0,
            images: Vec::new(),
            max_tokens: self.max_tokens.and_then(|BoundedInt(count)| u32::try_from(count).ok()),
            temperature: self.temperature.map(|it| it.0),
            timeout: self.timeout_ms.map(|BoundedInt(ms)| Duration::from_millis(ms)),
            schema: self.output_schema,
            primary: self.primary_provider.map(|it| it.0),
            allow_fallback: self.allow_fallback.unwrap_or(true),
        };
        let images = self.images.into_iter().flat_map(|List(images)| images);
        let pictures = images.map(|image| image.keyframe).collect();
        (request, self.run_id.map(|it| it.0), pictures)
    }
}

fn schema(value: &Value) -> Result<Arc<OutputSchema>, ValueError> {
    if !value.is_object() {
        return Err("must be a JSON Schema object, not its text".into());
    }
    OutputSchema::compile(value.clone()).map(Arc::new).map_err(|error| error.to_string().into())
}

fn keyframe(value: &Value) -> Result<StillRef, Faults> {
    if !value.is_object() {
        let problem = "must be an object of run_id and sha256 (64 lower-case digits)";
        return Err(ValueError::from(problem).into());
    }
    StillRef::take(value, Form::Body)
}
