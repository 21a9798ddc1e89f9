//! Chunks of a source with a few pictures of each: what a model is shown of it.
//!
//! A chunk is a run of analysed frames without gaps. Its views are frames that the gate selected,
//! those with the strongest reasons first, and then frames at even distances; they come in the
//! order of time, upright, cropped, scaled down and as JPEG. Pixels stay in the worker.

use gate::SelectionReason;
use media::{Dimensions, Rotation, Score, Signal};

use crate::{EncodedImage, FrameRecord, FrameView, NoveltyInput, NoveltySpec, still::CropScale};

/// Options of the pictures of a source that a model is to be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct ChunkImageOptions {
    /// Division of the analysed frames into chunks.
    pub chunks: ChunkBoundary,
    /// Most views of a chunk, from 1 to [`ChunkImageOptions::PER_CHUNK_MAX`].
    pub per_chunk: u8,
    /// Longest edge of a view in pixels, from [`ChunkImageOptions::EDGE_MIN`] to
    /// [`ChunkImageOptions::EDGE_MAX`]; `None` is the latter. A smaller picture stays as it is.
    pub max_edge: Option<u32>,
    /// The part of the picture that is shown; `None` is all of it.
    pub crop: Option<Crop>,
    /// Give what novelty is told from with each view.
    pub novelty: Option<NoveltySpec>,
}

media::serde_checked!(ChunkImageOptions, |options| options.within_bounds() == options);

/// Boundaries of chunks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum ChunkBoundary {
    /// So many analysed frames, from [`ChunkBoundary::FRAMES_MIN`] to [`ChunkBoundary::FRAMES_MAX`].
    Frames(u32),
    /// Clips of media time, each from a multiple of its length to the next. Spans without a frame
    /// make no chunk.
    Span {
        /// Their length, from 1 to [`ChunkBoundary::SPAN_MS_MAX`].
        ms: u32,
    },
}

impl ChunkImageOptions {
    /// Most views of a chunk.
    pub const PER_CHUNK_MAX: u8 = 4;
    /// Shortest bound on the longest edge of a view.
    pub const EDGE_MIN: u32 = 64;
    /// Longest edge of a view.
    pub const EDGE_MAX: u32 = 4096;

    /// The same options, each number that lies beyond its bounds replaced by the nearest within.
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

    /// Returns the part of an upright picture that is shown, and its size once it is scaled.
    pub fn images_per_chunk(&self, picture: Dimensions) -> (Region, Dimensions) {
        let cut = CropScale::new(picture, Rotation::None, self.crop, self.edge_max());
        (cut.region(), cut.extent())
    }

    /// Longest edge that a view may have.
    pub(crate) fn edge_max(&self) -> u32 {
        self.max_edge.unwrap_or(Self::EDGE_MAX)
    }
}

impl ChunkBoundary {
    /// Fewest frames of a chunk other than the last.
    pub const FRAMES_MIN: u32 = 5;
    /// Most frames of a chunk that is cut by their number.
    pub const FRAMES_MAX: u32 = 500;
    /// Longest span of a chunk that is cut by time.
    pub const SPAN_MS_MAX: u32 = 60_000;
}

/// A part of the upright picture in fractions of its sides; lies inside it and is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct Crop {
    x: Score,
    y: Score,
    width: Score,
    height: Score,
}

media::serde_checked!(Crop, |crop| Crop::new(crop.x, crop.y, crop.width, crop.height).is_some());

/// A rectangle of whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// Columns to its left.
    pub x: u32,
    /// Rows above it.
    pub y: u32,
    /// Columns, at least 1.
    pub width: u32,
    /// Rows, at least 1.
    pub height: u32,
}

impl Crop {
    /// The part from `x`, `y` on; `None` where it is empty or reaches outside the picture.
    pub fn new(x: Score, y: Score, width: Score, height: Score) -> Option<Crop> {
        let fits = |from: Score, len: Score| {
            len > Score::ZERO && from.millionths() + len.millionths() <= Score::SCALE
        };
        (fits(x, width) && fits(y, height)).then_some(Crop { x, y, width, height })
    }

    /// Its left and upper edge, its width and its height.
    pub fn sides(&self) -> [Score; 4] {
        [self.x, self.y, self.width, self.height]
    }

    /// The pixels of an upright picture that it touches.
    pub fn region(&self, picture: Dimensions) -> Region {
        let (x, width) = touched(self.x, self.width, picture.width);
        let (y, height) = touched(self.y, self.height, picture.height);
        Region { x, y, width, height }
    }
}

/// First and number of the `side` pixels that the part of it from `from` on touches.
fn touched(from: Score, len: Score, side: u32) -> (u32, u32) {
    let (side, scale) = (u64::from(side), u64::from(Score::SCALE));
    let start = u64::from(from.millionths());
    let first = start * side / scale;
    let end = ((start + u64::from(len.millionths())) * side).div_ceil(scale);
    (first as u32, (end - first) as u32)
}

impl Region {
    /// All of a picture.
    pub fn all(picture: Dimensions) -> Region {
        Region { x: 0, y: 0, width: picture.width, height: picture.height }
    }

    /// Its size.
    pub fn extent(&self) -> Dimensions {
        Dimensions { width: self.width, height: self.height }
    }
}

/// Consecutive analysed frames and some pictures of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FrameChunk<V = ModelImage> {
    /// Position among the chunks, from 0.
    pub index: u64,
    /// Index of its first analysed frame: of a file, the frame after the last one of the chunk before.
    pub first_frame: u64,
    /// Analysed frames in it, at least 1.
    pub frames: u64,
    /// Presentation time of its first frame.
    pub start_pts_ms: i64,
    /// Presentation time of its last frame.
    pub end_pts_ms: i64,
    /// Pictures in the order of time; of a file, at least 1.
    pub views: Vec<V>,
}

impl<V> FrameChunk<V> {
    /// Chunk that begins with a frame, which is not counted yet.
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

/// A frame as a model is shown it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelImage {
    /// Position among the analysed frames.
    pub frame_index: u64,
    /// Presentation time in whole milliseconds.
    pub pts_ms: i64,
    /// Reason of the gate for selecting the frame; `None` for one shown for its place in the chunk.
    pub reason: Option<SelectionReason>,
    /// The picture.
    pub picture: EncodedImage,
    /// Input of novelty; there where it was asked for.
    pub novelty: Option<NoveltyInput>,
}

impl ModelImage {
    /// Takes the view of a frame, selected for a reason or not, where it has one.
    pub fn take(record: &mut FrameRecord) -> Option<ModelImage> {
        let pictures = &mut record.pictures;
        let picture = match pictures.view.take()? {
            FrameView::Own(picture) => picture,
            FrameView::Still => pictures.still.clone()?,
        };
        let Signal { frame_index, pts_ms, .. } = record.signal;
        Some(ModelImage {
            frame_index,
            pts_ms,
            reason: None,
            picture,
            novelty: pictures.novelty.take(),
        })
    }
}

#[cfg(test)]
mod tests;
