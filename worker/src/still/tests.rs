//! Tests of the colours, ranges, layouts and rotations of stills.

mod input;

use std::sync::Arc;

use gate::conformance::SUBSAMPLINGS;
use media::{
    HostFrameBuffer, PixelLayout, Pixels, Plane, SampleFormat, SampleRange, Score, Timebase,
    Timestamp,
};
use turbojpeg::decompress;

use super::*;
use crate::Crop;

/// A picture of one colour, with another in its top left quarter.
struct Quartered {
    extent: Dimensions,
    layout: PixelLayout,
    luma: Vec<u8>,
    chroma: [Vec<u8>; 2],
    interleaved: Vec<u8>,
}

fn store(values: impl Iterator<Item = u8>, sample: SampleFormat) -> Vec<u8> {
    match sample {
        SampleFormat::U8 => values.collect(),
        SampleFormat::U16 { shift } => {
            values.flat_map(|value| (u16::from(value) << shift).to_le_bytes()).collect()
        }
    }
}

fn quartered(extent: Dimensions, [corner, rest]: [u8; 2]) -> impl Iterator<Item = u8> {
    let Dimensions { width, height } = extent;
    (0..height).flat_map(move |y| {
        (0..width).map(
            move |x| {
                if x < width.div_ceil(2) && y < height.div_ceil(2) { corner } else { rest }
            },
        )
    })
}

impl Quartered {
    /// `corner` and `rest` are Y, U and V.
    fn new(extent: Dimensions, layout: PixelLayout, corner: [u8; 3], rest: [u8; 3]) -> Quartered {
        let plane =
            |extent, at: usize| store(quartered(extent, [corner[at], rest[at]]), layout.sample);
        let chroma_extent = layout.subsampling.chroma_extent(extent);
        let chroma = [1, 2].map(|at| chroma_extent.map(|e| plane(e, at)).unwrap_or_default());
        let bytes = layout.sample.bytes();
        let interleaved = chroma[0]
            .chunks(bytes)
            .zip(chroma[1].chunks(bytes))
            .flat_map(|(u, v)| [u, v].concat())
            .collect();
        Quartered { extent, layout, luma: plane(extent, 0), chroma, interleaved }
    }

    fn frame(self) -> Frame {
        Frame {
            pts: Timestamp::new(0, Timebase::MILLIS),
            source_index: 0,
            extent: self.extent,
            layout: self.layout,
            pixels: Pixels::Host(Arc::new(self)),
        }
    }
}

impl HostFrameBuffer for Quartered {
    fn luma(&self) -> Plane<'_> {
        let sample = self.layout.sample;
        let stride = self.extent.width as usize * sample.bytes();
        Plane::new(&self.luma, stride, self.extent, sample, 1).expect("fits")
    }

    fn chroma(&self) -> Option<[Plane<'_>; 2]> {
        let extent = self.layout.subsampling.chroma_extent(self.extent)?;
        let sample = self.layout.sample;
        let row = extent.width as usize * sample.bytes();
        let plane = |data, stride, step| Plane::new(data, stride, extent, sample, step);
        Some(if self.layout.interleaved_chroma {
            let bytes = sample.bytes();
            [0, bytes].map(|at| plane(&self.interleaved[at..], 2 * row, 2).expect("fits"))
        } else {
            [0, 1].map(|at| plane(&self.chroma[at], row, 1).expect("fits"))
        })
    }
}

fn layout(subsampling: Subsampling, range: SampleRange) -> PixelLayout {
    PixelLayout { subsampling, sample: SampleFormat::U8, interleaved_chroma: false, range }
}

/// Returns the RGB at some places of a picture: numerators and the denominator of width and height.
fn pixels<const N: usize>(
    picture: &EncodedImage,
    places: [(usize, usize); N],
    of: usize,
) -> [[i32; 3]; N] {
    let image = decompress(&picture.jpeg, PixelFormat::RGB).expect("a JPEG");
    let Dimensions { width, height } = picture.extent;
    assert_eq!((image.width, image.height), (width as usize, height as usize));
    places.map(|(x, y)| {
        let start = image.height * y / of * image.pitch + 3 * (image.width * x / of);
        [0, 1, 2].map(|channel| i32::from(image.pixels[start + channel]))
    })
}

/// Returns the RGB of the middle of the upper left and of the lower right quarter.
fn colours(picture: &EncodedImage) -> [[i32; 3]; 2] {
    pixels(picture, [(2, 2), (7, 7)], 8)
}

/// Returns the colour of [`RED`], which without chroma is a grey.
fn red(subsampling: Subsampling) -> [i32; 3] {
    if subsampling == Subsampling::Gray { [76; 3] } else { [255, 0, 0] }
}

fn crop(millionths: [u32; 4]) -> Crop {
    let [x, y, width, height] = millionths.map(Score::from_millionths);
    Crop::new(x, y, width, height).expect("inside")
}

