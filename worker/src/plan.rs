//! Choice of the pictures of each frame: a function of the signals and the decisions so far. Pure.

pub(crate) mod chunks;
pub(crate) mod clips;

use gate::Reason;
use media::{Signal, Timestamp};

use crate::{JobOptions, SessionSpec, pictures::Wanted};
use chunks::Chunker;
use clips::Clipper;

/// Choice of a worker for one source.
pub(crate) struct Plan {
    stills: bool,
    views: Views,
    clips: Option<Clipper<()>>,
}

/// Frames of which views are made.
enum Views {
    None,
    /// Those that the gate selects.
    Selected,
    /// Those that are shown of a chunk.
    OfChunks(Chunker<()>),
}

impl Plan {
    pub fn of_job(options: &JobOptions) -> Plan {
        let views = options.views.map_or(Views::None, |it| Views::OfChunks(Chunker::new(it)));
        Plan { stills: options.stills, views, clips: None }
    }

    pub fn of_session(spec: &SessionSpec) -> Plan {
        let views = if spec.wants_selected() { Views::Selected } else { Views::None };
        Plan { stills: spec.stills, views, clips: spec.clip.map(Clipper::new) }
    }

    /// Chooses of the next frame; clips are of frames with a time alone.
    pub fn offer(
        &mut self,
        signal: &Signal,
        pts: Option<Timestamp>,
        selected: Option<Reason>,
    ) -> Wanted {
        let view = match &mut self.views {
            Views::None => false,
            Views::Selected => selected.is_some(),
            Views::OfChunks(chunker) => {
                chunker.begin(signal);
                let is_wanted = chunker.wants(selected);
                if is_wanted {
                    chunker.take(signal.frame_index, selected, ());
                }
                chunker.end();
                is_wanted
            }
        };
        let clip = match (&mut self.clips, pts) {
            (Some(clipper), Some(pts)) => clipper.offer(signal, pts).is_wanted,
            _ => false,
        };
        Wanted { still: self.stills && selected.is_some(), view, clip }
    }
}
