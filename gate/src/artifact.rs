//! Temporal artifacts: flicker, ghosting and noise, from a few neighbouring frames.
//!
//! Each score is `x / (x + h)` of a measured strength `x`, so that it grows without a ceiling to
//! choose; the half-way strengths `h` stand beside what calm and disturbed video measured.

use media::Score;

use crate::{
    thumb::{BLOCKS, CELLS, LEVEL, SPREAD, Thumb},
    window::Neighbours,
};

/// Change of brightness that most of the picture shares, in 1/[`LEVEL`]: the median over the
/// blocks, so that moving objects, pop-ups and shaking edges count nothing.
pub(crate) fn brightness_change(old: &Thumb, new: &Thumb) -> i32 {
    let mut changes: [i32; BLOCKS] =
        std::array::from_fn(|block| i32::from(new.blocks[block]) - i32::from(old.blocks[block]));
    let (_, median, _) = changes.select_nth_unstable(BLOCKS / 2);
    *median
}

/// Frames of the flicker rule: back from the first change to look at, and ahead.
const FLICKER: std::ops::RangeInclusive<isize> = -7..=2;
/// A reversal smaller than this does not end a swing, in 1/[`LEVEL`].
const SWING_MIN: i32 = LEVEL as i32 / 2;
/// Third swing that scores a half, in 1/[`LEVEL`].
const FLICKER_HALF: u64 = 5 * LEVEL as u64 / 2;

/// Strength of periodic brightness change: the third largest swing up or down around the frame.
///
/// A step or a fade is one swing, a flash two.
pub(crate) fn flicker(frames: &Neighbours<'_>) -> Score {
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

/// Change of a cell between the frames around that counts as motion.
const MOVING: i32 = 3 * LEVEL as i32;
/// Spread of a cell below which a double image does not show.
const TEXTURED: u32 = 25 * SPREAD;
/// Moving cells below which there is nothing to judge.
const MOVING_MIN: u64 = CELLS as u64 / 50;

/// Strength of a mixture of neighbouring pictures.
pub(crate) fn ghosting(frames: &Neighbours<'_>) -> Score {
    let (Some(old), Some(frame), Some(new)) = (frames.at(-1), frames.at(0), frames.at(1)) else {
        return Score::ZERO;
    };
    if !frames.are_close(-1, 1) {
        return Score::ZERO;
    }
    let (mut mixed, mut moving) = (0u64, 0u64);
    for cell in 0..CELLS {
        let (a, n, b) = (
            i32::from(old.thumb.luma[cell]),
            i32::from(frame.thumb.luma[cell]),
            i32::from(new.thumb.luma[cell]),
        );
        let around = (old.thumb.spread[cell] + new.thumb.spread[cell]) / 2;
        let change = (a - b).abs();
        if change < MOVING || around < TEXTURED {
            continue;
        }
        moving += 1;
        let off_line = (2 * n - a - b).abs();
        if off_line > change / 2 + LEVEL as i32 {
            continue;
        }
        let dip = around.saturating_sub(frame.thumb.spread[cell]);
        mixed += (u64::from(dip) * 2000 / u64::from(around)).min(1000);
    }
    half_way(mixed, moving.max(MOVING_MIN) * 1000 / 4)
}

/// Pixel noise variance in 1/[`SPREAD`] of the frame that no motion explains.
pub(crate) fn noise_variance(frames: &Neighbours<'_>) -> u32 {
    let Some(frame) = frames.at(0) else { return 0 };
    let before = frames.at(-1).filter(|_| frames.are_close(-1, 0));
    let after = frames.at(1).filter(|_| frames.are_close(0, 1));
    if before.is_none() && after.is_none() {
        return 0;
    }
    let mut each = [0u32; CELLS];
    for (cell, variance) in each.iter_mut().enumerate() {
        let change = |other: Option<&crate::window::Slot>| {
            other.map(|slot| slot.thumb.luma[cell].abs_diff(frame.thumb.luma[cell]))
        };
        let least = change(before).into_iter().chain(change(after)).min().unwrap_or(0);
        let square = u64::from(least) * u64::from(least) * u64::from(SPREAD)
            / u64::from(LEVEL * LEVEL / 4)
            * u64::from(frame.thumb.cell_samples);
        let spread = frame.thumb.spread[cell];
        let square = u32::try_from(square).unwrap_or(u32::MAX);
        *variance = if square > 4 * spread { 0 } else { square.min(spread) };
    }
    let (_, rank, _) = each.select_nth_unstable(CELLS * 3 / 5);
    *rank
}

/// Noise variance that scores a half.
const NOISE_HALF: u64 = 60 * SPREAD as u64;

/// Strength of the frame's noise.
pub(crate) fn noise_score(_frames: &Neighbours<'_>, noise: u32) -> Score {
    half_way(u64::from(noise), NOISE_HALF)
}
