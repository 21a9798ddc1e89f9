//! Chunks of a source and the views of each: pictures for a model.
//!
//! A chunk is a run of analysed frames without gaps. Its views are frames that the gate selected, those with
//! the strongest reasons first, then frames at even distances. They are ordered by time, upright, cropped,
//! scaled down and JPEG-encoded. Raw pixels stay in the worker.

use gate::SelectionReason;
use media::{Dimensions, Rotation, Score, Signal};

use crate::{EncodedImage, FrameRecord, FrameView, NoveltyInput, NoveltySpec, still::CropScale};

/// Options of the chunks of a source and of their views.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct ChunkImageOptions {
    /// Division of the analysed frames into chunks.
    pub chunks: ChunkBoundary,
    /// Most views of a chunk, from 1 to [`ChunkImageOptions::PER_CHUNK_MAX`].
    pub per_chunk: u8,
    /// Longest edge of a view in pixels, from [`ChunkImageOptions::EDGE_MIN`] to
    /// [`ChunkImageOptions::EDGE_MAX`]; `None` is the latter. Smaller pictures are not scaled up.
    pub max_edge: Option<u32>,
    /// Part of the picture that views show; `None` is all of it.
    pub crop: Option<Crop>,
    /// Adds the input of the novelty rule to each view.
    pub novelty: Option<NoveltySpec>,
}

media::serde_checked!(ChunkImageOptions, |options| options.within_bounds() == options);

/// Boundaries of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ChunkBoundary {
    /// This many analysed frames, from [`ChunkBoundary::FRAMES_MIN`] to [`ChunkBoundary::FRAMES_MAX`].
    Frames(u32),
    /// Spans of media time, each from one multiple of its length to the next. Spans without a frame make no
    /// chunk.
    Span {
        /// Length of a span in milliseconds, from 1 to [`ChunkBoundary::SPAN_MS_MAX`].
        ms: u32,
    },
}

impl ChunkImageOptions {
    /// Most views of a chunk.
    pub const PER_CHUNK_MAX: u8 = 4;
    /// Smallest `max_edge`, in pixels.
    pub const EDGE_MIN: u32 = 64;
    /// Largest `max_edge`, in pixels.
    pub const EDGE_MAX: u32 = 4096;

    /// Returns options of views of the whole picture, without input of the novelty rule.
    pub fn new(chunks: ChunkBoundary, per_chunk: u8) -> ChunkImageOptions {
        ChunkImageOptions { chunks, per_chunk, max_edge: None, crop: None, novelty: None }
    }

    /// Returns the options with each number clamped to its bounds.
    pub fn within_bounds(self) -> ChunkImageOptions {
        let chunks = match self.chunks {
            ChunkBoundary::Frames(frames) => ChunkBoundary::Frames(
                frames.clamp(ChunkBoundary::FRAMES_MIN, ChunkBoundary::FRAMES_MAX),
            ),
            ChunkBoundary::Span { ms } => {
                ChunkBoundary::Span { ms: ms.clamp(1, ChunkBoundary::SPAN_MS_MAX) }
            }
        };
        ChunkImageOptions {
            chunks,
            per_chunk: self.per_chunk.clamp(1, Self::PER_CHUNK_MAX),
            max_edge: self.max_edge.map(|edge| edge.clamp(Self::EDGE_MIN, Self::EDGE_MAX)),
            crop: self.crop,
            novelty: self.novelty.map(NoveltySpec::within_bounds),
        }
    }

    /// Returns the part of an upright picture that views show, and its size after scaling.
    pub fn images_per_chunk(&self, picture: Dimensions) -> (Region, Dimensions) {
        let cut = CropScale::new(picture, Rotation::None, self.crop, self.edge_max());
        (cut.region, cut.extent)
    }

    /// Returns the longest edge of a view, in pixels.
    pub(crate) fn edge_max(&self) -> u32 {
        self.max_edge.unwrap_or(Self::EDGE_MAX)
    }
}

impl ChunkBoundary {
    /// Fewest frames of a chunk, except the last one.
    pub const FRAMES_MIN: u32 = 5;
    /// Most frames of a chunk bounded by their number.
    pub const FRAMES_MAX: u32 = 500;
    /// Longest span of a chunk bounded by time, in milliseconds.
    pub const SPAN_MS_MAX: u32 = 60_000;
}

