//! Computes image embeddings for novelty detection, with an ONNX model in this process or a sidecar.
//!
//! A failure is counted; the model is then asked, as if there were no embedder.

use std::{
    io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use embed::{
    BatchLimits, CellMeans, Embedder, ExecutionProvider, FrameFeatures, ModelInputImage,
    NoveltyReason, OnnxConfig, OnnxError, OnnxModel, ReuseRule, SidecarClient,
};
use media::Timestamp;
use worker::NoveltyInput;

use crate::base::metrics::{EmbeddingProvider, Label, Metrics, NoveltyDecision};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EmbedderConfig {
    /// No embedder: every selected frame is described.
    Off,
    /// An ONNX model in this process.
    Model {
        /// Path of the ONNX file; `None` selects the bundled one.
        model: Option<PathBuf>,
        /// Path of the ONNX Runtime library; `None` lets the loader search.
        runtime: Option<PathBuf>,
        provider: ExecutionProvider,
    },
    /// A sidecar at `host:port`.
    Sidecar(String),
}

#[derive(Clone, Debug)]
pub struct NoveltyConfig {
    pub eyes: EmbedderConfig,
    /// Timeout of one embedding.
    pub timeout: Duration,
    pub rule: ReuseRule,
}

#[derive(Debug, thiserror::Error)]
pub enum EmbedderError {
    #[error("SERVICE_NOVELTY_MODEL_PATH: {0}")]
    Model(#[from] OnnxError),
    #[error("no thread for the embedding model: {0}")]
    Thread(#[from] io::Error),
}

#[derive(Clone)]
pub enum ImageEmbedder {
    Model(Arc<Embedder>),
    Sidecar(Arc<SidecarClient>),
}

impl ImageEmbedder {
    /// Starts the embedder of `config`, runs a model once, and sets the gauge of its provider.
    pub fn open(
        config: &NoveltyConfig,
        metrics: &Metrics,
    ) -> Result<Option<ImageEmbedder>, EmbedderError> {
        let eyes = match &config.eyes {
            EmbedderConfig::Off => None,
            EmbedderConfig::Sidecar(address) => Some(ImageEmbedder::Sidecar(Arc::new(
                SidecarClient::new(address.clone(), config.timeout),
            ))),
            EmbedderConfig::Model { model, runtime, provider } => {
                let (runtime, model, provider) = (runtime.clone(), model.clone(), *provider);
                let asked = OnnxConfig { runtime, model, provider, ..OnnxConfig::default() };
                let model = OnnxModel::load(&asked)?;
                let started = Embedder::start(model, BatchLimits::default(), config.timeout)?;
                Some(ImageEmbedder::Model(Arc::new(started)))
            }
        };
        let provider = eyes.as_ref().map(ImageEmbedder::provider);
        for known in EmbeddingProvider::ALL {
            let is_used = provider == Some(known.value());
            metrics.embedding_provider.of(known).set(i64::from(is_used));
        }
        Ok(eyes)
    }

    /// Name of the execution provider, or `sidecar`.
    pub fn provider(&self) -> &'static str {
        match self {
            ImageEmbedder::Model(model) => model.provider(),
            ImageEmbedder::Sidecar(_) => "sidecar",
        }
    }

    /// Side, in pixels, of the square picture that workers send for embedding.
    pub fn side(&self) -> u32 {
        match self {
            ImageEmbedder::Model(model) => model.side(),
            ImageEmbedder::Sidecar(_) => worker::NoveltySpec::SIDE_MIN,
        }
    }

    /// Computes the features of a frame shown at `at`; counts a failure and returns `None`.
    pub async fn embed_frame(
        &self,
        stream: u64,
        at: Timestamp,
        jpeg: &Bytes,
        NoveltyInput { cells, picture }: NoveltyInput,
        metrics: &Metrics,
    ) -> Option<FrameFeatures> {
        let seen = async {
            let cells = CellMeans::new(cells).ok()?;
            let picture = ModelInputImage::new(picture.side, picture.rgb).ok()?;
            let started = Instant::now();
            let embedded = match self {
                ImageEmbedder::Model(model) => {
                    model.embed(stream, picture).await.map_err(|error| error.to_string())
                }
                ImageEmbedder::Sidecar(sidecar) => {
                    sidecar.embed(jpeg.clone()).await.map_err(|error| error.to_string())
                }
            };
            metrics.embedding_seconds.observe(started.elapsed().as_secs_f64());
            let told = |error: &String| tracing::debug!(%error, "a picture was not embedded");
            let embedding = embedded.inspect_err(told).ok()?;
            Some(FrameFeatures { at, embedding, cells })
        };
        let seen = seen.await;
        if seen.is_none() {
            metrics.novelty_decisions.of(NoveltyDecision::Failed).inc();
        }
        seen
    }
}

impl NoveltyDecision {
    /// Maps a verdict to the label that it is counted under.
    pub fn of(novelty: &embed::NoveltyVerdict) -> NoveltyDecision {
        match novelty {
            embed::NoveltyVerdict::Reuse(_) => NoveltyDecision::Reuse,
            embed::NoveltyVerdict::New(newness) => NoveltyDecision::of_newness(*newness),
        }
    }

    /// Maps a reason for novelty to the label that it is counted under.
    pub fn of_newness(newness: NoveltyReason) -> NoveltyDecision {
        match newness {
            NoveltyReason::First => NoveltyDecision::First,
            NoveltyReason::Elapsed => NoveltyDecision::Elapsed,
            NoveltyReason::Model => NoveltyDecision::Model,
            NoveltyReason::Distance(_) => NoveltyDecision::Distance,
            NoveltyReason::Cell(_) => NoveltyDecision::Cell,
            NoveltyReason::Drift => NoveltyDecision::Drift,
            NoveltyReason::Shadow(_) => NoveltyDecision::Shadow,
        }
    }
}
