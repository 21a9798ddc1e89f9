//! Second cut rule: another take of the same view.
//!
//! The picture keeps its layout, so the distance of the scene rule stays small. But every part, background
//! included, changes colour at once and more than in the frames around, as with another exposure and white
//! balance; and moving objects jump, which exposure and white balance alone do not cause.

use media::Score;

use crate::{
    artifact_scores::brightness_change,
    cells::LUMA_COLUMNS,
    scene::HALF,
    thumbnail::{BLOCK, BLOCK_COLUMNS, BLOCKS, CellThumbnail, LEVEL},
    window::FrameNeighbourhood,
};

/// Offsets of the frames whose changes are the usual ones.
const AROUND: std::ops::RangeInclusive<isize> = -7..=2;
/// Rank of the block that represents nearly all blocks: a tenth of them change less.
const NEARLY_ALL: usize = BLOCKS / 10;
/// Floor added to the usual change: an eighth of a level.
const FLOOR: u32 = LEVEL / 8;

/// Colour change of nearly all blocks that scores 0.5: two and a half levels. Retakes measured 5 levels,
/// frames of a moving camera up to 0.7.
const COLOUR_HALF: u64 = 5 * LEVEL as u64 / 2;
/// Colour change in hundredths of the usual one; scores 0.5. Retakes measured 150, 400; others up to 80.
const UNUSUAL_HALF: u64 = 120;
/// Change of structure in the median block that scores 0.5: a level and a half. Retakes measured 2.1 levels
/// and more, exposure steps of a real camera up to 1.1.
const STRUCTURE_HALF: u64 = 3 * LEVEL as u64 / 2;
/// Change of structure, in hundredths of the usual one, that scores 0.5.
const JUMP_HALF: u64 = 150;
/// Change of brightness, shared by three quarters of the picture, above which the cause is exposure and not a
/// retake: eight levels.
const EXPOSURE: i32 = 8 * LEVEL as i32;

/// Returns the strength of a retake between `old` and `new`, two frames across the cut; 0.5 is a cut.
pub(crate) fn score(
    frames: &FrameNeighbourhood<'_>,
    old: &CellThumbnail,
    new: &CellThumbnail,
) -> Score {
    if brightness_change(old, new).abs() > EXPOSURE {
        return Score::ZERO;
    }
    let colour = colour_changes(old, new);
    let structure = structure_change(old, new);
    let least = Score::from_ratio(ranked(colour, NEARLY_ALL).into(), 2 * COLOUR_HALF)
        .min(Score::from_ratio(structure.into(), 2 * STRUCTURE_HALF));
    if least < HALF {
        return least;
    }
    let mut usual = [0; BLOCKS];
    let mut usual_structure = 0;
    for (before, after) in around(frames) {
        for (usual, change) in usual.iter_mut().zip(colour_changes(before, after)) {
            *usual = change.max(*usual);
        }
        usual_structure = structure_change(before, after).max(usual_structure);
    }
    let unusual: [u32; BLOCKS] =
        std::array::from_fn(|block| colour[block] * 100 / (usual[block] + FLOOR));
    let jump = structure * 100 / (usual_structure + FLOOR);
    least
        .min(Score::from_ratio(ranked(unusual, NEARLY_ALL).into(), 2 * UNUSUAL_HALF))
        .min(Score::from_ratio(jump.into(), 2 * JUMP_HALF))
}

/// Returns the pairs of consecutive frames around the frame, except the pair that ends at the frame itself.
fn around<'a>(
    frames: &FrameNeighbourhood<'a>,
) -> impl Iterator<Item = (&'a CellThumbnail, &'a CellThumbnail)> {
    AROUND
        .filter(|&at| at != 0)
        .filter_map(|at| Some((&frames.at(at - 1)?.thumb, &frames.at(at)?.thumb)))
}

fn ranked(mut values: [u32; BLOCKS], rank: usize) -> u32 {
    *values.select_nth_unstable(rank).1
}

/// Computes the sum of the changes of the mean luma, U and V of each block, in 1/[`LEVEL`].
fn colour_changes(old: &CellThumbnail, new: &CellThumbnail) -> [u32; BLOCKS] {
    let change = |old: &[u16; BLOCKS], new: &[u16; BLOCKS], block: usize| {
        u32::from(old[block].abs_diff(new[block]))
    };
    std::array::from_fn(|block| {
        change(&old.blocks, &new.blocks, block)
            + change(&old.chroma_blocks[0], &new.chroma_blocks[0], block)
            + change(&old.chroma_blocks[1], &new.chroma_blocks[1], block)
    })
}

/// Computes the change of the median block that no change of its brightness and contrast explains: the mean
/// over its cells, in 1/[`LEVEL`].
fn structure_change(old: &CellThumbnail, new: &CellThumbnail) -> u32 {
    ranked(std::array::from_fn(|block| block_structure_change(old, new, block)), BLOCKS / 2)
}

fn block_structure_change(old: &CellThumbnail, new: &CellThumbnail, block: usize) -> u32 {
    let corner = block / BLOCK_COLUMNS * BLOCK * LUMA_COLUMNS + block % BLOCK_COLUMNS * BLOCK;
    let cells = || (0..BLOCK * BLOCK).map(|i| corner + i / BLOCK * LUMA_COLUMNS + i % BLOCK);
    let pattern = |thumb: &CellThumbnail, cell: usize| {
        i64::from(thumb.luma[cell]) - i64::from(thumb.blocks[block])
    };
    let (mut both, mut square) = (0, 0);
    for cell in cells() {
        let old = pattern(old, cell);
        both += old * pattern(new, cell);
        square += old * old;
    }
    // Contrast that fits best, in 1/1024.
    let gain = if square == 0 { 1024 } else { (both * 1024 / square).clamp(512, 2048) };
    let left: u64 = cells()
        .map(|cell| (pattern(new, cell) - pattern(old, cell) * gain / 1024).unsigned_abs())
        .sum();
    (left / (BLOCK * BLOCK) as u64) as u32
}
