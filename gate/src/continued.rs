//! Detection of a part of the picture that continues although all else changes as at a cut.
//!
//! A near, large, fast object covers most of a picture within a frame or two, and a hand-held camera moves
//! the rest, so that nearly every tile changes. Yet windows of the rest are found close by, all shifted
//! alike; after a cut hardly one is. Runs only where a cut would be reported: the search is expensive.

use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    scene::{ChangedTiles, TILE, TILE_COLUMNS},
    thumbnail::{CellThumbnail, LEVEL},
};

/// Cells along a side of a window: two tiles.
const SIDE: usize = 2 * TILE;
/// Columns and rows of windows in a picture, one tile apart.
const COLUMNS: usize = (LUMA_COLUMNS - SIDE) / TILE + 1;
const ROWS: usize = (LUMA_ROWS - SIDE) / TILE + 1;
/// Cells of a window.
const AREA: i32 = (SIDE * SIDE) as i32;
/// Largest shift across and down, in cells.
const ACROSS: i32 = 6;
const DOWN: i32 = 4;
/// Fractions of a cell in which shifts are searched, because a hand moves the camera by less than a cell.
const PARTS: i32 = 4;
/// Least mean deviation of a window that makes it recognisable: two levels.
const STRUCTURE_MIN: i32 = 2 * LEVEL as i32;
/// Largest change of a window's mean that light explains.
const LIGHT_MAX: i32 = 40 * LEVEL as i32;
/// Least number of changed tiles in a window.
const CHANGED_MIN: usize = 2;

/// Returns the largest number of changed windows that are found close by with the same shift.
pub(crate) fn windows(old: &CellThumbnail, new: &CellThumbnail, changed: &ChangedTiles) -> usize {
    let moved: [_; COLUMNS * ROWS] = std::array::from_fn(|at| {
        let (x, y) = (at % COLUMNS * TILE, at / COLUMNS * TILE);
        let has_changed = changed_within(changed, x, y) >= CHANGED_MIN;
        has_changed.then(|| Window::of(new, x, y).found_in(old)).flatten()
    });
    let moved = || moved.iter().flatten();
    let alike = |a: &[i32; 2], b: &[i32; 2]| (0..2).all(|at| (a[at] - b[at]).abs() <= PARTS);
    moved().map(|one| moved().filter(|other| alike(one, other)).count()).max().unwrap_or(0)
}

fn changed_within(changed: &ChangedTiles, x: usize, y: usize) -> usize {
    let first = y / TILE * TILE_COLUMNS + x / TILE;
    let tiles = [first, first + 1, first + TILE_COLUMNS, first + TILE_COLUMNS + 1];
    tiles.into_iter().filter(|&tile| changed[tile] == Some(true)).count()
}

/// Square of cells and its position.
struct Window {
    cells: [i32; AREA as usize],
    x: i32,
    y: i32,
    /// Sum of the absolute differences from the mean.
    structure: i32,
}

impl Window {
    fn of(thumb: &CellThumbnail, x: usize, y: usize) -> Window {
        let corner = y * LUMA_COLUMNS + x;
        let cells = std::array::from_fn(|at| {
            i32::from(thumb.luma[corner + at / SIDE * LUMA_COLUMNS + at % SIDE])
        });
        let structure = deviation(&cells).0;
        Window { cells, x: x as i32, y: y as i32, structure }
    }

    /// Returns the shift in fractions of a cell to the same view in the old picture; `None` if there is none.
    fn found_in(&self, old: &CellThumbnail) -> Option<[i32; 2]> {
        if self.structure < AREA * STRUCTURE_MIN {
            return None;
        }
        let whole = (-DOWN..=DOWN).flat_map(|dy| (-ACROSS..=ACROSS).map(move |dx| [dx, dy]));
        let (left, [dx, dy]) = self.nearest(old, whole.map(|shift| shift.map(|by| by * PARTS)))?;
        // Refinement by a fraction of a cell reduces the difference only so far.
        if 5 * left > 3 * self.structure {
            return None;
        }
        let half = PARTS / 2;
        let parts = (-half..=half).flat_map(|y| (-half..=half).map(move |x| [dx + x, dy + y]));
        let (left, shift) = self.nearest(old, parts)?;
        // A window that does not move, such as a channel logo, is no evidence against a cut.
        let stands = self.difference(old, [0, 0]).is_some_and(|still| 5 * left >= 4 * still);
        (4 * left <= self.structure && !stands).then_some(shift)
    }

