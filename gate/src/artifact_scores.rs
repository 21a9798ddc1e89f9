//! Temporal artifacts: flicker, ghosting and noise, from a few neighbouring frames.
//!
//! Each score is `x / (x + h)` of a measured strength `x`, which needs no upper limit. The comments of the
//! half-way strengths `h` give the strengths measured in calm and disturbed video.

use media::Score;

use crate::{
    thumbnail::{BLOCKS, CELLS, CellThumbnail, LEVEL, SPREAD},
    window::FrameNeighbourhood,
};

/// Returns the change of brightness that three quarters of the blocks share, in 1/[`LEVEL`].
///
/// Returns 0 if more than a quarter of the blocks change the other way, as in motion, shake and most pop-ups.
pub(crate) fn brightness_change(old: &CellThumbnail, new: &CellThumbnail) -> i32 {
    let mut changes: [i32; BLOCKS] =
        std::array::from_fn(|block| i32::from(new.blocks[block]) - i32::from(old.blocks[block]));
    changes.sort_unstable();
    let (low, high) = (changes[BLOCKS / 4], changes[BLOCKS - 1 - BLOCKS / 4]);
    if low > 0 { low } else { high.min(0) }
}

/// Offsets of the frames that the flicker rule reads.
const FLICKER: std::ops::RangeInclusive<isize> = -7..=2;
/// Smallest reversal that ends a swing, in 1/[`LEVEL`].
const SWING_MIN: i32 = LEVEL as i32 / 2;
/// Third largest swing that scores 0.5, in 1/[`LEVEL`].
const FLICKER_HALF: u64 = 4 * LEVEL as u64;

/// Strength of periodic brightness change: the third largest swing up or down around the frame.
///
/// A step or a fade is one swing, a flash two.
pub(crate) fn flicker(frames: &FrameNeighbourhood<'_>) -> Score {
    let mut largest = [0i32; 3];
    let mut note = |swing: i32| {
        let mut swing = swing.abs();
        for slot in &mut largest {
            if swing > *slot {
                std::mem::swap(slot, &mut swing);
            }
        }
    };
    // Size of the current swing, and the reversal since its end.
    let (mut swing, mut back) = (0i32, 0i32);
    for at in FLICKER {
        let Some(slot) = frames.at(at) else { continue };
        if frames.at(at - 1).is_none() || !frames.are_close(at - 1, at) {
            continue;
        }
        back += slot.brightness_change;
        if swing == 0 || back.signum() == swing.signum() {
            swing += back;
            back = 0;
        } else if back.abs() >= SWING_MIN {
            note(swing);
            swing = back;
            back = 0;
        }
    }
    note(swing);
    half_way(largest[2] as u64, FLICKER_HALF)
}

fn half_way(strength: u64, half: u64) -> Score {
    Score::from_ratio(strength, strength + half)
}

/// Change of a cell from the previous to the next frame that counts as motion; less shows no double image.
const MOVING: i32 = 6 * LEVEL as i32;
/// Spread of a cell below which a double image is invisible.
const TEXTURED: u32 = 25 * SPREAD;
/// Least divisor of the mean, so that few moving cells score low.
const MOVING_MIN: i64 = CELLS as i64 / 50;
/// Mean share of its spread that a moving cell loses and that scores 0.5, in thousandths. A mixture of two
/// pictures loses 350 to 450 where they do not overlap; coarsely coded B pictures, which also mix, lose 130;
/// other pictures lose or gain up to 100.
const GHOSTING_HALF: u64 = 200;

/// Returns the strength of a mixture of the neighbouring pictures.
///
/// Every cell of a mean of two pictures lies half way between them, which smooth motion may also do, and
/// loses contrast where they differ, which motion does not.
pub(crate) fn ghosting(frames: &FrameNeighbourhood<'_>) -> Score {
    let (Some(old), Some(frame), Some(new)) = (frames.at(-1), frames.at(0), frames.at(1)) else {
        return Score::ZERO;
    };
    if !frames.are_close(-1, 1) {
        return Score::ZERO;
    }
    let (old, frame, new) = (&old.thumb, &frame.thumb, &new.thumb);
    // In a fade to or from black, the spread falls with the square of the gain.
    if 2 * old.deviation.max(new.deviation) > 3 * old.deviation.min(new.deviation) {
        return Score::ZERO;
    }
    let (mut lost, mut moving) = (0i64, 0i64);
    for cell in 0..CELLS {
        let [a, n, b] = [old, frame, new].map(|thumb| i32::from(thumb.luma[cell]));
        let around = (old.spread[cell] + new.spread[cell]) / 2;
        let change = (a - b).abs();
        if change < MOVING || around < TEXTURED {
            continue;
        }
        moving += 1;
        let off_line = (2 * n - a - b).abs();
        if off_line <= change / 4 + LEVEL as i32 / 2 {
            let (around, within) = (i64::from(around), i64::from(frame.spread[cell]));
            lost += ((around - within) * 1000 / around).max(-1000);
        }
    }
    let mean = lost / moving.max(MOVING_MIN);
    half_way(mean.max(0).unsigned_abs(), GHOSTING_HALF)
}

