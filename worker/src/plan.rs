//! Selection of the pictures of each frame: a function of the signals and decisions so far. Pure.

pub(crate) mod chunks;
pub(crate) mod clips;

use gate::SelectionReason;
use media::{Signal, Timestamp};

use crate::{JobOptions, SessionSpec, pictures::PictureKinds};
use chunks::ChunkBuilder;
use clips::ClipSampler;

pub(crate) struct Plan {
    stills: bool,
    /// True if views are of selected frames.
    shows_selected: bool,
    /// Selects the frames of each chunk that become views.
    chunks: Option<ChunkBuilder<()>>,
    clips: Option<ClipSampler<()>>,
}

impl Plan {
    pub fn of_job(options: &JobOptions) -> Plan {
        let chunks = options.views.map(ChunkBuilder::new);
        Plan { stills: options.stills, shows_selected: false, chunks, clips: None }
    }

    pub fn of_session(spec: &SessionSpec) -> Plan {
        let (shows_selected, clips) = (spec.wants_selected(), spec.clip.map(ClipSampler::new));
        Plan { stills: spec.stills, shows_selected, chunks: None, clips }
    }

    /// Returns the pictures wanted of the next frame; a frame without a time is in no clip.
    pub fn offer(
        &mut self,
        signal: &Signal,
        pts: Option<Timestamp>,
        selected: Option<SelectionReason>,
    ) -> PictureKinds {
        let mut view = self.shows_selected && selected.is_some();
        if let Some(chunker) = &mut self.chunks {
            chunker.begin(signal);
            view = chunker.wants(selected);
            if view {
                chunker.take(signal.frame_index, selected, ());
            }
            chunker.end();
        }
        let clip = match (&mut self.clips, pts) {
            (Some(clipper), Some(pts)) => clipper.offer(signal, pts).is_wanted,
            _ => false,
        };
        PictureKinds { still: self.stills && selected.is_some(), view, clip }
    }
}
