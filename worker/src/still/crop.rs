//! Crop and scaling of a coded picture.

use media::{Dimensions, Rotation};

use crate::{Crop, Region};

/// Part of a coded picture, before rotation, and the size to scale it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CropScale {
    coded: Dimensions,
    /// The part in coded coordinates.
    pub region: Region,
    /// Size after scaling, before rotation.
    pub extent: Dimensions,
}

impl CropScale {
    /// Selects the crop of the upright picture, scaled until its longer edge is at most `edge_max`.
    pub fn new(
        coded: Dimensions,
        rotation: Rotation,
        crop: Option<Crop>,
        edge_max: u32,
    ) -> CropScale {
        let whole = CropScale::resizing(coded, rotation, crop, coded);
        CropScale { extent: shrunk(whole.region.extent(), edge_max), ..whole }
    }

    /// Selects the crop of the upright picture, scaled to `extent` regardless of its shape.
    pub fn resizing(
        coded: Dimensions,
        rotation: Rotation,
        crop: Option<Crop>,
        extent: Dimensions,
    ) -> CropScale {
        let upright = coded.rotated(rotation);
        let region = crop.map_or(Region::all(upright), |crop| crop.region(upright));
        CropScale { coded, region: turned_back(region, coded, rotation), extent }
    }

    /// Returns true if nothing is cropped or scaled.
    pub fn is_all(&self) -> bool {
        self.region.extent() == self.coded && self.extent == self.coded
    }
}

/// Maps a region of the upright picture to the coded picture.
fn turned_back(region: Region, coded: Dimensions, rotation: Rotation) -> Region {
    let Region { x, y, width, height } = region;
    let (from_right, from_bottom) =
        (|x, width| coded.width - x - width, |y, height| coded.height - y - height);
    match rotation {
        Rotation::None => region,
        Rotation::Quarter => {
            Region { x: y, y: from_bottom(x, width), width: height, height: width }
        }
        Rotation::Half => {
            Region { x: from_right(x, width), y: from_bottom(y, height), width, height }
        }
        Rotation::ThreeQuarters => {
            Region { x: from_right(y, height), y: x, width: height, height: width }
        }
    }
}

/// Returns the largest size of the same shape with a longer edge of at most `edge_max`; never enlarges.
fn shrunk(extent: Dimensions, edge_max: u32) -> Dimensions {
    let longer = extent.width.max(extent.height);
    if longer <= edge_max {
        return extent;
    }
    let (longer, edge) = (u64::from(longer), u64::from(edge_max));
    let side = |side: u32| ((2 * u64::from(side) * edge + longer) / (2 * longer)).max(1) as u32;
    Dimensions { width: side(extent.width), height: side(extent.height) }
}

#[cfg(test)]
mod tests {
    use media::Score;

    use super::*;

    #[test]
    fn crop_and_edge_give_whole_pixels_of_the_coded_picture() {
        let (up, quarter, over, three) =
            (Rotation::None, Rotation::Quarter, Rotation::Half, Rotation::ThreeQuarters);
        // The upper right, a part of a pixel's column, and one that begins on the edge of a pixel.
        let half = Some([0.5, 0.0, 0.5, 0.25]);
        let (thin, even) = (Some([0.333_333, 0.1, 0.000_001, 0.8]), Some([0.29, 0.1, 0.71, 0.9]));
        let cases = [
            ("all of it", (1920, 1080), up, 4096, None, [0, 0, 1920, 1080], (1920, 1080)),
            ("too large", (8192, 4096), up, 4096, None, [0, 0, 8192, 4096], (4096, 2048)),
            ("never larger", (320, 180), up, 512, None, [0, 0, 320, 180], (320, 180)),
            ("the shorter edge", (853, 480), up, 512, None, [0, 0, 853, 480], (512, 288)),
            ("and stays a pixel", (8192, 9), up, 64, None, [0, 0, 8192, 9], (64, 1)),
            ("every pixel that is touched", (101, 11), up, 4096, thin, [33, 1, 1, 9], (1, 9)),
            ("on the edge of a pixel", (100, 10), up, 4096, even, [29, 1, 71, 9], (71, 9)),
            ("a quarter turn", (81, 40), quarter, 4096, half, [0, 0, 21, 20], (21, 20)),
            ("half a turn", (80, 40), over, 64, half, [0, 30, 40, 10], (40, 10)),
            ("three quarters", (80, 40), three, 4096, half, [60, 20, 20, 20], (20, 20)),
            ("cut and scaled", (1080, 1920), quarter, 480, half, [0, 0, 270, 960], (135, 480)),
        ];
        let extent = |(width, height)| Dimensions { width, height };
        let crop = |sides: [f64; 4]| {
            let [x, y, width, height] =
                sides.map(|side| Score::from_f64(side).expect("a fraction"));
            Crop::new(x, y, width, height).expect("inside")
        };
        for (name, coded, rotation, edge_max, sides, [x, y, width, height], size) in cases {
            let cut = CropScale::new(extent(coded), rotation, sides.map(crop), edge_max);
            let region = Region { x, y, width, height };
            assert_eq!((cut.region, cut.extent), (region, extent(size)), "{name}");
        }
    }
}