/// Part of the upright picture, in fractions of its sides; lies inside it and is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Crop {
    x: Score,
    y: Score,
    width: Score,
    height: Score,
}

media::serde_checked!(Crop, |crop| Crop::new(crop.x, crop.y, crop.width, crop.height).is_some());

/// Rectangle of whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Columns left of the rectangle.
    pub x: u32,
    /// Rows above the rectangle.
    pub y: u32,
    /// Columns, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
}

impl Crop {
    /// Creates a crop; `None` if it is empty or reaches outside the picture.
    pub fn new(x: Score, y: Score, width: Score, height: Score) -> Option<Crop> {
        let fits = |from: Score, len: Score| {
            len > Score::ZERO && from.millionths() + len.millionths() <= Score::SCALE
        };
        (fits(x, width) && fits(y, height)).then_some(Crop { x, y, width, height })
    }

    /// Returns the left edge, the upper edge, the width and the height.
    pub fn sides(&self) -> [Score; 4] {
        [self.x, self.y, self.width, self.height]
    }

    /// Returns the pixels of an upright picture that the crop touches.
    pub fn region(&self, picture: Dimensions) -> Region {
        let (x, width) = touched(self.x, self.width, picture.width);
        let (y, height) = touched(self.y, self.height, picture.height);
        Region { x, y, width, height }
    }
}

/// Returns the first and the number of the `side` pixels that the interval of `len` from `from` touches.
fn touched(from: Score, len: Score, side: u32) -> (u32, u32) {
    let (side, scale) = (u64::from(side), u64::from(Score::SCALE));
    let start = u64::from(from.millionths());
    let first = start * side / scale;
    let end = ((start + u64::from(len.millionths())) * side).div_ceil(scale);
    (first as u32, (end - first) as u32)
}

impl Region {
    /// Returns the rectangle that covers a picture.
    pub fn all(picture: Dimensions) -> Region {
        Region { x: 0, y: 0, width: picture.width, height: picture.height }
    }

    /// Returns the size of the rectangle.
    pub fn extent(&self) -> Dimensions {
        Dimensions { width: self.width, height: self.height }
    }
}

/// Consecutive analysed frames and some views of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameChunk<V = ModelImage> {
    /// Index of the chunk, from 0.
    pub index: u64,
    /// Index of the chunk's first analysed frame; in a file it follows the last one of the chunk before.
    pub first_frame: u64,
    /// Number of analysed frames, at least 1.
    pub frames: u64,
    /// Presentation time of the first frame.
    pub start_pts_ms: i64,
    /// Presentation time of the last frame.
    pub end_pts_ms: i64,
    /// Views ordered by time; in a file at least 1.
    pub views: Vec<V>,
}

impl<V> FrameChunk<V> {
    /// Starts a chunk at a frame; the frame itself is not counted yet.
    pub(crate) fn begin(index: u64, signal: &Signal) -> FrameChunk<V> {
        FrameChunk {
            index,
            first_frame: signal.frame_index,
            frames: 0,
            start_pts_ms: signal.pts_ms,
            end_pts_ms: signal.pts_ms,
            views: Vec::new(),
        }
    }
}

/// View of a frame for a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelImage {
    /// Index among the analysed frames.
    pub frame_index: u64,
    /// Presentation time in whole milliseconds.
    pub pts_ms: i64,
    /// Reason for which the gate selected the frame; `None` if the view was picked for its position.
    pub reason: Option<SelectionReason>,
    /// JPEG of the view.
    pub picture: EncodedImage,
    /// Input of the novelty rule, if it was asked for.
    pub novelty: Option<NoveltyInput>,
}

impl ModelImage {
    /// Takes the view out of a record, if it has one, with a `reason` of `None`.
    pub fn take(record: &mut FrameRecord) -> Option<ModelImage> {
        let pictures = &mut record.pictures;
        let picture = match pictures.view.take()? {
            FrameView::Own(picture) => picture,
            FrameView::Still => pictures.still.clone()?,
        };
        let Signal { frame_index, pts_ms, .. } = record.signal;
        let (reason, novelty) = (None, pictures.novelty.take());
        Some(ModelImage { frame_index, pts_ms, reason, picture, novelty })
    }
}

#[cfg(test)]
mod tests;
