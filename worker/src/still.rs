//! Encodes a frame, or a part of it scaled down, as an upright JPEG.
//!
//! JPEG uses full range and BT.601 (JFIF 1.02); `colour` converts, this module rotates and encodes. Cropping
//! and scaling come first (`crop`, `area_scaler`), so that the rest has less to do. Plane buffers are reused
//! from picture to picture.

mod area_scaler;
mod colour;
mod crop;
mod embedding_input;

use media::{Dimensions, ErrorKind, Frame, Plane, Rotation, SampleFormat, Subsampling};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, YuvPlanesImage, decompress_to_yuv};

use area_scaler::AreaScaler;
use colour::{ColorMatrix, Planes8};
pub(crate) use crop::CropScale;
pub(crate) use embedding_input::EmbeddingInputBuilder;

use crate::{EncodedImage, JobFault};

/// Libjpeg quality: no visible artefacts in 1080p camera pictures at about 0.2 MB each.
const QUALITY: i32 = 85;

const CHROMA: &str = "the picture's chroma planes do not match its layout";

impl From<turbojpeg::Error> for JobFault {
    fn from(error: turbojpeg::Error) -> JobFault {
        ours(format!("the JPEG encoder failed: {error}"))
    }
}

/// Makes the fault of a picture that could not be encoded, whatever the media is.
fn ours(message: impl Into<String>) -> JobFault {
    JobFault::Other { kind: ErrorKind::Internal, message: message.into() }
}

/// Encodes pictures one after the other, with reused buffers.
pub(crate) struct JpegEncoder {
    compressor: Compressor,
    scaler: AreaScaler,
    coded: Planes8,
    upright: Planes8,
}

impl JpegEncoder {
    pub fn new() -> Result<JpegEncoder, JobFault> {
        let mut compressor = Compressor::new()?;
        compressor.set_quality(QUALITY)?;
        Ok(JpegEncoder {
            compressor,
            scaler: AreaScaler::default(),
            coded: Planes8::default(),
            upright: Planes8::default(),
        })
    }

    /// Encodes the frame, rotated by `rotation`, as a JPEG.
    pub fn encode(&mut self, frame: &Frame, rotation: Rotation) -> Result<EncodedImage, JobFault> {
        let whole = CropScale::new(frame.extent, rotation, None, u32::MAX);
        self.encode_cut(frame, rotation, &whole)
    }

    /// Like [`JpegEncoder::encode`], for the part of the frame that `cut` selects.
    pub fn encode_cut(
        &mut self,
        frame: &Frame,
        rotation: Rotation,
        cut: &CropScale,
    ) -> Result<EncodedImage, JobFault> {
        let picture = frame.pixels.host()?;
        let (mut luma, mut chroma) = (picture.luma(), matching_chroma(frame, picture.chroma())?);
        let subsamp = arrangement(frame.layout.subsampling);
        let share = subsamp.size();
        if !cut.is_all() {
            self.scaler.scale(cut, luma, chroma, share, share);
            (luma, chroma) = self.scaler.planes(chroma.is_some());
        }
        self.coded.convert(&ColorMatrix::of(frame), luma, chroma, share);
        let (planes, subsamp) = match rotation {
            Rotation::None => (&self.coded, subsamp),
            Rotation::Half => (self.upright.turn(&self.coded, rotation), subsamp),
            Rotation::Quarter | Rotation::ThreeQuarters => {
                (self.upright.turn(&self.coded, rotation), turned(subsamp))
            }
        };
        compressed(&mut self.compressor, planes, cut.extent.rotated(rotation), subsamp)
    }

    /// Scales a JPEG down until its longer edge is at most `edge_max`; never up.
    pub fn shrink(&mut self, jpeg: &[u8], edge_max: u32) -> Result<EncodedImage, JobFault> {
        let image = decompress_to_yuv(jpeg)?;
        let extent = Dimensions { width: image.width as u32, height: image.height as u32 };
        let (luma_bytes, chroma_bytes) =
            (image.y_width() * image.y_height(), image.uv_width() * image.uv_height());
        let plane = |from: usize, stride: usize, extent: Dimensions| {
            let samples = image.pixels.get(from..).unwrap_or_default();
            Plane::new(samples, stride, extent, SampleFormat::U8, 1).ok_or_else(|| ours(CHROMA))
        };
        let luma = plane(0, image.y_width(), extent)?;
        let (mut chroma, mut share) = (None, (1, 1));
        if image.subsamp != Subsamp::Gray {
            share = image.subsamp.size();
            let (across, down) = (share.0 as u32, share.1 as u32);
            let size = Dimensions {
                width: extent.width.div_ceil(across),
                height: extent.height.div_ceil(down),
            };
            let of = |at: usize| plane(luma_bytes + at * chroma_bytes, image.uv_width(), size);
            chroma = Some([of(0)?, of(1)?]);
        }
        let cut = CropScale::new(extent, Rotation::None, None, edge_max);
        self.scaler.scale(&cut, luma, chroma, share, share);
        let (luma, chroma) = self.scaler.planes(chroma.is_some());
        self.coded.convert(&ColorMatrix::none(), luma, chroma, share);
        compressed(&mut self.compressor, &self.coded, cut.extent, image.subsamp)
    }
}

/// Encodes upright planes as a JPEG of `extent`.
fn compressed(
    compressor: &mut Compressor,
    planes: &Planes8,
    extent: Dimensions,
    subsamp: Subsamp,
) -> Result<EncodedImage, JobFault> {
    let (width, height) = (extent.width as usize, extent.height as usize);
    let [y, u, v] = planes.planes();
    let jpeg = if subsamp == Subsamp::Gray {
        compressor.set_subsamp(subsamp)?;
        compressor.compress_to_vec(Image {
            pixels: &y.samples[..],
            width,
            pitch: y.stride,
            height,
            format: PixelFormat::GRAY,
        })?
    } else {
        compressor.compress_yuv_planes_to_vec(&YuvPlanesImage {
            y_plane: &y.samples[..],
            u_plane: &u.samples[..],
            v_plane: &v.samples[..],
            width,
            height,
            y_stride: y.stride,
            u_stride: u.stride,
            v_stride: v.stride,
            subsamp,
        })?
    };
    Ok(EncodedImage { extent, jpeg })
}

/// Returns the chroma planes, which must exist exactly if the frame's layout has chroma.
fn matching_chroma<'a>(
    frame: &Frame,
    chroma: Option<[Plane<'a>; 2]>,
) -> Result<Option<[Plane<'a>; 2]>, JobFault> {
    if chroma.is_some() == (frame.layout.subsampling != Subsampling::Gray) {
        Ok(chroma)
    } else {
        Err(ours(CHROMA))
    }
}

/// Returns the chroma subsampling after a quarter turn: horizontal becomes vertical.
fn turned(subsamp: Subsamp) -> Subsamp {
    match subsamp {
        Subsamp::Sub2x1 => Subsamp::Sub1x2,
        Subsamp::Sub1x2 => Subsamp::Sub2x1,
        Subsamp::Sub4x1 => Subsamp::Sub1x4,
        same => same,
    }
}

fn arrangement(subsampling: Subsampling) -> Subsamp {
    match subsampling {
        Subsampling::Gray => Subsamp::Gray,
        Subsampling::Yuv420 => Subsamp::Sub2x2,
        Subsampling::Yuv422 => Subsamp::Sub2x1,
        Subsampling::Yuv440 => Subsamp::Sub1x2,
        Subsampling::Yuv411 => Subsamp::Sub4x1,
        Subsampling::Yuv444 => Subsamp::None,
    }
}

#[cfg(test)]
mod tests;
