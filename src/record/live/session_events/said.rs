//! Output of a media worker that the session's task handles.

use bytes::Bytes;
use worker::{FrameChunk, JobFault, NoveltyInput};

/// Worker output for the session's task.
#[derive(Debug)]
pub enum SessionOutput {
    /// Selected frame, as models are shown it.
    View(LiveModelImage),
    /// Clip, and true if the picture was repeating at its end.
    Clip(FrameChunk<Shot>, bool),
    /// The worker has sent all output; the name of the decoder.
    Closed(String),
    /// Too many signals wait to be recorded.
    Behind,
    /// The worker gave the session up.
    Failed(JobFault),
    /// The worker process ended; the reason.
    WorkerEnded(String),
}

/// Presentation time and JPEG of a clip's picture.
pub type Shot = (i64, Bytes);

/// A selected frame to describe.
#[derive(Debug)]
pub struct LiveModelImage {
    /// Position among the session's frames.
    pub frame_index: u64,
    /// Presentation time of the frame, in ms.
    pub pts_ms: i64,
    /// JPEG of the image that models are shown.
    pub jpeg: Bytes,
    /// Features that novelty is computed from.
    pub novelty: Option<NoveltyInput>,
    /// True while the session's pictures repeat.
    pub is_looping: bool,
}

impl SessionOutput {
    /// Bytes of the pictures in the output.
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
