//! Holds a worker to the chunks that were asked of it, and its views to what they say they are: a
//! receiver keeps them in memory, sends them on and trusts their numbers.

use super::{Chunk, Chunking, VIEW_BYTES_MAX, ViewOptions};
use crate::{Resume, jpeg::is_baseline, said::fits};

/// Check of the next chunk of a job.
pub(crate) struct ChunkCheck {
    options: Option<ViewOptions>,
    next_index: u64,
    next_frame: u64,
}

impl ChunkCheck {
    pub fn new(options: Option<ViewOptions>) -> ChunkCheck {
        ChunkCheck { options, next_index: 0, next_frame: 0 }
    }

    /// The same, of a job that goes on from another.
    pub fn after(self, resume: &Resume) -> ChunkCheck {
        ChunkCheck { next_index: resume.chunks, next_frame: resume.next_frame(), ..self }
    }

    /// Chunks were asked for.
    pub fn is_asked(&self) -> bool {
        self.options.is_some()
    }

    /// Takes a chunk; returns true where it follows the one before, ends with the latest of so many `signals` and
    /// keeps to what was asked for.
    pub fn take(&mut self, chunk: &Chunk, signals: u64) -> bool {
        let follows = chunk.index == self.next_index
            && chunk.first_frame == self.next_frame
            && chunk.frames > 0
            && chunk.first_frame.checked_add(chunk.frames) == Some(signals);
        self.next_index += 1;
        self.next_frame = signals;
        follows && self.options.is_some_and(|options| keeps_to(chunk, &options))
    }
}

fn keeps_to(chunk: &Chunk, options: &ViewOptions) -> bool {
    let is_short = match options.chunks {
        Chunking::Frames(frames) => chunk.frames <= u64::from(frames),
        Chunking::Span { .. } => true,
    };
    let frames = chunk.first_frame..chunk.first_frame + chunk.frames;
    let views = &chunk.views;
    is_short
        && (1..=usize::from(options.per_chunk)).contains(&views.len())
        && views.windows(2).all(|pair| pair[0].frame_index < pair[1].frame_index)
        && views.iter().all(|view| {
            frames.contains(&view.frame_index)
                && fits(view.extent, options.edge_max())
                && view.jpeg.len() <= VIEW_BYTES_MAX
                && is_baseline(&view.jpeg, view.extent)
                && view.novelty.as_ref().map(|input| input.picture.side)
                    == options.novelty.map(|spec| spec.side)
        })
}
