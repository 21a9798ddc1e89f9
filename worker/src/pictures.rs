//! Encodes the wanted pictures of a frame, for files and live sessions.

use media::{ErrorKind, Frame, Rotation};

use crate::{
    ChunkImageOptions, Crop, EncodedImage, FrameImages, FrameView, JobFault, JobOptions,
    NoveltySpec, SessionSpec,
    record::{CLIP_PICTURE_BYTES_MAX, VIEW_BYTES_MAX},
    still::{CropScale, EmbeddingInputBuilder, JpegEncoder},
};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PictureKinds {
    pub still: bool,
    /// The view and the input of the novelty rule, each if the options ask for it.
    pub view: bool,
    pub clip: bool,
}

impl PictureKinds {
    pub fn is_any(self) -> bool {
        self.still || self.view || self.clip
    }
}

/// Sizes of pictures, and the crop that models are shown: of views, clips and novelty inputs, never of
/// stills.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureSpec {
    /// Rotation that makes a frame upright.
    pub rotation: Rotation,
    pub crop: Option<Crop>,
    /// Longest edge of a view, if views are wanted.
    pub view_edge: Option<u32>,
    /// Longest edge of a clip's picture, if clips are wanted.
    pub clip_edge: Option<u32>,
    pub novelty: Option<NoveltySpec>,
}

impl PictureSpec {
    pub fn of_job(options: &JobOptions, rotation: Rotation) -> PictureSpec {
        let views = options.views.as_ref();
        PictureSpec {
            rotation,
            crop: views.and_then(|views| views.crop),
            view_edge: views.map(ChunkImageOptions::edge_max),
            clip_edge: None,
            novelty: views.and_then(|views| views.novelty),
        }
    }

    pub fn of_session(spec: &SessionSpec) -> PictureSpec {
        PictureSpec {
            rotation: Rotation::None,
            crop: spec.crop,
            view_edge: spec.view_edge,
            clip_edge: spec.clip.map(|clip| clip.max_edge),
            novelty: spec.novelty,
        }
    }
}

impl FrameImages {
    /// Keeps the wanted pictures of those made ahead of the decision; `None` if one is missing.
    pub(crate) fn only(mut self, wanted: PictureKinds) -> Option<FrameImages> {
        if self.view == Some(FrameView::Still) && !wanted.still {
            self.view = self.still.take().map(FrameView::Own);
        }
        let pictures = FrameImages {
            still: self.still.filter(|_| wanted.still),
            view: self.view.filter(|_| wanted.view),
            clip: self.clip.filter(|_| wanted.clip),
            novelty: self.novelty.filter(|_| wanted.view),
        };
        let has_all = pictures.still.is_some() == wanted.still
            && (pictures.view.is_some() || pictures.novelty.is_some()) == wanted.view
            && pictures.clip.is_some() == wanted.clip;
        has_all.then_some(pictures)
    }
}

/// Encodes pictures on one thread, for any number of sources; allocates with the first picture.
#[derive(Default)]
pub(crate) struct ImageEncoder {
    encoder: Option<JpegEncoder>,
    inputs: EmbeddingInputBuilder,
}

impl ImageEncoder {
    pub fn make(
        &mut self,
        frame: &Frame,
        spec: &PictureSpec,
        wanted: PictureKinds,
    ) -> Result<FrameImages, JobFault> {
        let PictureSpec { rotation, crop, view_edge, clip_edge, novelty } = *spec;
        let encoder = match &mut self.encoder {
            Some(encoder) => encoder,
            none => none.insert(JpegEncoder::new()?),
        };
        let mut pictures = FrameImages::default();
        if wanted.still {
            pictures.still = Some(encoder.encode(frame, rotation)?);
        }
        if let Some(edge) = view_edge.filter(|_| wanted.view) {
            let cut = CropScale::new(frame.extent, rotation, crop, edge);
            pictures.view = Some(match &pictures.still {
                Some(still) if cut.is_all() => {
                    within(still, VIEW_BYTES_MAX)?;
                    FrameView::Still
                }
                _ => {
                    let view = encoder.encode_cut(frame, rotation, &cut)?;
                    within(&view, VIEW_BYTES_MAX)?;
                    FrameView::Own(view)
                }
            });
        }
        if let Some(edge) = clip_edge.filter(|_| wanted.clip) {
            let cut = CropScale::new(frame.extent, rotation, crop, edge);
            let picture = encoder.encode_cut(frame, rotation, &cut)?;
            within(&picture, CLIP_PICTURE_BYTES_MAX)?;
            pictures.clip = Some(picture);
        }
        if let Some(NoveltySpec { side }) = novelty.filter(|_| wanted.view) {
            pictures.novelty = Some(self.inputs.make(frame, rotation, crop, side)?);
        }
        Ok(pictures)
    }
}

fn within(picture: &EncodedImage, bytes_max: usize) -> Result<(), JobFault> {
    let bytes = picture.jpeg.len();
    if bytes <= bytes_max {
        return Ok(());
    }
    // Only noise in a very large picture is that large.
    let message = format!("a view takes {bytes} bytes, more than the {bytes_max} that one may");
    Err(JobFault::Other { kind: ErrorKind::InvalidInput, message })
}