    /// Returns the least difference from the old picture at these shifts, and the first shift that has it.
    fn nearest(
        &self,
        old: &CellThumbnail,
        shifts: impl Iterator<Item = [i32; 2]>,
    ) -> Option<(i32, [i32; 2])> {
        shifts.filter_map(|shift| Some((self.difference(old, shift)?, shift))).min_by_key(|it| it.0)
    }

    /// Returns the sum of differences beyond light at a shift; `None` outside the picture or [`LIGHT_MAX`].
    fn difference(&self, old: &CellThumbnail, [dx, dy]: [i32; 2]) -> Option<i32> {
        let (x, y) = (self.x + dx.div_euclid(PARTS), self.y + dy.div_euclid(PARTS));
        let [right, below] = [dx, dy].map(|by| by.rem_euclid(PARTS));
        let (last_x, last_y) = (x + SIDE as i32 + right.signum(), y + SIDE as i32 + below.signum());
        if x < 0 || y < 0 || last_x > LUMA_COLUMNS as i32 || last_y > LUMA_ROWS as i32 {
            return None;
        }
        let corner = y as usize * LUMA_COLUMNS + x as usize;
        let mut differences = [0; AREA as usize];
        let rows = differences.as_chunks_mut::<SIDE>().0.iter_mut();
        for (row, (out, own)) in rows.zip(self.cells.as_chunks::<SIDE>().0).enumerate() {
            let first = corner + row * LUMA_COLUMNS;
            let row_at = |cell: usize| old.luma[cell..].first_chunk::<SIDE>();
            let top = row_at(first)?;
            if right == 0 && below == 0 {
                *out = std::array::from_fn(|at| own[at] - i32::from(top[at]));
                continue;
            }
            let (next, under) = (right.signum() as usize, below.signum() as usize * LUMA_COLUMNS);
            let [beside, low, last] =
                [row_at(first + next)?, row_at(first + under)?, row_at(first + next + under)?];
            *out = std::array::from_fn(|at| {
                let [a, b, c, d] = [top, beside, low, last].map(|row| i32::from(row[at]));
                let (above, under) =
                    ((PARTS - right) * a + right * b, (PARTS - right) * c + right * d);
                own[at] - ((PARTS - below) * above + below * under) / (PARTS * PARTS)
            });
        }
        let (left, light) = deviation(&differences);
        (light.abs() <= LIGHT_MAX).then_some(left)
    }
}

/// Returns the sum of the absolute differences from the mean, and the mean.
fn deviation(values: &[i32; AREA as usize]) -> (i32, i32) {
    let mean = values.iter().sum::<i32>() / AREA;
    (values.iter().map(|value| (value - mean).abs()).sum(), mean)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{scene::TILES, thumbnail::CELLS};

    /// Returns a picture of smooth hills, different for each seed, shifted by `right` fractions of a cell.
    fn hills(seed: f64, right: f64) -> [u16; CELLS] {
        std::array::from_fn(|cell| {
            let x = (cell % LUMA_COLUMNS) as f64 + right / f64::from(PARTS);
            let y = (cell / LUMA_COLUMNS) as f64;
            let hill = |a: f64, b: f64| (a * x + b * y * seed).sin();
            (8000.0 + 1500.0 * (hill(0.7, 0.9) + hill(1.3 * seed, 0.4) + hill(0.2, 1.1))) as u16
        })
    }

    fn thumb(luma: [u16; CELLS]) -> CellThumbnail {
        CellThumbnail { luma, ..CellThumbnail::blank() }
    }

    #[test]
    fn what_is_left_of_a_moved_picture_goes_on_and_another_picture_does_not() {
        let old = thumb(hills(1.0, 0.0));
        let (moved, other) = (hills(1.0, 7.0), hills(1.7, 0.0));
        let covered: [u16; CELLS] = std::array::from_fn(|cell| {
            let is_seen = cell % LUMA_COLUMNS < LUMA_COLUMNS / 4;
            if is_seen { moved[cell] } else { other[cell] }
        });
        let darker = covered.map(|level| level - 10 * LEVEL as u16);
        let cases = [
            ("moved", moved, 117..=135),
            ("three quarters covered", covered, 18..=27),
            ("and darker", darker, 18..=27),
            ("standing", old.luma, 0..=0),
            ("another", other, 0..=2),
            ("flat", [8000; CELLS], 0..=0),
        ];
        for (name, luma, expected) in cases {
            let count = windows(&old, &thumb(luma), &[Some(true); TILES]);
            assert!(expected.contains(&count), "{name}: {count}");
        }
        assert_eq!(windows(&old, &thumb(moved), &[Some(false); TILES]), 0, "nothing changed");
    }
}
