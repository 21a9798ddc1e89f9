//! Reusable allocation for a picture: a frame that is not kept costs no allocation.

use std::sync::Arc;

use super::av_frame::HostFrame;

/// Holds one picture after the other, as long as none is kept by a consumer.
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

    /// Frees the picture's pixels; if a consumer keeps the picture, the next gets a new allocation.
    pub(crate) fn take_back(&mut self) {
        match self.0.as_mut().and_then(Arc::get_mut) {
            Some(picture) => picture.release(),
            None => self.0 = None,
        }
    }
}
