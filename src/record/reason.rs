//! Reasoning: a source's chunks described by models while it is decoded.
//!
//! `chunk_tracker` decides what is asked and in which order, without a clock or a socket; `driver`
//! does the asking and records the answers. Knows no backend: whoever asks is a [`Describer`].

mod chunk_dedup;
mod chunk_tracker;
mod describer;
mod driver;
mod model_describer;
mod retry_policy;

pub use chunk_dedup::{ChunkComparer, ChunkNovelty};
pub use chunk_tracker::{ChunkPrompt, FrameRange, PromptConfig, Totals};
pub use describer::{ChunkDescription, DescribeError, DescribeFuture, Describer, FailedAttempts};
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
    /// The source, and how it is decoded.
    pub ingest: IngestJob,
    /// Questions to models.
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
    /// Rule by which frames are grouped into windows.
    pub windowing: Windowing,
    /// Rule by which a marker is exact or confirmed.
    pub markers: MarkerConfig,
    /// The caller's index.
    pub index_name: Option<Label>,
    /// The caller's own schema says what an answer holds: events carry its object.
    pub keeps_output: bool,
}

/// Questions to models about a source.
pub enum ModelStage {
    /// Nothing: the gate decides alone.
    Off,
    /// Nothing, for want of a model; the reason is told.
    Missing(String),
    /// Questions to describe each chunk.
    Chunks(DescriptionOptions),
}

/// Settings by which the chunks of a source are described.
pub struct DescriptionOptions {
    /// Settings of chunks and their images.
    pub views: ChunkImageOptions,
    /// Question about each chunk.
    pub inquiry: PromptConfig,
    /// Way to the models.
    pub describer: Arc<dyn Describer>,
    /// Novelty check; `None` has every chunk described.
    pub novelty: Option<ChunkNovelty>,
}

/// Result of a reasoning.
#[derive(Debug)]
pub struct Reasoned {
    /// The decoding.
    pub ingested: IngestResult,
    /// Every frame.
    pub frames: Vec<FrameAnalysis>,
    /// The markers that were emitted.
    pub markers: Vec<Marker>,
    /// The figures over all chunks.
    pub totals: Totals,
    /// Outcome of asking models.
    pub semantic: SemanticOutcome,
}
