//! The models a caller can name, who can run them, and what decodes and measures here.

use std::sync::Arc;

use axum::{Json, extract::State};
use media::RequestId;
use serde::Serialize;
use utoipa::ToSchema;

use super::{App, extract::Caller, openapi::terms, wire::shown};
use crate::catalog;

/// The models and what runs them.
#[derive(Serialize, ToSchema)]
pub struct Models {
    #[serde(serialize_with = "shown")]
    #[schema(value_type = terms::RequestId)]
    request_id: RequestId,
    models: Vec<ModelRecord>,
    /// Backends that are configured.
    providers: Vec<ProviderRecord>,
    decode: DecodeRecord,
    gate: GateRecord,
    embedding: EmbeddingRecord,
}

/// A model that a caller can name.
#[derive(Serialize, ToSchema)]
#[schema(as = Model)]
struct ModelRecord {
    id: &'static str,
    #[schema(value_type = terms::Tier)]
    tier: &'static str,
    /// `ready`, `unreachable` or `not_configured`.
    availability: &'static str,
    /// Names of the backends that answer for it.
    providers_available: Vec<&'static str>,
    /// Models that may answer in its place, the most able first.
    fallback_candidates: Vec<&'static str>,
}

/// A backend that runs models.
#[derive(Serialize, ToSchema)]
#[schema(as = Provider)]
struct ProviderRecord {
    name: String,
    /// `openai_compat` or `gemini`.
    #[serde(rename = "type")]
    kind: &'static str,
    reachable: bool,
    /// Of the last probe that was answered.
    #[schema(required = true)]
    latency_ms: Option<u64>,
    /// Why the last probe was not.
    #[schema(required = true)]
    last_error: Option<String>,
}

/// What decodes.
#[derive(Serialize, ToSchema)]
#[schema(as = Decode)]
struct DecodeRecord {
    /// Where pictures are decoded.
    backend: &'static str,
    /// How isolated that is: `full`, `partial` or `unavailable`.
    sandbox: &'static str,
    /// Every codec the service knows.
    codecs: Vec<CodecRecord>,
}

/// Whether a codec is decoded.
#[derive(Serialize, ToSchema)]
#[schema(as = CodecSupport)]
struct CodecRecord {
    codec: &'static str,
    /// What opened it in a sandboxed worker when the server started; null when nothing does.
    #[schema(required = true)]
    decoder: Option<String>,
}

/// What measures frames.
#[derive(Serialize, ToSchema)]
#[schema(as = GateSupport)]
struct GateRecord {
    backend: &'static str,
    /// What a worker measures with, such as `cpu-avx2`; null when no worker starts.
    #[schema(required = true)]
    measurer: Option<String>,
}

/// What embeds frames for novelty.
#[derive(Serialize, ToSchema)]
#[schema(as = EmbeddingSupport)]
struct EmbeddingRecord {
    /// `not_configured`: novelty is not looked at.
    availability: &'static str,
}

/// Word for a model, or an embedder, that nothing is configured to run.
const NOT_CONFIGURED: &str = "not_configured";

/// List the models and what runs them.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "listModels", tag = "server",
    responses((status = 200, description = "The models", body = Models)),
)]
pub async fn list(State(app): State<Arc<App>>, caller: Caller) -> Json<Models> {
    let able = app.workers.capabilities.as_ref();
    let models = catalog::MODELS.map(|model| ModelRecord {
        id: model.id,
        tier: model.tier.as_str(),
        availability: NOT_CONFIGURED,
        providers_available: Vec::new(),
        fallback_candidates: model.fallbacks().map(|lesser| lesser.id).collect(),
    });
    let codecs = media::Codec::ALL.map(|codec| CodecRecord {
        codec: codec.name(),
        decoder: able
            .and_then(|able| able.codecs.iter().find(|found| found.codec == codec))
            .and_then(|found| found.decoder.clone()),
    });
    Json(Models {
        request_id: caller.request_id,
        models: models.into(),
        providers: Vec::new(),
        decode: DecodeRecord {
            backend: "software",
            sandbox: app.workers.sandbox.as_str(),
            codecs: codecs.into(),
        },
        gate: GateRecord { backend: "cpu", measurer: able.map(|able| able.measurer.clone()) },
        embedding: EmbeddingRecord { availability: NOT_CONFIGURED },
    })
}
