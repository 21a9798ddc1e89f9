//! Inputs for comparing a frame with ones described before: a small RGB picture for an embedding model, and
//! mean luma per cell as a second check.
//!
//! Uses only integers and exact areas, so a frame gives the same input on every machine.

use gate::{LUMA_COLUMNS, LUMA_ROWS};
use media::{Dimensions, Frame, Rotation};

use super::{
    area_scaler::AreaScaler,
    arrangement,
    colour::{ColorMatrix, PlaneBuffer, Planes8},
    crop::CropScale,
    matching_chroma,
};
use crate::{Crop, EmbeddingInput, JobFault, NoveltyInput};

/// Makes inputs one after the other, with reused buffers.
#[derive(Default)]
pub(crate) struct EmbeddingInputBuilder {
    scaler: AreaScaler,
    planes: Planes8,
}

impl EmbeddingInputBuilder {
    /// Makes the input from the crop of the upright frame. The picture is a square of `side` pixels in the
    /// orientation of the coded frame: a comparison needs no rotation.
    pub fn make(
        &mut self,
        frame: &Frame,
        rotation: Rotation,
        crop: Option<Crop>,
        side: u32,
    ) -> Result<NoveltyInput, JobFault> {
        let picture = frame.pixels.host()?;
        let chroma = matching_chroma(frame, picture.chroma())?;
        let share = arrangement(frame.layout.subsampling).size();
        let luma = picture.luma();

        let cells = Dimensions { width: LUMA_COLUMNS as u32, height: LUMA_ROWS as u32 };
        let cut = CropScale::resizing(frame.extent, rotation, crop, cells);
        self.scaler.scale(&cut, luma, None, (1, 1), (1, 1));
        let (means, _) = self.scaler.planes(false);
        let cells = (0..cells.height).flat_map(|y| means.row(y)).copied().collect();

        let square = Dimensions { width: side, height: side };
        let cut = CropScale::resizing(frame.extent, rotation, crop, square);
        self.scaler.scale(&cut, luma, chroma, share, (1, 1));
        let (luma, chroma) = self.scaler.planes(chroma.is_some());
        self.planes.convert(&ColorMatrix::of(frame), luma, chroma, (1, 1));
        let [y, u, v] = self.planes.planes();
        let rgb = rgb(y, chroma.is_some().then_some([u, v]), side as usize);
        Ok(NoveltyInput { cells, picture: EmbeddingInput { side, rgb } })
    }
}

/// Converts full-range BT.601 to RGB, row by row (JFIF 1.02), in 65536ths rounded to the nearest.
fn rgb(luma: &PlaneBuffer, chroma: Option<[&PlaneBuffer; 2]>, side: usize) -> Vec<u8> {
    const HALF: i32 = 1 << 15;
    let mut rgb = Vec::with_capacity(3 * side * side);
    for y in 0..side {
        let Some([u, v]) = chroma else {
            rgb.extend(luma.row(y).iter().flat_map(|&grey| [grey; 3]));
            continue;
        };
        for ((&luma, &u), &v) in luma.row(y).iter().zip(u.row(y)).zip(v.row(y)) {
            let (cb, cr) = (i32::from(u) - 128, i32::from(v) - 128);
            let base = (i32::from(luma) << 16) + HALF;
            let red = base + 91_881 * cr;
            let green = base - 22_554 * cb - 46_802 * cr;
            let blue = base + 116_130 * cb;
            rgb.extend([red, green, blue].map(|value| (value >> 16).clamp(0, 255) as u8));
        }
    }
    rgb
}
