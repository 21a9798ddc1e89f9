//! Holds a worker to what was asked of a session: a receiver keeps its pictures in memory and trusts
//! their numbers.

use media::Extent;

use super::{
    SelectedFrame, SelectedView, SessionEvent,
    spec::{ClipSpec, SessionSpec},
    tools::CLIP_PICTURE_BYTES_MAX,
};
use crate::{Chunk, jpeg::is_baseline, views::VIEW_BYTES_MAX, wire::ProtocolError};

/// What the next events of a session must be like.
pub(crate) struct SessionCheck {
    spec: SessionSpec,
    /// Signals that came.
    signals: u64,
    /// Frame of the latest still.
    still: Option<u64>,
    next_clip: u64,
    /// Frames before it belong to clips that came.
    next_frame: u64,
}

impl SessionCheck {
    pub fn new(spec: SessionSpec) -> SessionCheck {
        SessionCheck { spec, signals: 0, still: None, next_clip: 0, next_frame: 0 }
    }

    /// Looks at the next event of the session.
    pub fn look(&mut self, event: &SessionEvent) -> Result<(), ProtocolError> {
        let (asked, is_right, what) = match event {
            SessionEvent::Signals(signals) => {
                self.signals += signals.len() as u64;
                return Ok(());
            }
            SessionEvent::Still(still) => {
                self.still = Some(still.frame_index);
                (self.spec.stills, is_baseline(&still.jpeg, still.extent), "still")
            }
            SessionEvent::Selected(selected) => {
                (self.spec.wants_selected(), self.keeps_to(selected), "selected frame")
            }
            SessionEvent::Clip(clip) => {
                let is_right = self.spec.clip.is_some_and(|spec| self.continues(clip, &spec));
                self.next_clip += 1;
                self.next_frame = clip.first_frame.saturating_add(clip.frames);
                (self.spec.clip.is_some(), is_right, "clip")
            }
            SessionEvent::Damaged { .. }
            | SessionEvent::Closed { .. }
            | SessionEvent::Failed(_) => {
                return Ok(());
            }
        };
        match (asked, is_right) {
            (false, _) => Err(ProtocolError::Unexpected(what)),
            (true, false) => Err(ProtocolError::Invalid(what)),
            (true, true) => Ok(()),
        }
    }

    fn keeps_to(&self, selected: &SelectedFrame) -> bool {
        let view = match (&selected.view, &self.spec.view) {
            (None, None) => true,
            (Some(SelectedView::Still), Some(_)) => self.still == Some(selected.frame_index),
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
            && end.is_some_and(|end| end <= self.signals)
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

fn fits(extent: Extent, edge_max: u32) -> bool {
    extent.width.max(extent.height) <= edge_max
}
