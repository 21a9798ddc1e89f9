//! A selected frame to an upright JPEG.
//!
//! JPEG means full range and BT.601 (JFIF 1.02); `colour` converts, this file turns the picture
//! and encodes it. Plane buffers are reused from still to still.

mod colour;

use media::{Extent, Frame, Pixels, Rotation, Subsampling};
use turbojpeg::{Compressor, Image, PixelFormat, Subsamp, YuvPlanesImage};

use colour::Planes8;

/// Libjpeg quality: no visible artefacts in 1080p camera pictures at about 0.2 MB each.
const QUALITY: i32 = 85;

/// Why a frame has no still.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum StillError {
    #[error("the picture's chroma planes do not match its layout")]
    Chroma,
    #[error("the JPEG encoder failed: {0}")]
    Encoder(String),
}

impl From<turbojpeg::Error> for StillError {
    fn from(error: turbojpeg::Error) -> StillError {
        StillError::Encoder(error.to_string())
    }
}

/// A JPEG and its size in pixels.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Picture {
    pub extent: Extent,
    pub jpeg: Vec<u8>,
}

/// Encodes stills one after the other.
pub(crate) struct StillEncoder {
    compressor: Compressor,
    coded: Planes8,
    upright: Planes8,
}

impl StillEncoder {
    pub fn new() -> Result<StillEncoder, StillError> {
        let mut compressor = Compressor::new()?;
        compressor.set_quality(QUALITY)?;
        Ok(StillEncoder { compressor, coded: Planes8::default(), upright: Planes8::default() })
    }

    /// The frame, turned by `rotation`, as a JPEG.
    pub fn encode(&mut self, frame: &Frame, rotation: Rotation) -> Result<Picture, StillError> {
        let Pixels::Host(picture) = &frame.pixels;
        let subsampling = frame.layout.subsampling;
        let chroma = picture.chroma();
        if chroma.is_some() != (subsampling != Subsampling::Gray) {
            return Err(StillError::Chroma);
        }
        self.coded.convert(frame, picture.luma(), chroma, arrangement(subsampling).size());
        let (planes, subsamp) = match rotation {
            Rotation::None => (&self.coded, arrangement(subsampling)),
            Rotation::Half => (self.upright.turn(&self.coded, rotation), arrangement(subsampling)),
            Rotation::Quarter | Rotation::ThreeQuarters => {
                (self.upright.turn(&self.coded, rotation), turned(subsampling))
            }
        };
        let extent = frame.extent.rotated(rotation);
        let (width, height) = (extent.width as usize, extent.height as usize);
        let [y, u, v] = planes.planes();
        let jpeg = if subsamp == Subsamp::Gray {
            self.compressor.set_subsamp(subsamp)?;
            self.compressor.compress_to_vec(Image {
                pixels: &y.samples[..],
                width,
                pitch: y.stride,
                height,
                format: PixelFormat::GRAY,
            })?
        } else {
            self.compressor.compress_yuv_planes_to_vec(&YuvPlanesImage {
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
        Ok(Picture { extent, jpeg })
    }
}

/// The chroma arrangement after a quarter turn: across becomes down.
fn turned(subsampling: Subsampling) -> Subsamp {
    match arrangement(subsampling) {
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
