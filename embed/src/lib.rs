//! Pictures to embeddings, and whether a picture needs a description of its own.
//!
//! Embeddings come from an ONNX model in this process or from a sidecar on a socket; the rule is a
//! function of embeddings, cell means and media time. Nothing in here can fail a stream: whatever
//! goes wrong is answered by describing the picture. Knows no run, no route and no timeline.
#![forbid(unsafe_code)]

mod cells;
mod embedding;
mod reuse;

pub use cells::{COLUMNS, CellMeans, ROWS};
pub use embedding::{DIMENSIONS_MAX, EmbedError, Embedding, Picture};
pub use reuse::{Newness, Novelty, Reuse, ReuseRule, Seen};
