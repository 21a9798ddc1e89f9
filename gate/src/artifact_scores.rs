//! Temporal artifacts: flicker, ghosting and noise, from a few neighbouring frames.
//!
//! Each score is `x / (x + h)` of a measured strength `x`, so that it grows without a ceiling to
//! choose; the half-way strengths `h` stand beside what calm and disturbed video measured.

use media::Score;

use crate::{
    thumbnail::{BLOCKS, CELLS, CellThumbnail, LEVEL, SPREAD},
    window::FrameNeighbourhood,
};

/// Change of brightness that three quarters of the blocks share, in 1/[`LEVEL`].
///
/// 0 where more than a quarter goes the other way, as in motion, shake and most pop-ups.
pub(crate) fn brightness_change(old: &CellThumbnail, new: &CellThumbnail) -> i32 {
    let mut changes: [i32; BLOCKS] =
        std::array::from_fn(|block| i32::from(new.blocks[block]) - i32::from(old.blocks[block]));
    changes.sort_unstable();
    let (low, high) = (changes[BLOCKS / 4], changes[BLOCKS - 1 - BLOCKS / 4]);
    if low > 0 { low } else { high.min(0) }
}

/// Frames of the flicker rule: back from the first change to look at, and ahead.
const FLICKER: std::ops::RangeInclusive<isize> = -7..=2;
/// A reversal smaller than this does not end a swing, in 1/[`LEVEL`].
const SWING_MIN: i32 = LEVEL as i32 / 2;
/// Third swing that scores a half, in 1/[`LEVEL`].
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
    // The swing under way, and how far the brightness has come back from its end.
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

/// Change of a cell between the frames around that counts as motion: less shows no double image.
const MOVING: i32 = 6 * LEVEL as i32;
/// Spread of a cell below which a double image does not show.
const TEXTURED: u32 = 25 * SPREAD;
/// Moving cells below which there is nothing to judge.
const MOVING_MIN: i64 = CELLS as i64 / 50;
/// Mean share of its spread that a moving cell loses and that scores a half, in thousandths. A
/// mixture of two pictures loses 350 to 450 where they do not overlap; coarsely coded B pictures,
/// which mix as well, 130; others 100 both ways.
const GHOSTING_HALF: u64 = 200;

/// Strength of a mixture of the neighbouring pictures.
///
/// The mean of two pictures lies half way between them in every cell, which smooth motion may do
/// too, and loses contrast within the cells where they differ, which motion does not.
pub(crate) fn ghosting(frames: &FrameNeighbourhood<'_>) -> Score {
    let (Some(old), Some(frame), Some(new)) = (frames.at(-1), frames.at(0), frames.at(1)) else {
        return Score::ZERO;
    };
    if !frames.are_close(-1, 1) {
        return Score::ZERO;
    }
    let (old, frame, new) = (&old.thumb, &frame.thumb, &new.thumb);
    // A fade to or from black loses spread as the square of its gain.
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

/// Rank of the cell, of all sorted by noise, that stands for the picture: two fifths are noisier.
const NOISE_RANK: usize = CELLS * 3 / 5;

/// Less noise than two squared levels is none.
const NOISE_MIN: u32 = 2 * SPREAD;

/// Variance of the samples, in 1/[`SPREAD`], that is new in each frame and that no motion explains.
///
/// Noise moves the mean of a cell from frame to frame by its variance over the cell's samples.
/// Motion moves it more than the cell's own spread allows, or only on one side of a cut; flat
/// cells bound it from above.
pub(crate) fn noise_variance(frames: &FrameNeighbourhood<'_>) -> u32 {
    let (Some(old), Some(frame), Some(new)) = (frames.at(-1), frames.at(0), frames.at(1)) else {
        return 0;
    };
    if !frames.are_close(-1, 1) {
        return 0;
    }
    let (old, frame, new) = (&old.thumb, &frame.thumb, &new.thumb);
    // The lesser of two squared changes is a quarter of the variance at this rank.
    let scale = u64::from(4 * SPREAD * frame.cell_samples);
    let mut noise: [u32; CELLS] = std::array::from_fn(|cell| {
        let value = frame.luma[cell];
        let change = u64::from(value.abs_diff(old.luma[cell]).min(value.abs_diff(new.luma[cell])));
        let variance = change * change * scale / u64::from(LEVEL * LEVEL);
        let spread = u64::from(frame.spread[cell]);
        // Bounded by a spread, so it fits.
        if variance > 4 * spread { 0 } else { variance.min(spread) as u32 }
    });
    // Most video is calm, and counting is cheaper than ranking.
    if noise.iter().filter(|&&variance| variance >= NOISE_MIN).count() < CELLS - NOISE_RANK {
        return 0;
    }
    let (_, ranked, _) = noise.select_nth_unstable(NOISE_RANK);
    *ranked
}

/// Noise variance that scores a half in a picture that was clean, in 1/[`SPREAD`]: a standard
/// deviation of five levels.
const NOISE_HALF: u64 = 24 * SPREAD as u64;
/// Noise that counts as usual at most: what is twice as strong is an artifact however long it lasts.
const USUAL_MAX: u32 = 25 * SPREAD;
/// Frames whose noise is the usual one: far enough back not to hold the spike itself.
const USUAL: std::ops::RangeInclusive<isize> = 2..=7;
/// Fewer frames than this do not tell what is usual.
const USUAL_MIN: usize = 3;
/// A step of this size ends what is known of the noise before.
const JUMP: u32 = 8 * LEVEL;

/// Strength of the frame's noise against what is usual in the frames before.
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