fn assert_within(steps: i32, got: [i32; 3], expected: [i32; 3], name: &str) {
    let worst = got.iter().zip(expected).map(|(a, b)| (a - b).abs()).max();
    assert!(worst <= Some(steps), "{name}: {got:?}, expected {expected:?}");
}

fn assert_near(got: [i32; 3], expected: [i32; 3], name: &str) {
    assert_within(4, got, expected, name);
}

fn encode(picture: Quartered, rotation: Rotation) -> EncodedImage {
    JpegEncoder::new().expect("an encoder").encode(&picture.frame(), rotation).expect("a still")
}

const SMALL: Dimensions = Dimensions { width: 64, height: 48 };
const LARGE: Dimensions = Dimensions { width: 1280, height: 720 };
const GREY: [u8; 3] = [126, 128, 128];
/// Red of BT.601 in limited range.
const RED: [u8; 3] = [81, 90, 240];
/// Every rotation, and the quarter in which the upper left one is then: columns and rows.
const TURNS: [(Rotation, (usize, usize)); 4] = [
    (Rotation::None, (0, 0)),
    (Rotation::Quarter, (1, 0)),
    (Rotation::Half, (1, 1)),
    (Rotation::ThreeQuarters, (0, 1)),
];

#[test]
fn colours_come_out_as_the_video_means_them() {
    let (limited, full) = (SampleRange::Limited, SampleRange::Full);
    // Codes of pure colours in each standard, computed from its definition.
    type Case = (&'static str, Dimensions, SampleRange, [u8; 3], [i32; 3]);
    let cases: [Case; 9] = [
        ("BT.601 black", SMALL, limited, [16, 128, 128], [0, 0, 0]),
        ("BT.601 white", SMALL, limited, [235, 128, 128], [255, 255, 255]),
        ("BT.601 red", SMALL, limited, [81, 90, 240], [255, 0, 0]),
        ("BT.601 blue", SMALL, limited, [41, 240, 110], [0, 0, 255]),
        ("BT.709 red", LARGE, limited, [63, 102, 240], [255, 0, 0]),
        ("BT.709 green", LARGE, limited, [173, 42, 26], [0, 255, 0]),
        ("BT.709 blue", LARGE, limited, [32, 240, 118], [0, 0, 255]),
        ("full range BT.601 red", SMALL, full, [76, 85, 255], [255, 0, 0]),
        ("full range BT.709 green", LARGE, full, [182, 30, 12], [0, 255, 0]),
    ];
    for (name, extent, range, yuv, expected) in cases {
        for subsampling in [Subsampling::Yuv420, Subsampling::Yuv422, Subsampling::Yuv444] {
            let picture = Quartered::new(extent, layout(subsampling, range), yuv, yuv);
            let [corner, rest] = colours(&encode(picture, Rotation::None));
            assert_near(corner, expected, name);
            assert_near(rest, expected, name);
        }
    }
}

#[test]
fn every_way_to_store_samples_gives_the_same_bytes() {
    for subsampling in [Subsampling::Yuv420, Subsampling::Yuv422, Subsampling::Yuv444] {
        let plain = layout(subsampling, SampleRange::Limited);
        let expected = encode(Quartered::new(SMALL, plain, RED, GREY), Rotation::None);
        let cases = [
            ("NV12", SampleFormat::U8, true),
            ("10 bit", SampleFormat::U16 { shift: 2 }, false),
            ("P010", SampleFormat::U16 { shift: 8 }, true),
        ];
        for (name, sample, interleaved_chroma) in cases {
            let layout = PixelLayout { sample, interleaved_chroma, ..plain };
            let got = encode(Quartered::new(SMALL, layout, RED, GREY), Rotation::None);
            assert!(got == expected, "{name}, {subsampling:?}");
        }
    }
}

/// Crops and scales a frame, and encodes it as a JPEG.
fn cut_out(
    picture: Quartered,
    rotation: Rotation,
    edge_max: u32,
    crop: Option<Crop>,
) -> EncodedImage {
    let frame = picture.frame();
    let cut = CropScale::new(frame.extent, rotation, crop, edge_max);
    let mut encoder = JpegEncoder::new().expect("an encoder");
    encoder.encode_cut(&frame, rotation, &cut).expect("a view")
}

#[test]
fn a_quarter_that_is_cut_out_is_of_one_colour() {
    let extents = [Dimensions { width: 64, height: 48 }, Dimensions { width: 67, height: 51 }];
    let samples = [SampleFormat::U8, SampleFormat::U16 { shift: 2 }];
    for (extent, sample) in extents.iter().flat_map(|extent| samples.map(|s| (*extent, s))) {
        for (subsampling, (rotation, corner)) in
            SUBSAMPLINGS.iter().flat_map(|layout| TURNS.map(|turn| (*layout, turn)))
        {
            let name = format!("{extent:?}, {sample:?}, {subsampling:?}, {rotation:?}");
            let layout = PixelLayout { sample, ..layout(subsampling, SampleRange::Limited) };
            // Inside the quarter, so that no chroma sample lies on its edge.
            let at = |far: usize| if far == 1 { 600_000 } else { 0 };
            let crop = crop([at(corner.0), at(corner.1), 400_000, 400_000]);
            let picture = Quartered::new(extent, layout, RED, GREY);
            let view = cut_out(picture, rotation, u32::MAX, Some(crop));
            let upright = extent.rotated(rotation);
            let side = |side: u32, far: usize| {
                let first = u64::from(side) * at(far) as u64 / 1_000_000;
                let end = (u64::from(side) * (at(far) as u64 + 400_000)).div_ceil(1_000_000);
                (end - first) as u32
            };
            let expected = Dimensions {
                width: side(upright.width, corner.0),
                height: side(upright.height, corner.1),
            };
            assert_eq!(view.extent, expected, "{name}");
            for got in colours(&view) {
                assert_near(got, red(subsampling), &name);
            }
        }
    }
}

#[test]
fn a_picture_stands_upright_and_keeps_its_corners_when_it_is_scaled_down() {
    let cases = [
        ("by two", Dimensions { width: 256, height: 192 }, 128, (128, 96)),
        ("by an odd number", Dimensions { width: 391, height: 219 }, 100, (100, 56)),
        ("by very little", Dimensions { width: 131, height: 97 }, 130, (130, 96)),
        ("not at all", Dimensions { width: 131, height: 97 }, 131, (131, 97)),
        ("not at all, even", Dimensions { width: 66, height: 50 }, 66, (66, 50)),
        ("never up", Dimensions { width: 131, height: 97 }, 4096, (131, 97)),
        ("upright", Dimensions { width: 97, height: 400 }, 64, (16, 64)),
    ];
    for (what, extent, edge_max, (width, height)) in cases {
        for (subsampling, (rotation, corner)) in
            SUBSAMPLINGS.iter().flat_map(|layout| TURNS.map(|turn| (*layout, turn)))
        {
            let name = format!("{what}, {subsampling:?}, {rotation:?}");
            let picture =
                || Quartered::new(extent, layout(subsampling, SampleRange::Limited), RED, GREY);
            let view = cut_out(picture(), rotation, edge_max, None);
            let still = encode(picture(), rotation);
            let mut encoder = JpegEncoder::new().expect("an encoder");
            let shrunk = encoder.shrink(&still.jpeg, edge_max).expect("a picture");
            for (made, of) in [(view, "the frame"), (shrunk, "its still")] {
                let name = format!("{name}, of {of}");
                assert_eq!(made.extent, Dimensions { width, height }.rotated(rotation), "{name}");
                let quarters = [(0, 0), (1, 0), (0, 1), (1, 1)];
                let found = pixels(&made, quarters.map(|(x, y)| (1 + 4 * x, 1 + 4 * y)), 6);
                for (quarter, got) in quarters.into_iter().zip(found) {
                    let expected = if quarter == corner { red(subsampling) } else { [128; 3] };
                    // Compression rings at sharp colour edges, but the red corner stays recognisable.
                    assert_within(24, got, expected, &format!("{name} at {quarter:?}"));
                }
            }
        }
    }
}

#[test]
fn one_encoder_makes_stills_and_views_of_any_size_in_any_order() {
    let mut encoder = JpegEncoder::new().expect("an encoder");
    let small = [(1, 1), (2, 1), (3, 5), (17, 33), (63, 1), (5, 5)];
    for (width, height) in [(640, 359), (65, 3), (3, 301), (1280, 720)].into_iter().chain(small) {
        let extent = Dimensions { width, height };
        let turns =
            |layout: Subsampling| TURNS.into_iter().take(3).map(move |turn| (layout, turn.0));
        for (subsampling, rotation) in SUBSAMPLINGS.into_iter().flat_map(turns) {
            let name = format!("{extent:?}, {subsampling:?}, {rotation:?}");
            let layout = layout(subsampling, SampleRange::Limited);
            let grey = Quartered::new(extent, layout, GREY, GREY).frame();
            for colour in colours(&encoder.encode(&grey, rotation).expect("a still")) {
                assert_near(colour, [128; 3], &name);
            }
            let frame = Quartered::new(extent, layout, RED, GREY).frame();
            let still = encoder.encode(&frame, rotation).expect("a still");
            for max_edge in [64, 100, 4096] {
                let cut = CropScale::new(extent, rotation, None, max_edge);
                let view = encoder.encode_cut(&frame, rotation, &cut).expect("a view");
                let mut alone = JpegEncoder::new().expect("an encoder");
                let alone = alone.encode_cut(&frame, rotation, &cut).expect("a view");
                assert!(view == alone, "{name}, {max_edge}");
                assert_eq!(view == still, cut.is_all(), "{name}, {max_edge}");
            }
        }
    }
}
