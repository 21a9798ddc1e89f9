//! Image embeddings, and the rule that decides if a picture needs a description of its own.
//!
//! Embeddings come from an ONNX model in this process or from a sidecar over TCP; the rule is a function of
//! embeddings, cell means and media time. No failure here ends a stream: after any of them the picture is
//! described. Independent of runs, routes and the timeline.
#![forbid(unsafe_code)]

mod backoff;
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

pub use cell_means::{COLUMNS, CellMeans, ROWS};
pub use client::{DEADLINE, SidecarClient, SidecarError};
pub use embedder::{BatchLimits, Embedder, EmbedderCounts, EmbeddingModel};
pub use embedding::{DIMENSIONS_MAX, EmbedError, Embedding, ModelInputImage};
pub use novelty_rule::{FrameFeatures, NoveltyDetector, NoveltyReason, NoveltyVerdict, ReuseRule};
pub use onnx::{ExecutionProvider, OnnxConfig, OnnxError, OnnxModel, RUNTIME_LIBRARY};
