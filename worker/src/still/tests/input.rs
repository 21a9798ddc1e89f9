//! Tests of the colours and cells of novelty inputs.

use media::SampleRange;

use super::*;
use crate::{NoveltyInput, still::EmbeddingInputBuilder};

fn input(picture: Quartered, crop: Option<Crop>, side: u32) -> NoveltyInput {
    let input = EmbeddingInputBuilder::default()
        .make(&picture.frame(), Rotation::None, crop, side)
        .expect("an input");
    assert_eq!(input.cells.len(), NoveltyInput::COLUMNS * NoveltyInput::ROWS);
    assert_eq!(input.picture.rgb.len(), 3 * (side * side) as usize);
    input
}

fn pixel(input: &NoveltyInput, x: u32, y: u32) -> [i32; 3] {
    let start = 3 * (y * input.picture.side + x) as usize;
    [0, 1, 2].map(|channel| i32::from(input.picture.rgb[start + channel]))
}

#[test]
fn every_layout_gives_the_same_colours_and_cells() {
    for subsampling in SUBSAMPLINGS {
        for extent in
            [SMALL, Dimensions { width: 67, height: 51 }, Dimensions { width: 640, height: 360 }]
        {
            let name = format!("{subsampling:?} {extent:?}");
            let layout = layout(subsampling, SampleRange::Limited);
            let found = input(Quartered::new(extent, layout, RED, GREY), None, 224);
            assert_within(3, pixel(&found, 20, 20), red(subsampling), &name);
            assert_within(3, pixel(&found, 200, 200), [128; 3], &name);
            assert_eq!((found.cells[0], *found.cells.last().expect("cells")), (81, 126), "{name}");
        }
    }
}

#[test]
fn a_crop_is_all_there_is() {
    let layout = layout(Subsampling::Yuv420, SampleRange::Limited);
    let picture = || Quartered::new(Dimensions { width: 640, height: 360 }, layout, RED, GREY);
    let corner = input(picture(), Some(crop([0, 0, 400_000, 400_000])), 32);
    assert!(corner.cells.iter().all(|&cell| cell == 81));
    for (x, y) in [(0, 0), (31, 0), (0, 31), (31, 31)] {
        assert_within(3, pixel(&corner, x, y), [255, 0, 0], "the corner");
    }
    let rest = input(picture(), Some(crop([600_000, 600_000, 400_000, 400_000])), 33);
    assert!(rest.cells.iter().all(|&cell| cell == 126));
    assert_within(3, pixel(&rest, 32, 32), [128; 3], "the rest");
}

#[test]
fn a_luma_only_frame_after_a_coloured_one_is_grey() {
    let mut maker = EmbeddingInputBuilder::default();
    let coloured = layout(Subsampling::Yuv420, SampleRange::Limited);
    let grey = layout(Subsampling::Gray, SampleRange::Full);
    let mut make = |frame| maker.make(&frame, Rotation::None, None, 64);
    make(Quartered::new(SMALL, coloured, RED, RED).frame()).expect("an input");
    let found = make(Quartered::new(SMALL, grey, [9, 0, 0], [200, 0, 0]).frame());
    let found = found.expect("an input");
    assert_eq!((pixel(&found, 0, 0), pixel(&found, 63, 63)), ([9; 3], [200; 3]));
}
