//! Reasoning: models describe a source's chunks while it is decoded.
//!
//! `chunk_tracker` decides what is asked and in which order, without a clock or a socket; `driver` asks and
//! records the answers. Knows no backend: models are asked through a [`Describer`].

mod chunk_dedup;
mod chunk_tracker;
mod describer;
mod driver;
mod retry_policy;

pub use chunk_dedup::{ChunkComparer, ChunkNovelty};
pub use chunk_tracker::{FrameRange, PromptConfig, Totals};
pub use describer::{Describer, ModelDescriber, ReasonQuery};
pub use driver::{EventContext, RAW_BYTES_MAX, ReasonDriver, ReasonOutcome};
pub use retry_policy::{ChunkAttempt, RetryPolicy};

use std::sync::Arc;

use media::{Label, Marker};
use timeline::{MarkerConfig, SemanticOutcome};
use worker::ChunkImageOptions;

use super::runner::{IngestJob, IngestResult};
use crate::record::gate_replay::{FrameAnalysis, Windowing};

/// A checked request to reason over a source.
pub struct ReasonJob {
    pub ingest: IngestJob,
    pub semantics: ModelStage,
    pub terms: LabelOptions,
}

/// Settings of the events and the answer of a reasoning.
#[derive(Clone, Debug)]
pub struct LabelOptions {
    pub mode: String,
    pub model: Label,
    pub windowing: Windowing,
    pub markers: MarkerConfig,
    pub index_name: Option<Label>,
    /// True if the caller gave an output schema: events then carry the whole output.
    pub keeps_output: bool,
}

pub enum ModelStage {
    /// No model is asked: the gate alone decides.
    Off,
    /// No model is available; the reason.
    Missing(String),
    Chunks(DescriptionOptions),
}

/// Settings of describing the chunks of a source.
pub struct DescriptionOptions {
    pub views: ChunkImageOptions,
    pub inquiry: PromptConfig,
    pub describer: Arc<dyn Describer>,
    /// Novelty check; with `None` every chunk is described.
    pub novelty: Option<ChunkNovelty>,
}

#[derive(Debug)]
pub struct Reasoned {
    pub ingested: IngestResult,
    pub frames: Vec<FrameAnalysis>,
    pub markers: Vec<Marker>,
    pub totals: Totals,
    pub semantic: SemanticOutcome,
}
