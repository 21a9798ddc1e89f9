//! Records of frames: the signal of each, and the pictures that are wanted of it.
//!
//! One record per frame, in order and without gaps, for files and live sessions. Decisions are not sent: the
//! receiver derives the same ones from the signals. [`EmbeddingInput`] is the only raw picture that crosses
//! to the server, a small one, as the model that embeds it runs there.

use std::fmt;

use gate::{LUMA_COLUMNS, LUMA_ROWS};
use media::{Dimensions, Signal, Timestamp};

use crate::{
    NoveltySpec,
    pictures::PictureSpec,
    wire::{MESSAGE_BYTES_MAX, WireError},
};

/// Most records in one message: their signals take 50 kB.
pub(crate) const RECORDS_MAX: usize = 512;
/// Most bytes of pictures in one message; a record with more goes alone.
const PICTURE_BYTES: usize = 1 << 20;
/// Most bytes of a view: about those of a 4096x4096 picture of noise.
pub(crate) const VIEW_BYTES_MAX: usize = 15 << 20;
/// Most bytes of a clip's picture: one of [`crate::ClipSpec::EDGE_MAX`] of noise takes half as many.
pub(crate) const CLIP_PICTURE_BYTES_MAX: usize = VIEW_BYTES_MAX / 2;

/// Bytes of a still of the largest picture.
const STILL_BYTES: usize = 48 << 20;

// Each record must fit into a message; pictures of a live session, clips included, are smaller than a file's.
const _: () = assert!(
    STILL_BYTES + VIEW_BYTES_MAX + NoveltyInput::BYTES_MAX + 1024 <= MESSAGE_BYTES_MAX as usize
);

/// Signal and pictures of one frame.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FrameRecord {
    /// Signal of the frame.
    pub signal: Signal,
    /// Exact presentation time, if clips are cut by it.
    pub pts: Option<Timestamp>,
    /// Pictures of the frame.
    pub pictures: FrameImages,
}

/// Pictures of a frame, each only if it is asked for and the frame is to have one.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct FrameImages {
    /// The whole frame, upright.
    pub still: Option<EncodedImage>,
    /// View for a model.
    pub view: Option<FrameView>,
    /// Picture in a clip.
    pub clip: Option<EncodedImage>,
    /// Input of the novelty rule.
    pub novelty: Option<NoveltyInput>,
}

/// JPEG with its size in pixels.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EncodedImage {
    /// Size in pixels.
    pub extent: Dimensions,
    /// The JPEG.
    #[serde(with = "crate::wire::bytes")]
    pub jpeg: Vec<u8>,
}

/// View of a frame.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum FrameView {
    /// The still serves as the view: nothing is cropped or scaled.
    Still,
    /// A separate picture.
    Own(EncodedImage),
}

/// Input for comparing a frame with one that was described; shows only the crop.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(remote = "Self")]
pub struct NoveltyInput {
    /// Mean luma of each of [`NoveltyInput::COLUMNS`] x [`NoveltyInput::ROWS`] equal cells, row by row, full
    /// range: a small new object changes the largest difference more than the sum.
    #[serde(with = "crate::wire::bytes")]
    pub cells: Vec<u8>,
    /// Picture for the embedding model.
    pub picture: EmbeddingInput,
}

/// Square picture for an embedding model; width and height are scaled independently.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct EmbeddingInput {
    /// Width and height in pixels.
    pub side: u32,
    /// Red, green and blue of each pixel, row by row, from 0 to 255.
    #[serde(with = "crate::wire::bytes")]
    pub rgb: Vec<u8>,
}

impl FrameImages {
    /// Returns the picture that a model is shown.
    pub fn shown(&self) -> Option<&EncodedImage> {
        match self.view.as_ref()? {
            FrameView::Still => self.still.as_ref(),
            FrameView::Own(picture) => Some(picture),
        }
    }

    fn bytes(&self) -> usize {
        let own = match &self.view {
            Some(FrameView::Own(picture)) => Some(picture),
            Some(FrameView::Still) | None => None,
        };
        let pictures = [self.still.as_ref(), own, self.clip.as_ref()];
        let novelty = self.novelty.as_ref().map_or(0, |input| input.picture.rgb.len());
        novelty + pictures.into_iter().flatten().map(|picture| picture.jpeg.len()).sum::<usize>()
    }
}

impl NoveltyInput {
    /// Columns of cells.
    pub const COLUMNS: usize = LUMA_COLUMNS;
    /// Rows of cells.
    pub const ROWS: usize = LUMA_ROWS;
    /// Most bytes of an input in a message.
    const BYTES_MAX: usize = Self::COLUMNS * Self::ROWS
        + 3 * (NoveltySpec::SIDE_MAX * NoveltySpec::SIDE_MAX) as usize
        + 16;
}

/// Records gathered into messages.
#[derive(Default)]
pub(crate) struct Gathered {
    messages: Vec<Vec<FrameRecord>>,
    picture_bytes: usize,
}