/// Rank, by noise, of the cell that represents the picture: two fifths of the cells are noisier.
const NOISE_RANK: usize = CELLS * 3 / 5;

/// Noise below two squared levels counts as none.
const NOISE_MIN: u32 = 2 * SPREAD;

/// Returns the sample variance, in 1/[`SPREAD`], that is new in each frame and not explained by motion.
///
/// Noise moves the mean of a cell between frames by its variance over the number of samples. Motion moves it
/// by more than the cell's spread allows, or on one side of the frame only; flat cells bound the result from
/// above.
pub(crate) fn noise_variance(frames: &FrameNeighbourhood<'_>) -> u32 {
    let (Some(old), Some(frame), Some(new)) = (frames.at(-1), frames.at(0), frames.at(1)) else {
        return 0;
    };
    if !frames.are_close(-1, 1) {
        return 0;
    }
    let (old, frame, new) = (&old.thumb, &frame.thumb, &new.thumb);
    // At this rank, the lesser of two squared changes is a quarter of the variance.
    let scale = u64::from(4 * SPREAD * frame.cell_samples);
    let mut noise: [u32; CELLS] = std::array::from_fn(|cell| {
        let value = frame.luma[cell];
        let change = u64::from(value.abs_diff(old.luma[cell]).min(value.abs_diff(new.luma[cell])));
        let variance = change * change * scale / u64::from(LEVEL * LEVEL);
        let spread = u64::from(frame.spread[cell]);
        // The cast cannot truncate: the value is at most the 32-bit spread.
        if variance > 4 * spread { 0 } else { variance.min(spread) as u32 }
    });
    // Fast path: most video is calm, and counting costs less than ranking.
    if noise.iter().filter(|&&variance| variance >= NOISE_MIN).count() < CELLS - NOISE_RANK {
        return 0;
    }
    let (_, ranked, _) = noise.select_nth_unstable(NOISE_RANK);
    *ranked
}

/// Noise variance that scores 0.5 in an otherwise clean picture, in 1/[`SPREAD`]: a standard deviation of
/// five levels.
const NOISE_HALF: u64 = 24 * SPREAD as u64;
/// Upper limit of the usual noise: noise of twice this strength is an artifact however long it lasts.
const USUAL_MAX: u32 = 25 * SPREAD;
/// Distance back, in frames, of those that define the usual noise: far enough to exclude the spike itself.
const USUAL: std::ops::RangeInclusive<isize> = 2..=7;
/// Least number of frames that define the usual noise.
const USUAL_MIN: usize = 3;
/// Step of the scene at which earlier noise is ignored.
const JUMP: u32 = 8 * LEVEL;

/// Returns the strength of the frame's noise relative to the usual noise of the frames before.
pub(crate) fn noise_score(frames: &FrameNeighbourhood<'_>, noise: u32) -> Score {
    half_way(u64::from(noise), NOISE_HALF + 2 * u64::from(usual_noise(frames)))
}

fn usual_noise(frames: &FrameNeighbourhood<'_>) -> u32 {
    let mut known = [0; 6];
    let mut count = 0;
    for back in 0..=*USUAL.end() {
        let Some(slot) = frames.at(-back) else { break };
        if USUAL.contains(&back) {
            known[count] = slot.noise;
            count += 1;
        }
        if slot.step > JUMP {
            break;
        }
    }
    if count < USUAL_MIN {
        return USUAL_MAX;
    }
    let (_, median, _) = known[..count].select_nth_unstable(count / 2);
    (*median).min(USUAL_MAX)
}
