//! Lists the models a caller can name, their backends, and this server's decode and gate backends.

use infer::{ProbeResult, Standing};

use super::prelude::*;
use crate::{
    base::{
        clock::millis,
        model_catalog::{self, CatalogEntry},
    },
    record::{image_embedder::ImageEmbedder, inference::Inference},
};

/// Models, and the backends that run them.
#[derive(Serialize, ToSchema)]
pub struct Models {
    request_id: schema_types::RequestId,
    models: Vec<Model>,
    /// Configured backends.
    providers: Vec<Provider>,
    decode: DecodeSupport,
    gate: GateSupport,
    embedding: EmbeddingSupport,
}

/// A model that a caller can name.
#[derive(Serialize, ToSchema)]
struct Model {
    id: String,
    tier: schema_types::ModelTier,
    /// `ready`: a reachable backend lists the model, has answered for it, or lists nothing.
    /// `unreachable`: only unreachable backends may serve it. `name_not_served`: backends that may
    /// serve it list other models. `not_configured`: no backend serves its family.
    #[schema(value_type = schema_types::ModelAvailability)]
    availability: &'static str,
    /// Names of the reachable backends that serve the model, in the order in which they are asked.
    providers_available: Vec<String>,
    /// Smaller models of the family, most capable first, for a caller to name instead. The service
    /// asks other backends, but never another model.
    fallback_candidates: Vec<&'static str>,
}

/// A backend that runs models.
#[derive(Serialize, ToSchema)]
struct Provider {
    name: String,
    /// `openai_compat` or `gemini`.
    #[serde(rename = "type")]
    kind: &'static str,
    reachable: bool,
    /// Latency of the last probe, milliseconds; null if it failed.
    #[schema(required = true)]
    latency_ms: Option<u64>,
    /// Error of the last probe or request.
    #[schema(required = true)]
    last_error: Option<String>,
    /// Model that requests are sent for; null if none is configured, so that requests name it.
    #[schema(required = true)]
    asked_for: Option<String>,
    /// Models listed by the backend; null if it gave no list.
    #[schema(required = true)]
    lists: Option<Vec<String>>,
}

/// Decode backend and supported codecs.
#[derive(Serialize, ToSchema)]
struct DecodeSupport {
    /// Preferred decode backend: `software`, `nvdec`, `vaapi` or `ffmpeg-cli`.
    backend: &'static str,
    /// Backends that were tried before it at the start.
    passed_over: Vec<SkippedBackend>,
    /// Isolation of media workers: `full`, `partial` or `unavailable`.
    sandbox: &'static str,
    /// All codecs that the service knows.
    codecs: Vec<CodecSupport>,
}

/// A backend that does not work on this machine.
#[derive(Serialize, ToSchema)]
struct SkippedBackend {
    backend: &'static str,
    /// Reason why the backend is not used.
    reason: String,
}

/// Support of a codec.
#[derive(Serialize, ToSchema)]
struct CodecSupport {
    codec: &'static str,
    /// Decoder that decoded a test clip bit-exactly in a sandboxed worker at the start; null if none did.
    #[schema(required = true)]
    decoder: Option<String>,
    /// Reason why the preferred backend did not decode it.
    #[schema(required = true)]
    reason: Option<String>,
}

/// Gate backend, which measures frames.
#[derive(Serialize, ToSchema)]
struct GateSupport {
    backend: &'static str,
    /// Devices that were tried before it.
    passed_over: Vec<SkippedBackend>,
    /// Gate backend of a worker, such as `cpu-avx2`; null when no worker starts.
    #[schema(required = true)]
    measurer: Option<String>,
}

/// Image embedder of novelty detection.
#[derive(Serialize, ToSchema)]
struct EmbeddingSupport {
    /// `ready`, or `not_configured` if novelty detection is off.
    availability: &'static str,
    /// Execution provider: `cpu`, `cuda`, `tensorrt` or `sidecar`; null without an embedder.
    #[schema(required = true)]
    provider: Option<&'static str>,
}

/// Availability of a model or embedder for which nothing is configured.
const NOT_CONFIGURED: &str = "not_configured";

fn model_record(model: CatalogEntry<'_>, inference: &Inference, probes: &[ProbeResult]) -> Model {
    let serving = inference.standing(model.id, probes);
    let of = |standing| serving.iter().filter(move |one| one.standing == standing);
    let available: Vec<String> = of(Standing::Ready).map(|one| one.name.to_string()).collect();
    let availability = match () {
        () if !available.is_empty() => "ready",
        () if serving.is_empty() => NOT_CONFIGURED,
        () if of(Standing::Unreachable).next().is_some() => "unreachable",
        () => "name_not_served",
    };
    let lesser =
        model_catalog::model(model.id).into_iter().flat_map(model_catalog::CuratedModel::fallbacks);
    Model {
        id: model.id.to_owned(),
        tier: model.tier.into(),
        availability,
        providers_available: available,
        fallback_candidates: lesser.map(|lesser| lesser.id).collect(),
    }
}

/// List the models and the backends that run them.
///
/// Backends are probed on request, at most every five seconds.
#[utoipa::path(
    get, path = "/v1/models", operation_id = "listModels", tag = "server",
    responses((status = 200, description = "The models", body = Models)),
)]
pub async fn list(Call(app, caller): Call) -> Json<Models> {
    let able = app.workers.selection().map(|found| &found.capabilities);
    let probes = app.inference.probe().await;
    let catalog = app.inference.catalog();
    let models =
        catalog.models().map(|model| model_record(model, &app.inference, &probes)).collect();
    let providers = probes.iter().map(|probe| Provider {
        name: probe.name.to_string(),
        kind: probe.api.as_str(),
        reachable: probe.reachable,
        latency_ms: probe.latency.map(millis),
        last_error: probe.last_error.as_ref().map(ToString::to_string),
        asked_for: probe.upstream_model.clone(),
        lists: probe.models.clone(),
    });
    let tried = |codec| {
        let all = able.map(|able| able.codecs.as_slice()).unwrap_or_default();
        all.iter().find(|tried| tried.codec == codec && tried.bits == 8)
    };
    let codecs = media::Codec::ALL.map(|codec| CodecSupport {
        codec: codec.as_str(),
        decoder: tried(codec).and_then(|tried| tried.decoder.clone()),
        reason: tried(codec).and_then(|tried| tried.reason.clone()),
    });
    let skipped = |(backend, reason)| SkippedBackend { backend, reason };
    Json(Models {
        request_id: caller.request_id.into(),
        models,
        providers: providers.collect(),
        decode: DecodeSupport {
            backend: app.workers.backend().as_str(),
            passed_over: app.workers.passed_over().map(skipped).collect(),
            sandbox: app.workers.sandbox(),
            codecs: codecs.into(),
        },
        gate: GateSupport {
            backend: app.workers.gate().as_str(),
            passed_over: app.workers.gate_passed_over().map(skipped).collect(),
            measurer: able.map(|able| able.measurer.clone()),
        },
        embedding: EmbeddingSupport {
            availability: app.live.eyes().map_or(NOT_CONFIGURED, |_| "ready"),
            provider: app.live.eyes().map(ImageEmbedder::provider),
        },
    })
}
