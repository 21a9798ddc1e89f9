//! Detection of a picture that is the previous one, shifted as a whole.
//!
//! The scene rule tolerates small shifts and steady motion; a camera that is swung round shifts the picture
//! further. Runs only where a cut would be reported, because the search is expensive.

use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumbnail::{CellThumbnail, LEVEL},
};

/// Largest shift in cells; more than half of the picture remains in view.
const ACROSS: isize = 24;
const DOWN: isize = 8;
/// Step in cells of the coarse search.
const COARSE: usize = 2;

/// Returns the mean difference of the overlapping parts at the best shift, in thousandths of the picture's
/// deviation.
pub(crate) fn moved_distance(old: &CellThumbnail, new: &CellThumbnail) -> u64 {
    let shifts = (-DOWN..=DOWN).flat_map(|dy| (-ACROSS..=ACROSS).map(move |dx| (dx, dy)));
    let best = shifts.min_by_key(|&(dx, dy)| mean_difference(old, new, dx, dy, COARSE));
    let (dx, dy) = best.unwrap_or((0, 0));
    let finest = (-1..=1)
        .flat_map(|y| (-1..=1).map(move |x| (dx + x, dy + y)))
        .map(|(dx, dy)| mean_difference(old, new, dx, dy, 1))
        .min();
    u64::from(finest.unwrap_or(u32::MAX)) * 1000 / u64::from(new.deviation + 4 * LEVEL)
}

/// Returns the mean absolute difference, in 1/[`LEVEL`], of every `every`th overlapping cell.
fn mean_difference(
    old: &CellThumbnail,
    new: &CellThumbnail,
    dx: isize,
    dy: isize,
    every: usize,
) -> u32 {
    let (mut sum, mut count) = (0, 0);
    for y in (0..LUMA_ROWS).step_by(every) {
        let Some(from) = y.checked_add_signed(dy).filter(|&y| y < LUMA_ROWS) else { continue };
        let first = dx.min(0).unsigned_abs();
        let last = LUMA_COLUMNS - dx.max(0).unsigned_abs();
        let new = &new.levels[y * LUMA_COLUMNS..][first..last];
        let old = &old.levels[from * LUMA_COLUMNS..][(first as isize + dx) as usize..];
        for (&a, &b) in new.iter().zip(old).step_by(every) {
            sum += u32::from(a.abs_diff(b));
            count += 1;
        }
    }
    sum * LEVEL / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::{Fill, TestPicture};

    /// Returns the view of 64x40 cells with its corner at (x, y) of a larger random scene.
    fn view(x: usize, y: usize, seed: u64) -> CellThumbnail {
        let fill = Fill::Random(seed);
        let scene = TestPicture { fill, ..TestPicture::new(128, 80) }.frame();
        let picture = scene.pixels.host().expect("in host memory");
        let (luma, mut thumb) = (picture.luma(), CellThumbnail::blank());
        for (cell, level) in thumb.levels.iter_mut().enumerate() {
            let row = luma.row((y + cell / LUMA_COLUMNS) as u32);
            *level = luma.value8(row, (x + cell % LUMA_COLUMNS) as u32);
        }
        thumb.deviation = 74 * LEVEL;
        thumb
    }

    #[test]
    fn a_moved_picture_is_near_and_another_is_far() {
        let old = view(30, 12, 1);
        let cases = [
            ("still", view(30, 12, 1), true),
            ("right and down", view(47, 17, 1), true),
            ("left and up", view(6, 4, 1), true),
            ("too far", view(56, 12, 1), false),
            ("another", view(30, 12, 2), false),
        ];
        for (name, new, near) in cases {
            let distance = moved_distance(&old, &new);
            assert_eq!(distance == 0, near, "{name}: {distance}");
            assert_eq!(distance > 800, !near, "{name}: {distance}");
        }
    }

    #[test]
    fn flat_pictures_are_as_far_apart_as_their_levels() {
        let (old, mut new) = (CellThumbnail::blank(), CellThumbnail::blank());
        new.levels.fill(8);
        assert_eq!([&old, &new].map(|new| moved_distance(&old, new)), [0, 2000]);
    }
}
