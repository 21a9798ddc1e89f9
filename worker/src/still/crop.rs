//! Crop and scaling of a coded picture.

use media::{Dimensions, Rotation};

use crate::{Crop, Region};

/// Part of a coded picture, before rotation, and the size to scale it to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CropScale {
    coded: Dimensions,
    region: Region,
    extent: Dimensions,
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

    /// Returns the part in coded coordinates.
    pub fn region(&self) -> Region {
        self.region
    }

    /// Returns the size after scaling, before rotation.
    pub fn extent(&self) -> Dimensions {
        self.extent
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
    use crate::{ChunkBoundary, ChunkImageOptions, Crop};

    fn extent(width: u32, height: u32) -> Dimensions {
        Dimensions { width, height }
    }

    fn region(x: u32, y: u32, width: u32, height: u32) -> Region {
        Region { x, y, width, height }
    }

    fn options(max_edge: Option<u32>, crop: Option<[f64; 4]>) -> ChunkImageOptions {
        let score = |value| Score::from_f64(value).expect("a fraction");
        let crop = crop.map(|[x, y, width, height]| {
            Crop::new(score(x), score(y), score(width), score(height)).expect("inside")
        });
        ChunkImageOptions {
            chunks: ChunkBoundary::Frames(30),
            per_chunk: 1,
            max_edge,
            crop,
            novelty: None,
        }
    }

    #[test]
    fn crop_and_edge_give_whole_pixels_of_the_coded_picture() {
        type Case = (&'static str, Dimensions, Rotation, ChunkImageOptions, Region, Dimensions);
        let half = Some([0.5, 0.0, 0.5, 0.25]);
        let cases: [Case; 11] = [
            (
                "all of it",
                extent(1920, 1080),
                Rotation::None,
                options(None, None),
                region(0, 0, 1920, 1080),
                extent(1920, 1080),
            ),
            (
                "beyond the largest edge",
                extent(8192, 4096),
                Rotation::None,
                options(None, None),
                region(0, 0, 8192, 4096),
                extent(4096, 2048),
            ),
            (
                "never larger",
                extent(320, 180),
                Rotation::None,
                options(Some(512), None),
                region(0, 0, 320, 180),
                extent(320, 180),
            ),
            (
                "the shorter edge is rounded",
                extent(853, 480),
                Rotation::None,
                options(Some(512), None),
                region(0, 0, 853, 480),
                extent(512, 288),
            ),
            (
                "and stays a pixel",
                extent(8192, 9),
                Rotation::None,
                options(Some(64), None),
                region(0, 0, 8192, 9),
                extent(64, 1),
            ),
            (
                "every pixel that is touched",
                extent(101, 11),
                Rotation::None,
                options(None, Some([0.333_333, 0.1, 0.000_001, 0.8])),
                region(33, 1, 1, 9),
                extent(1, 9),
            ),
            (
                "on the edge of a pixel",
                extent(100, 10),
                Rotation::None,
                options(None, Some([0.29, 0.1, 0.71, 0.9])),
                region(29, 1, 71, 9),
                extent(71, 9),
            ),
            (
                "upper right, a quarter turn",
                extent(81, 40),
                Rotation::Quarter,
                options(None, half),
                region(0, 0, 21, 20),
                extent(21, 20),
            ),
            (
                "upper right, half a turn",
                extent(80, 40),
                Rotation::Half,
                options(Some(64), half),
                region(0, 30, 40, 10),
                extent(40, 10),
            ),
            (
                "upper right, three quarters",
                extent(80, 40),
                Rotation::ThreeQuarters,
                options(None, half),
                region(60, 20, 20, 20),
                extent(20, 20),
            ),
            (
                "cropped, then scaled",
                extent(1080, 1920),
                Rotation::Quarter,
                options(Some(480), half),
                region(0, 0, 270, 960),
                extent(135, 480),
            ),
        ];
        for (name, coded, rotation, options, region, size) in cases {
            let cut = CropScale::new(coded, rotation, options.crop, options.edge_max());
            assert_eq!((cut.region(), cut.extent()), (region, size), "{name}");
        }
    }
}
