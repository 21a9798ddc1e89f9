//! Scene-cut rule: how strongly a frame begins a new shot.
//!
//! Pictures are compared cell by cell, each cell with the nearest value within a small shift, so that motion
//! costs little. A cut changes most of the picture, beyond what exposure explains, far more than the frames
//! around it change; no frame before it resembles one soon after; and neither the picture nor a part of it is
//! the old one shifted. Figures beside the constants: 1,149 known cuts and 980 clips without cuts, made of
//! real ones by filters.

use media::Score;

use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    continued, global_motion, relit_cut,
    thumbnail::{CELLS, CellThumbnail, LEVEL, SPREAD},
    window::{FrameNeighbourhood, WindowSlot},
};

/// Shift tolerance in cells: the motion of a fast pan between two frames.
const REACH_X: usize = 2;
const REACH_Y: usize = 1;
const PADDED: usize = LUMA_COLUMNS + 2 * REACH_X;

/// Units of a normalised cell per deviation of its picture; eight bits hold four deviations each way.
const DEVIATION: u32 = 32;
/// Floor added to the deviation; below it a difference is noise or the first step of a fade.
const DEVIATION_FLOOR: u32 = 4 * LEVEL;

/// Score of a change that is as likely a cut as not.
pub(crate) const HALF: Score = Score::from_millionths(500_000);
/// Normalised distance that scores 0.5, in thousandths of a deviation. Cuts measured 169 and more (low
/// contrast and noise included), frames within shots 130 except in shake and pop-ups.
const DISTANCE_HALF: u64 = 140;
/// Distance times prominence that scores 0.5. Cuts measured 1,870 and more, the least in a shaking picture;
/// the worst shake within a shot 640.
const PROMINENT_HALF: u64 = 1100;
/// Changed share of the picture that scores 0.5, in thousandths. Cuts measured 740 and more, pop-ups over
/// half of the picture 640 (720 on a shaking one), a page that changes in a screen recording 680.
const AREA_HALF: u64 = 700;
/// Cells along a side of the tiles by which the changed share is counted.
pub(crate) const TILE: usize = 4;
pub(crate) const TILE_COLUMNS: usize = LUMA_COLUMNS / TILE;
pub(crate) const TILES: usize = TILE_COLUMNS * (LUMA_ROWS / TILE);

/// Distance left after shifting the old picture that scores 0.5, in thousandths of a deviation. Cuts measured
/// 450 and more, the fastest pans and shakes 110.
const MOVED_HALF: u64 = 250;

/// Number of continued windows that scores 0.5. Of 5,711 cuts (107 in motion, noise, dimness and behind
/// static logos, else pictures of two clips) one measured 4, all others up to 2; half of the covers that look
/// like cuts 5 and more.
const CONTINUED_HALF: u64 = 4;

/// Distance up to which the layout is the same, so that a cut can only be a retake, in thousandths of a
/// deviation. Retakes measured 30, motion within shots mostly below 60.
const RETAKE_DISTANCE: u64 = 80;
/// Prominence, in thousandths, below which no retake is sought; retakes measured 3,500 and more.
const RETAKE_PROMINENCE: u64 = 2000;

/// Level up to which a cell that is as dark in both pictures counts as a black bar.
const BLACK: u16 = 18 * LEVEL as u16;
/// Least change of a cell that counts: this floor, plus a fraction of the picture's deviation.
const CHANGE_FLOOR: u32 = LEVEL / 4;
const CHANGE_PART: u32 = 32;

/// Floor added to the context; a step below an eighth of a level is a repeated picture.
const STEP_FLOOR: u64 = 8;
/// Smallest step of a cut: half a level.
const STEP_MIN: u32 = 32;

/// Frames back and ahead compared across a cut; the adjacent pair comes first. The others reveal a return to
/// the same shot after a flash of one or two frames.
const PAIRS: [(isize, isize); 9] =
    [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2)];
/// Frames back whose steps measure the usual motion.
const CONTEXT_BACK: isize = 7;

/// Returns the mean over the cells of the smallest change within the shift tolerance, in 1/[`LEVEL`].
pub(crate) fn step(old: &CellThumbnail, new: &CellThumbnail) -> u32 {
    nearest_difference(&old.levels, &new.levels) * LEVEL / CELLS as u32
}

