//! Pictures to embeddings, and whether a picture needs a description of its own.
//!
//! Embeddings come from an ONNX model in this process or from a sidecar on a socket; the rule is a
//! function of embeddings, cell means and media time. Nothing in here can fail a stream: whatever
//! goes wrong is answered by describing the picture. Knows no run, no route and no timeline.
#![forbid(unsafe_code)]

mod backoff;
mod batch;
mod cell_means;
mod client;
#[cfg(test)]
#[path = "../../tests/support/corpus.rs"]
mod corpus;
mod embedder;
mod embedding;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod novelty_rule;
mod onnx;
pub mod protocol;
mod settings;

pub use batch::{BatchCounts, BatchLimits, Batcher};
pub use cell_means::{COLUMNS, CellMeans, ROWS};
pub use client::{DEADLINE, SidecarClient, SidecarCounts, SidecarError};
pub use embedder::{Embedder, EmbedderCounts, EmbeddingModel};
pub use embedding::{DIMENSIONS_MAX, EmbedError, Embedding, ModelInputImage};
pub use novelty_rule::{FrameFeatures, NoveltyDetector, NoveltyReason, NoveltyVerdict, ReuseRule};
pub use onnx::{ExecutionProvider, OnnxConfig, OnnxError, OnnxModel, RUNTIME_LIBRARY};
pub use settings::{PreprocessConfig, SettingsError};
