//! Inputs of models and of the novelty rule from a selected frame.
//!
//! [`EmbeddingInput`] is the one thing that crosses to the server as samples: a small picture of a
//! selected frame, because the model that embeds it runs there.

use std::fmt;

use gate::{LUMA_COLUMNS, LUMA_ROWS};
use media::{Extent, Timestamp};

use crate::{
    NoveltySpec,
    wire::{ProtocolError, Reader, Wire, wire_enum, wire_struct},
};

/// A selected frame of a live session; comes right after its still, where stills are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelectedFrame {
    /// Position among the session's frames.
    pub frame_index: u64,
    /// Presentation time, exact.
    pub pts: Timestamp,
    /// View of it for a model; there where views were asked for.
    pub view: Option<SelectedView>,
    /// Input of novelty; there where it was asked for.
    pub novelty: Option<NoveltyInput>,
}

/// The view of a selected frame.
#[derive(Clone, PartialEq, Eq)]
pub enum SelectedView {
    /// Its still, which came just before: nothing is cut off and nothing scaled.
    Still,
    /// A picture of its own.
    Own {
        /// Size of the picture.
        extent: Extent,
        /// The picture.
        jpeg: Vec<u8>,
    },
}

/// Without the picture, which has no place in a log.
impl fmt::Debug for SelectedView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SelectedView::Still => f.write_str("Still"),
            SelectedView::Own { extent, jpeg } => f
                .debug_struct("Own")
                .field("extent", extent)
                .field("jpeg_bytes", &jpeg.len())
                .finish_non_exhaustive(),
        }
    }
}

/// Input of the comparison of a frame with one that was described; of the session's crop alone.
#[derive(Clone, PartialEq, Eq)]
pub struct NoveltyInput {
    /// Mean luma of each of [`NoveltyInput::COLUMNS`] x [`NoveltyInput::ROWS`] equal parts, row by row,
    /// full range: a small new object moves the largest difference more than the sum.
    pub cells: Vec<u8>,
    /// The picture for the embedding model.
    pub picture: EmbeddingInput,
}

/// A square picture for an embedding model, each side scaled on its own.
#[derive(Clone, PartialEq, Eq)]
pub struct EmbeddingInput {
    /// Width and height in pixels.
    pub side: u32,
    /// Red, green and blue of each pixel, row by row, from 0 to 255.
    pub rgb: Vec<u8>,
}

impl NoveltyInput {
    /// Columns of cells.
    pub const COLUMNS: usize = LUMA_COLUMNS;
    /// Rows of cells.
    pub const ROWS: usize = LUMA_ROWS;
    /// Bytes of the largest, as it is sent.
    pub(crate) const BYTES_MAX: usize = Self::COLUMNS * Self::ROWS
        + 3 * (NoveltySpec::SIDE_MAX * NoveltySpec::SIDE_MAX) as usize
        + 16;
}

/// Without the samples.
impl fmt::Debug for NoveltyInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoveltyInput").field("side", &self.picture.side).finish_non_exhaustive()
    }
}

/// Without the samples.
impl fmt::Debug for EmbeddingInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingInput").field("side", &self.side).finish_non_exhaustive()
    }
}

wire_struct!(SelectedFrame { frame_index, pts, view, novelty });
wire_enum!(SelectedView, "view", { 1 => Still, 2 => Own { extent, jpeg } });

/// Its sizes are implied: the number of cells is fixed, and that of samples follows from the side.
impl Wire for NoveltyInput {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.cells);
        self.picture.side.put(out);
        out.extend_from_slice(&self.picture.rgb);
    }

    fn get(from: &mut Reader<'_>) -> Result<NoveltyInput, ProtocolError> {
        let cells = from.take(NoveltyInput::COLUMNS * NoveltyInput::ROWS, "cells")?.to_vec();
        let side = u32::get(from)?;
        if (NoveltySpec { side }).within_bounds().side != side {
            return Err(ProtocolError::Invalid("side"));
        }
        let rgb = from.take(3 * (side * side) as usize, "embedding input")?.to_vec();
        Ok(NoveltyInput { cells, picture: EmbeddingInput { side, rgb } })
    }
}