/// Returns the strength of a cut between the frame and the one before it; 0.5 is a cut.
pub(crate) fn score(frames: &FrameNeighbourhood<'_>) -> Score {
    let (Some(frame), Some(previous)) = (frames.at(0), frames.at(-1)) else { return Score::ZERO };
    let prominence = u64::from(frame.step) * 1000 / (context(frames) + STEP_FLOOR);
    // A change no larger than those of its neighbours is motion, a fade or a ramp.
    if frame.step < STEP_MIN || prominence < 1000 {
        return Score::ZERO;
    }
    let same_layout = distance(&previous.thumb, &frame.thumb) <= RETAKE_DISTANCE;
    if same_layout && prominence < RETAKE_PROMINENCE {
        return Score::ZERO;
    }
    let noise = noise_of_cells(previous);
    let mut least = Score::ONE;
    for (back, ahead) in PAIRS {
        let (Some(old), Some(new)) = (frames.at(-back), frames.at(ahead)) else { continue };
        if (back, ahead) != (1, 0) && !frames.are_close(-back, ahead) {
            continue;
        }
        least = least.min(if same_layout {
            relit_cut::score(frames, &old.thumb, &new.thumb)
        } else {
            strength(&old.thumb, &new.thumb, prominence, noise)
        });
        if least < HALF {
            return least;
        }
    }
    if same_layout {
        return least;
    }
    let moved = global_motion::moved_distance(&previous.thumb, &frame.thumb);
    least = least.min(Score::from_ratio(moved, 2 * MOVED_HALF));
    if least < HALF {
        return least;
    }
    let changed = changed_tiles(&previous.thumb, &frame.thumb, noise);
    match continued::windows(&previous.thumb, &frame.thumb, &changed) as u64 {
        0 => least,
        windows => least.min(Score::from_ratio(CONTINUED_HALF, 2 * windows)),
    }
}

/// Returns the motion without a cut: the third largest step before, since a flash or a short shot makes two,
/// or the smaller of the two steps ahead if that is larger.
fn context(frames: &FrameNeighbourhood<'_>) -> u64 {
    let ahead = [1, 2].into_iter().filter_map(|at| frames.at(at)).map(|slot| slot.step).min();
    let mut largest = [0; 3];
    for mut step in (1..=CONTEXT_BACK).filter_map(|back| Some(frames.at(-back)?.step)) {
        for slot in &mut largest {
            if step > *slot {
                std::mem::swap(slot, &mut step);
            }
        }
    }
    u64::from(largest[2].max(ahead.unwrap_or(0)))
}

/// Returns the standard deviation that noise gives the mean of a cell, in 1/[`LEVEL`].
fn noise_of_cells(slot: &WindowSlot) -> u32 {
    (slot.noise * (LEVEL * LEVEL / SPREAD) / slot.thumb.cell_samples.max(1)).isqrt()
}

fn strength(old: &CellThumbnail, new: &CellThumbnail, prominence: u64, noise: u32) -> Score {
    let distance = distance(old, new);
    let alone = Score::from_ratio(distance, 2 * DISTANCE_HALF);
    let prominent = Score::from_ratio(distance * prominence, 2000 * PROMINENT_HALF);
    let least = alone.min(prominent);
    if least < HALF { least } else { least.min(area_score(changed_area(old, new, noise))) }
}

/// Interpolates linearly between no change (0), [`AREA_HALF`] (0.5) and the whole picture (1).
fn area_score(area: u64) -> Score {
    if area <= AREA_HALF {
        Score::from_ratio(area, 2 * AREA_HALF)
    } else {
        Score::from_ratio(1000 + area - 2 * AREA_HALF, 2 * (1000 - AREA_HALF))
    }
}

/// Returns the mean nearest difference of the pictures after normalising brightness and contrast, in
/// thousandths of a deviation.
fn distance(old: &CellThumbnail, new: &CellThumbnail) -> u64 {
    let difference = nearest_difference(&normalised(old), &normalised(new));
    u64::from(difference) * 1000 / u64::from(DEVIATION * CELLS as u32)
}

