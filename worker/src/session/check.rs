//! Holds a worker to what was asked of a session: a receiver keeps its pictures in memory and trusts
//! their numbers.

use super::{
    LIMITS, SelectedFrame, SelectedView, SessionEvent,
    spec::{ClipSpec, SessionSpec},
    tools::CLIP_PICTURE_BYTES_MAX,
};
use crate::{
    Chunk,
    jpeg::is_baseline,
    said::{FrameCheck, fits},
    views::VIEW_BYTES_MAX,
    wire::ProtocolError,
};

/// Check of the next events of a session.
pub(crate) struct SessionCheck {
    spec: SessionSpec,
    frames: FrameCheck,
    /// The latest selected frame.
    selected: Option<u64>,
    next_clip: u64,
    /// Frames before it belong to clips that came.
    next_frame: u64,
}

impl SessionCheck {
    pub fn new(spec: SessionSpec) -> SessionCheck {
        let frames = FrameCheck::new(u64::MAX, LIMITS.side_px);
        SessionCheck { spec, frames, selected: None, next_clip: 0, next_frame: 0 }
    }

    /// Looks at the next event of the session.
    pub fn look(&mut self, event: &SessionEvent) -> Result<(), ProtocolError> {
        let (asked, is_right, what) = match event {
            SessionEvent::Signals(signals) => (true, self.frames.count(signals), "signals"),
            SessionEvent::Still(still) => (self.spec.stills, self.frames.show(still), "still"),
            SessionEvent::Selected(selected) => {
                let is_right = self.is_next(selected.frame_index) && self.keeps_to(selected);
                self.selected = Some(selected.frame_index);
                (self.spec.wants_selected(), is_right, "selected frame")
            }
            SessionEvent::Clip(clip) => {
                let is_right = self.spec.clip.is_some_and(|spec| self.continues(clip, &spec));
                self.next_clip += 1;
                self.next_frame = clip.first_frame.saturating_add(clip.frames);
                (self.spec.clip.is_some(), is_right, "clip")
            }
            SessionEvent::Closed { frames, .. } => (true, *frames == self.frames.signals(), "end"),
            SessionEvent::Damaged { .. } | SessionEvent::Failed(_) => return Ok(()),
        };
        match (asked, is_right) {
            (false, _) => Err(ProtocolError::Unexpected(what)),
            (true, false) => Err(ProtocolError::Invalid(what)),
            (true, true) => Ok(()),
        }
    }

    /// It is the frame of the latest still, or where none is wanted one whose signals are to come.
    fn is_next(&self, frame: u64) -> bool {
        match self.spec.stills {
            true => self.frames.still() == Some(frame),
            false => {
                frame >= self.frames.signals() && self.selected.is_none_or(|before| before < frame)
            }
        }
    }

    fn keeps_to(&self, selected: &SelectedFrame) -> bool {
        let view = match (&selected.view, &self.spec.view) {
            (None, None) => true,
            (Some(SelectedView::Still), Some(_)) => self.spec.stills,
            (Some(SelectedView::Own { extent, jpeg }), Some(spec)) => {
                fits(*extent, spec.edge_max())
                    && jpeg.len() <= VIEW_BYTES_MAX
                    && is_baseline(jpeg, *extent)
            }
            _ => false,
        };
        let side = selected.novelty.as_ref().map(|novelty| novelty.picture.side);
        view && side == self.spec.novelty.map(|novelty| novelty.side)
    }

    fn continues(&self, clip: &Chunk, spec: &ClipSpec) -> bool {
        let end = clip.first_frame.checked_add(clip.frames);
        let views = &clip.views;
        clip.index == self.next_clip
            && clip.frames > 0
            && clip.first_frame >= self.next_frame
            && end.is_some_and(|end| end <= self.frames.signals())
            && (1..=spec.shown() as usize).contains(&views.len())
            && views.windows(2).all(|pair| pair[0].frame_index < pair[1].frame_index)
            && views.iter().all(|view| {
                (clip.first_frame..end.unwrap_or(0)).contains(&view.frame_index)
                    && fits(view.extent, spec.max_edge)
                    && view.jpeg.len() <= CLIP_PICTURE_BYTES_MAX
                    && is_baseline(&view.jpeg, view.extent)
            })
    }
}
