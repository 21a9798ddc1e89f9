//! The place of one picture in memory: a frame that nobody keeps costs no allocation.

use std::sync::Arc;

use super::av_frame::HostFrame;

/// Holds one picture after the other, as long as nobody keeps one.
#[derive(Default)]
pub(crate) struct Place(Option<Arc<HostFrame>>);

impl Place {
    /// Lends the picture, until [`Place::take_back`].
    pub(super) fn lend(&mut self, picture: HostFrame) -> Arc<HostFrame> {
        if let Some(free) = self.0.as_mut().and_then(Arc::get_mut) {
            *free = picture;
        } else {
            self.0 = Some(Arc::new(picture));
        }
        self.0.clone().expect("it has just been put there")
    }

    /// Frees the picture's pixels; where somebody keeps it, it is theirs, and the next has a new place.
    pub(crate) fn take_back(&mut self) {
        match self.0.as_mut().and_then(Arc::get_mut) {
            Some(picture) => picture.release(),
            None => self.0 = None,
        }
    }
}