impl Gathered {
    pub fn push(&mut self, record: FrameRecord) {
        let bytes = record.pictures.bytes();
        self.picture_bytes += bytes;
        match self.messages.last_mut() {
            Some(last) if last.len() < RECORDS_MAX && self.picture_bytes <= PICTURE_BYTES => {
                last.push(record);
            }
            _ => {
                self.picture_bytes = bytes;
                self.messages.push(vec![record]);
            }
        }
    }

    pub fn take(&mut self) -> Vec<Vec<FrameRecord>> {
        std::mem::take(&mut self.messages)
    }
}

/// Checks a worker's records: the receiver keeps their pictures in memory, counts by them and passes them on.
pub(crate) struct RecordCheck {
    frames_max: u64,
    /// Longest side of a still.
    side_max: u32,
    stills: bool,
    spec: PictureSpec,
    /// Index of the next frame, which counts those of earlier jobs too.
    next: u64,
}

impl RecordCheck {
    /// Creates a check of records from frame `next` on.
    pub fn new(next: u64, frames_max: u64, side_max: u32, stills: bool, spec: PictureSpec) -> Self {
        RecordCheck { frames_max, side_max, stills, spec, next }
    }

    /// Returns the number of frames so far, those of earlier jobs included.
    pub fn frames(&self) -> u64 {
        self.next
    }

    /// Checks records: each must be of the next frame, and have only pictures that were asked for.
    pub fn look(&mut self, records: &[FrameRecord]) -> Result<(), WireError> {
        for record in records {
            if record.signal.frame_index != self.next || self.next >= self.frames_max {
                return Err(WireError::Invalid("frame"));
            }
            self.next += 1;
            self.look_at(&record.pictures)?;
        }
        Ok(())
    }

    fn look_at(&self, pictures: &FrameImages) -> Result<(), WireError> {
        let FrameImages { still, view, clip, novelty } = pictures;
        let PictureSpec { view_edge, clip_edge, .. } = self.spec;
        let stills = self.stills.then_some(self.side_max);
        judge("still", still.as_ref(), stills, usize::MAX)?;
        match view {
            Some(FrameView::Own(view)) => judge("view", Some(view), view_edge, VIEW_BYTES_MAX)?,
            // The still has been checked to be a JPEG.
            Some(FrameView::Still) => {
                let still = still.as_ref().ok_or(WireError::Invalid("view"))?;
                bound("view", still, view_edge, VIEW_BYTES_MAX)?;
            }
            None => {}
        }
        judge("clip", clip.as_ref(), clip_edge, CLIP_PICTURE_BYTES_MAX)?;
        let side = novelty.as_ref().map(|input| input.picture.side);
        let asked = self.spec.novelty.map(|spec| spec.side);
        let is_right = side == asked || side.is_none() && view.is_none();
        if is_right { Ok(()) } else { Err(WireError::Invalid("input of novelty")) }
    }
}

/// Checks a picture, if there is one, against the limits asked for, and that it is a JPEG.
fn judge(
    what: &'static str,
    picture: Option<&EncodedImage>,
    side_max: Option<u32>,
    bytes_max: usize,
) -> Result<(), WireError> {
    let Some(picture) = picture else { return Ok(()) };
    bound(what, picture, side_max, bytes_max)?;
    let is_jpeg = crate::jpeg::is_baseline(&picture.jpeg, picture.extent);
    if is_jpeg { Ok(()) } else { Err(WireError::Invalid(what)) }
}

/// Checks a picture's longest side and bytes; a picture without a `side_max` was not asked for.
fn bound(
    what: &'static str,
    picture: &EncodedImage,
    side_max: Option<u32>,
    bytes_max: usize,
) -> Result<(), WireError> {
    let EncodedImage { extent, jpeg } = picture;
    let side_max = side_max.ok_or(WireError::Unexpected(what))?;
    let fits = extent.width.max(extent.height) <= side_max && jpeg.len() <= bytes_max;
    if fits { Ok(()) } else { Err(WireError::Invalid(what)) }
}

/// Omits the JPEG, which must not fill a log.
impl fmt::Debug for EncodedImage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EncodedImage")
            .field("extent", &self.extent)
            .field("jpeg_bytes", &self.jpeg.len())
            .finish_non_exhaustive()
    }
}

/// Omits the samples.
impl fmt::Debug for NoveltyInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NoveltyInput").field("side", &self.picture.side).finish_non_exhaustive()
    }
}

/// Omits the samples.
impl fmt::Debug for EmbeddingInput {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EmbeddingInput").field("side", &self.side).finish_non_exhaustive()
    }
}

media::serde_checked!(NoveltyInput, |input| {
    let side = input.picture.side;
    input.cells.len() == NoveltyInput::COLUMNS * NoveltyInput::ROWS
        && (NoveltySpec { side }).within_bounds().side == side
        && input.picture.rgb.len() == 3 * (side * side) as usize
});

#[cfg(test)]
mod tests;
