//! Output of a media worker that the session's task hears of.

use bytes::Bytes;
use worker::{FrameChunk, JobFault, NoveltyInput};

/// Worker output that becomes an event.
#[derive(Debug)]
pub enum SessionOutput {
    /// A selected frame as a model is shown it.
    View(LiveModelImage),
    /// A clip, and whether the picture kept coming back by its end.
    Clip(FrameChunk<Shot>, bool),
    /// Everything was said; the name of the decoder.
    Closed(String),
    /// More signals wait to be recorded than may.
    Behind,
    /// The session ended early.
    Failed(JobFault),
    /// The worker ended.
    WorkerEnded(String),
}

/// Presentation time and JPEG of a clip's picture.
pub type Shot = (i64, Bytes);

/// A selected frame to describe.
#[derive(Debug)]
pub struct LiveModelImage {
    /// Position among the session's frames.
    pub frame_index: u64,
    /// Its presentation time.
    pub pts_ms: i64,
    /// JPEG of the image that models are shown.
    pub jpeg: Bytes,
    /// Features that novelty is computed from.
    pub novelty: Option<NoveltyInput>,
    /// The picture keeps coming back.
    pub is_looping: bool,
}

impl SessionOutput {
    /// Bytes of its pictures.
    pub(super) fn bytes(&self) -> usize {
        match self {
            SessionOutput::View(view) => {
                let novelty = view.novelty.as_ref();
                view.jpeg.len() + novelty.map_or(0, |novelty| novelty.picture.rgb.len())
            }
            SessionOutput::Clip(clip, _) => clip.views.iter().map(|(_, jpeg)| jpeg.len()).sum(),
            SessionOutput::Closed(_)
            | SessionOutput::Behind
            | SessionOutput::Failed(_)
            | SessionOutput::WorkerEnded(_) => 0,
        }
    }
}
