//! Reasoning: models describe a source's chunks while it is decoded.
//!
//! `chunk_tracker` decides what is asked and in which order, without a clock or a socket; `driver` asks and
//! records the answers. Knows no backend: models are asked through a [`Describer`].

mod chunk_dedup;
mod chunk_tracker;
mod describer;
mod driver;
mod model_describer;
mod retry_policy;

pub use chunk_dedup::{ChunkComparer, ChunkNovelty};
pub use chunk_tracker::{FrameRange, PromptConfig, Totals};
pub use describer::Describer;
pub use driver::{EventContext, RAW_BYTES_MAX, ReasonDriver, ReasonOutcome};
pub use model_describer::{ModelDescriber, ReasonQuery};
pub use retry_policy::{ChunkAttempt, RetryPolicy};

use std::sync::Arc;

use media::{Label, Marker};
use timeline::{MarkerConfig, SemanticOutcome};
use worker::ChunkImageOptions;

use super::runner::{IngestJob, IngestResult};
use crate::record::gate_replay::{FrameAnalysis, Windowing};

/// A checked request to reason over a source.
pub struct ReasonJob {
    /// Source and how it is decoded.
    pub ingest: IngestJob,
    /// Model stage of the job.
    pub semantics: ModelStage,
    /// Settings of the events and the answer.
    pub terms: LabelOptions,
}

/// Settings of the events and the answer of a reasoning.
#[derive(Clone, Debug)]
pub struct LabelOptions {
    /// Mode of the analysis.
    pub mode: String,
    /// Model asked for.
    pub model: Label,
    /// Limits of the windows into which frames are grouped.
    pub windowing: Windowing,
    /// Settings of the markers.
    pub markers: MarkerConfig,
    /// Index name of the events.
    pub index_name: Option<Label>,
    /// True if the caller gave an output schema: events then carry the whole output.
    pub keeps_output: bool,
}

/// Model stage of a reasoning.
pub enum ModelStage {
    /// No model is asked: the gate alone decides.
    Off,
    /// No model is available; the reason.
    Missing(String),
    /// Models describe each chunk.
    Chunks(DescriptionOptions),
}

/// Settings of describing the chunks of a source.
pub struct DescriptionOptions {
    /// Settings of chunks and their images.
    pub views: ChunkImageOptions,
    /// Prompt for each chunk.
    pub inquiry: PromptConfig,
    /// Client of the models.
    pub describer: Arc<dyn Describer>,
    /// Novelty check; with `None` every chunk is described.
    pub novelty: Option<ChunkNovelty>,
}

/// Result of a reasoning.
#[derive(Debug)]
pub struct Reasoned {
    /// Result of the decoding.
    pub ingested: IngestResult,
    /// Analysis of every frame.
    pub frames: Vec<FrameAnalysis>,
    /// Markers that were emitted.
    pub markers: Vec<Marker>,
    /// Totals over all chunks.
    pub totals: Totals,
    /// Outcome of the model stage.
    pub semantic: SemanticOutcome,
}