fn normalised(thumb: &CellThumbnail) -> [u8; CELLS] {
    let factor = ((DEVIATION << 16) / (thumb.deviation + DEVIATION_FLOOR)) as i32;
    thumb.luma.map(|cell| {
        let difference = i32::from(cell) - thumb.mean as i32;
        (128 + ((difference * factor) >> 16)).clamp(0, 255) as u8
    })
}

/// Returns the share of the tiles that changed, in thousandths.
fn changed_area(old: &CellThumbnail, new: &CellThumbnail, noise: u32) -> u64 {
    let tiles = changed_tiles(old, new, noise);
    let lit = tiles.iter().flatten().count();
    let changed = tiles.iter().filter(|&&tile| tile == Some(true)).count();
    // One more tile in the divisor: a picture that is black but for a tile changes little area.
    changed as u64 * 1000 / (lit as u64 + 1)
}

/// For each tile, true if it changed; `None` for black bars of both pictures.
pub(crate) type ChangedTiles = [Option<bool>; TILES];

/// Returns the tiles in which three tenths of the cells have no similar value within the shift tolerance;
/// black bars of both pictures do not count.
///
/// Tiles, because some cells of unrelated pictures are alike by chance, but hardly a whole tile; a pop-up or
/// a new page leaves whole tiles alike.
fn changed_tiles(old: &CellThumbnail, new: &CellThumbnail, noise: u32) -> ChangedTiles {
    let threshold = (CHANGE_FLOOR + noise + old.deviation.max(new.deviation) / CHANGE_PART) as u16;
    let mut changed = [0u32; TILES];
    let mut counted = [0u32; TILES];
    nearest_each(&old.luma, &new.luma, |y, nearest: &[u16; LUMA_COLUMNS]| {
        for (x, &nearest) in nearest.iter().enumerate() {
            let (cell, tile) = (y * LUMA_COLUMNS + x, y / TILE * TILE_COLUMNS + x / TILE);
            if old.luma[cell] > BLACK || new.luma[cell] > BLACK {
                counted[tile] += 1;
                changed[tile] += u32::from(nearest > threshold);
            }
        }
    });
    std::array::from_fn(|tile| (counted[tile] > 0).then(|| changed[tile] * 10 >= 3 * counted[tile]))
}

fn nearest_difference(old: &[u8; CELLS], new: &[u8; CELLS]) -> u32 {
    let mut total = 0;
    nearest_each(old, new, |_, nearest: &[u8; LUMA_COLUMNS]| {
        total += nearest.iter().map(|&difference| u32::from(difference)).sum::<u32>();
    });
    total
}

/// Cell value with 8 or 16 bits.
trait Cell: Copy + Default {
    const MAX: Self;
    fn nearer(self, other: Self, than: Self) -> Self;
}

macro_rules! cell {
    ($type:ty) => {
        impl Cell for $type {
            const MAX: $type = <$type>::MAX;
            fn nearer(self, other: $type, than: $type) -> $type {
                than.min(self.abs_diff(other))
            }
        }
    };
}

cell!(u8);
cell!(u16);

/// Calls `take` for each row with its smallest absolute differences within the shift tolerance.
fn nearest_each<C: Cell>(
    old: &[C; CELLS],
    new: &[C; CELLS],
    mut take: impl FnMut(usize, &[C; LUMA_COLUMNS]),
) {
    let mut padded = [[C::default(); PADDED]; LUMA_ROWS];
    for (wide, row) in padded.iter_mut().zip(old.chunks_exact(LUMA_COLUMNS)) {
        wide[..REACH_X].fill(row[0]);
        wide[REACH_X..][..LUMA_COLUMNS].copy_from_slice(row);
        wide[REACH_X + LUMA_COLUMNS..].fill(row[LUMA_COLUMNS - 1]);
    }
    for (y, row) in new.as_chunks::<LUMA_COLUMNS>().0.iter().enumerate() {
        let mut nearest = [C::MAX; LUMA_COLUMNS];
        for wide in &padded[y.saturating_sub(REACH_Y)..(y + REACH_Y + 1).min(LUMA_ROWS)] {
            nearest = std::array::from_fn(|x| {
                (x..=x + 2 * REACH_X)
                    .fold(nearest[x], |nearest, at| row[x].nearer(wide[at], nearest))
            });
        }
        take(y, &nearest);
    }
}
