//! The pictures that a job wants of a frame.

use media::{Frame, Rotation};

use super::Job;
use crate::{
    Fault, NoveltyInput, ViewOptions,
    still::{Cut, InputMaker, Picture, StillEncoder, StillError},
    views::VIEW_BYTES_MAX,
};

/// Pictures to make of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub still: bool,
    pub view: bool,
}

impl Wanted {
    /// All that the job may want of a frame.
    pub fn all(job: &Job<'_>) -> Wanted {
        Wanted { still: job.stills, view: job.views.is_some() }
    }

    pub fn is_any(self) -> bool {
        self.still || self.view
    }
}

/// Pictures made of a frame.
#[derive(Default)]
pub(super) struct Pictures {
    pub still: Option<Picture>,
    pub view: Option<ViewPicture>,
}

/// View for a model, and the input of novelty where that is wanted.
pub(super) struct ViewPicture {
    pub picture: Picture,
    pub novelty: Option<NoveltyInput>,
}

/// Makes the pictures of one job on one thread; takes memory with the first.
pub(super) struct PictureMaker {
    rotation: Rotation,
    views: Option<ViewOptions>,
    encoder: Option<StillEncoder>,
    inputs: InputMaker,
}

impl PictureMaker {
    pub fn new(job: &Job<'_>) -> PictureMaker {
        let (rotation, views) = (job.rotation, job.views);
        PictureMaker { rotation, views, encoder: None, inputs: InputMaker::default() }
    }

    pub fn make(&mut self, frame: &Frame, wanted: Wanted) -> Result<Pictures, Fault> {
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(StillEncoder::new()?),
        };
        let mut pictures = Pictures::default();
        if wanted.still {
            pictures.still = Some(encoder.encode(frame, self.rotation)?);
        }
        if let Some(options) = self.views.as_ref().filter(|_| wanted.view) {
            let cut = Cut::new(frame.extent, self.rotation, options);
            let view = match &pictures.still {
                Some(still) if cut.is_all() => still.clone(),
                _ => encoder.encode_cut(frame, self.rotation, &cut)?,
            };
            if view.jpeg.len() > VIEW_BYTES_MAX {
                return Err(StillError::TooLarge { bytes: view.jpeg.len() }.into());
            }
            let novelty = options
                .novelty
                .map(|spec| self.inputs.make(frame, self.rotation, options.crop, spec.side));
            pictures.view = Some(ViewPicture { picture: view, novelty: novelty.transpose()? });
        }
        Ok(pictures)
    }
}
