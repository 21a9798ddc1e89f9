//! Cells that changed between two pictures because something moved.
//!
//! The deviation of the change over the picture is its noise and raises the thresholds, so that grain, drops
//! and flakes do not count; earlier changes at a place, except movement, raise them there, against leaves and
//! water. Thresholds: `make bench-activity`, rendered clips.

use media::Cells;

use super::{
    light::Light,
    luma::Luma,
    shapes::{SHAPES, Shape, Spread},
};
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumbnail::{CELLS, LEVEL},
};

/// One value per cell of a row in 1/[`LEVEL`]; 16 bits, so that a vector holds many.
type Row = [i16; LUMA_COLUMNS];
/// One value per cell of the picture.
pub(super) type Rows = [Row; LUMA_ROWS];
const NONE: Rows = [[0; LUMA_COLUMNS]; LUMA_ROWS];
const NO_CELLS: Cells = [0; LUMA_ROWS];
/// Horizontal sums around each cell.
type Across = [[i32; LUMA_COLUMNS]; LUMA_ROWS];

/// Number of cells summed together: a cell and its eight neighbours.
const NINE: i16 = 9;
/// Least change of nine cells that is movement (a seed), without noise.
const SEED: i32 = NINE as i32 * 7 * LEVEL as i32;
/// Least change of nine cells connected to a seed, without noise.
const GROWN: i32 = NINE as i32 * 4 * LEVEL as i32;
/// Factors of the noise, in quarters, added to [`SEED`] and [`GROWN`].
const SEED_NOISE: i32 = 21;
const GROWN_NOISE: i32 = 7;
/// Highest change in grain alone, in quarters of the noise; drops and flakes exceed it at times.
const GRAIN: i32 = 19;
/// Terms of the seed threshold in grain; the larger one applies. A change above grain is not grain.
const GRAIN_SEED: i32 = 85 * LEVEL as i32;
const GRAIN_SEED_NOISE: i32 = 25;
/// Largest change of nine cells that counts as noise, so that a large moving object does not hide itself.
const NOISE_MAX: i16 = NINE * 14 * LEVEL as i16;
/// Largest change of a cell that counts, so that the sum of nine fits into 16 bits.
const CHANGE_MAX: i16 = 3600;
/// Cells on each side averaged as light: objects are smaller, or have edges.
const LIGHT: usize = 4;
/// Cells on each side that belong to the place of a cell.
const PLACE: usize = 3;
/// Number of changed cells above which the change is a cut, light or camera motion.
const MOST: u32 = CELLS as u32 / 2;

/// Changes found by one comparison.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// Mean change around each cell, of any cause.
    around: Rows,
    /// Cells near apparent movement that exceeds the previous comparison: the changes there are not usual
    /// ones, and [`Changes::keep_usual`] clears them.
    unusual: Cells,
    /// Noise and maximum of the changes of nine cells.
    nine: Spread,
    /// Noise and maximum of the changes of each of [`SHAPES`].
    shapes: [Spread; SHAPES.len()],
}

impl Changes {
    pub(super) const NONE: Changes = Changes {
        around: NONE,
        unusual: NO_CELLS,
        nine: Spread::NONE,
        shapes: [Spread::NONE; SHAPES.len()],
    };

    /// Measures the changes between two pictures beyond light: per cell, nine cells and shape. Uses `room`.
    #[inline(always)]
    fn measure(&mut self, old: &Luma, new: &Luma, room: &mut Room) {
        let Room { change, sums, values, shapes, across } = room;
        beyond_light(old, new, change, sums);
        means_around::<LIGHT>(change, across, values);
        of_known(values, sums, &mut shapes[0], across);
        join(values, change, |light, change| (change - light).clamp(-CHANGE_MAX, CHANGE_MAX));
        sums_around::<1>(values, across, sums, |sum| sum as i16);
        join(values, sums, |_, sum| sum.abs());
        self.nine = Spread::of(values);
        for value in values.as_flattened_mut() {
            *value = (*value).min(NOISE_MAX);
        }
        means_around::<PLACE>(values, across, &mut self.around);
        self.unusual = NO_CELLS;
        for ((shape, strengths), spread) in SHAPES.iter().zip(shapes).zip(&mut self.shapes) {
            shape.strengths(sums, strengths);
            *spread = Spread::of(strengths);
        }
    }

    /// Clears the changes that are not usual.
    pub(super) fn keep_usual(&mut self) {
        clear(&mut self.around, &self.unusual);
        self.unusual = NO_CELLS;
    }
}

fn clear(values: &mut Rows, cells: &Cells) {
    for (row, &cells) in values.iter_mut().zip(cells) {
        let mut left = cells;
        while left != 0 {
            row[left.trailing_zeros() as usize] = 0;
            left &= left - 1;
        }
    }
}

/// Buffers of a comparison, reused to avoid allocation.
#[derive(Debug)]
pub(super) struct Room {
    change: Rows,
    sums: Rows,
    values: Rows,
    shapes: [Rows; SHAPES.len()],
    across: Across,
}

impl Room {
    /// Buffers of zeros.
    pub(super) const EMPTY: Room = Room {
        change: NONE,
        sums: NONE,
        values: NONE,
        shapes: [NONE; SHAPES.len()],
        across: [[0; LUMA_COLUMNS]; LUMA_ROWS],
    };
}

/// Compares two pictures, writes `changes` and returns the cells in which something moved. `before` holds the
/// changes of comparisons that end at or before the older picture, latest first; all but the latest are
/// reduced to usual ones. Returns no cells if the whole picture changed or `before` is empty.
#[inline(always)]
pub(super) fn compare<'a>(
    (old, new): (&Luma, &Luma),
    before: impl Iterator<Item = &'a Changes> + Clone,
    room: &mut Room,
    changes: &mut Changes,
) -> Cells {
    changes.measure(old, new, room);
    let Room { change, sums, values, shapes, .. } = room;
    let noise = changes.nine.noise;
    let (seed, grown) =
        least(noise, Spread::most(before.clone().map(|before| before.nine)).highest);
    let is_all = count_above(change, seed / NINE) > MOST;
    let (Some(last), false) = (before.clone().next(), is_all) else { return NO_CELLS };
    join(sums, change, |sum, change| of_its_own(sum, change, grown / NINE / 2));
    let beyond_noise = |value: i16| (value - noise as i16).max(0);
    let seems_moved = moved(sums, &last.around, [seed, grown], beyond_noise);
    let wider = |cells: Cells, _| std::array::from_fn(|y| near(&cells, y));
    changes.unusual = (0..PLACE).fold(seems_moved, wider);
    *values = last.around;
    clear(values, &last.unusual);
    for changes in before.clone().skip(1) {
        join(values, &changes.around, i16::max);
    }
    // Usual changes count four times: doubling with saturation twice is one vector operation each.
    let twice = |value: i16| value.saturating_add(value);
    let less = |value| twice(twice(beyond_noise(value)));
    let mut cells = moved(sums, values, [seed, grown], less);
    for (at, strengths) in shapes.iter_mut().enumerate() {
        let before = Spread::most(before.clone().map(|before| before.shapes[at]));
        let spread = changes.shapes[at];
        if let Some(least) = Shape::least(spread, before).filter(|least| spread.highest > least[0])
        {
            join(strengths, sums, |strength, own| if own > 0 { strength } else { 0 });
            let shape = moved(strengths, values, least, less);
            cells = std::array::from_fn(|row| cells[row] | shape[row]);
        }
    }
    cells
}

/// Returns the cells whose strength less the usual exceeds `least[0]`, and connected cells above `least[1]`.
#[inline(always)]
fn moved(strength: &Rows, usual: &Rows, least: [i16; 2], less: impl Fn(i16) -> i16) -> Cells {
    let left =
        |least| cells_of(strength, usual, |own, usual| own.saturating_sub(less(usual)) > least);
    match left(least[0]) {
        NO_CELLS => NO_CELLS,
        seeds => grow(seeds, &left(least[1])),
    }
}

/// Returns the least changes of nine cells that are movement: of a seed, and of cells connected to one.
fn least(noise: i32, highest_before: i16) -> (i16, i16) {
    let beyond = |flat: i32, times: i32| flat + times * noise / 4;
    let is_grain = i32::from(highest_before) <= GRAIN * noise / 4;
    let in_grain = if is_grain { GRAIN_SEED.max(GRAIN_SEED_NOISE * noise / 4) } else { i32::MAX };
    let seed = beyond(SEED, SEED_NOISE).min(in_grain);
    (bounded(seed), bounded(beyond(GROWN, GROWN_NOISE)))
}

pub(super) fn bounded(least: i32) -> i16 {
    least.min(i16::MAX.into()) as i16
}

/// Returns the number of cells that changed by more than `most`.
#[inline(always)]
fn count_above(change: &Rows, most: i16) -> u32 {
    let count = |row: &Row| row.iter().map(|cell| u16::from(cell.abs() > most)).sum::<u16>();
    change.iter().map(|row| u32::from(count(row))).sum()
}

/// Returns the change of nine cells if the middle one changed by more than `least` in the same direction and
/// by at most half of that sum; otherwise 0. A patch of light changes more than it bends, an edge does not.
#[inline(always)]
fn of_its_own(sum: i16, change: i16, least: i16) -> i16 {
    let own = if sum < 0 { -change } else { change };
    if own > least && sum.abs() / 2 >= own { sum.abs() } else { 0 }
}

/// Replaces each value by `of` of the value and its counterpart in `others`.
#[inline(always)]
fn join(values: &mut Rows, others: &Rows, of: impl Fn(i16, i16) -> i16) {
    let pairs = values.as_flattened_mut().iter_mut().zip(others.as_flattened());
    for (value, &other) in pairs {
        *value = of(*value, other);
    }
}

/// Writes the change of each cell beyond global light (0 if unknown), and 1 in `known` for each known cell.
#[inline(always)]
fn beyond_light(old: &Luma, new: &Luma, change: &mut Rows, known: &mut Rows) {
    let light = Light::between(old, new);
    let told = change.as_flattened_mut().iter_mut().zip(known.as_flattened_mut());
    for (((change, known), &old), &new) in told.zip(&old.cells).zip(&new.cells) {
        let beyond = light.change(old, new);
        (*change, *known) = (beyond.unwrap_or(0), beyond.is_some().into());
    }
}

/// Rescales means to the `known` cells alone: white beside a lamp gains nothing and would give it an edge.
#[inline(always)]
fn of_known(means: &mut Rows, known: &Rows, counts: &mut Rows, across: &mut Across) {
    if known.as_flattened().iter().sum::<i16>() == CELLS as i16 {
        return;
    }
    sums_around::<LIGHT>(known, across, counts, |count| count as i16);
    join(counts, known, |count, known| count * known);
    let all = (2 * LIGHT as i32 + 1).pow(2);
    join(means, counts, |mean, count| match count {
        0 => 0,
        _ => (i32::from(mean) * all / i32::from(count)) as i16,
    });
}

/// Root mean square of strengths up to [`NOISE_MAX`] each, at most 1.6 means because few cells move.
#[inline(always)]
pub(super) fn deviation(values: &Rows) -> i32 {
    // Sums per column, so that the squares fit into 32 bits.
    let mut sums = [[0u32; LUMA_COLUMNS]; 2];
    let [values_of, squares_of] = &mut sums;
    for row in values {
        for ((sum, squares), value) in values_of.iter_mut().zip(&mut *squares_of).zip(row) {
            let value = u32::from(value.unsigned_abs().min(NOISE_MAX as u16));
            *sum += value;
            *squares += value * value;
        }
    }
    let [mean, square] =
        sums.map(|sums| sums.iter().map(|&sum| i64::from(sum)).sum::<i64>() / CELLS as i64);
    square.isqrt().min(mean * 8 / 5) as i32
}

/// Writes the mean over each cell and those within `REACH`; edge cells repeat outside the picture.
#[inline(always)]
fn means_around<const REACH: usize>(values: &Rows, across: &mut Across, means: &mut Rows) {
    let side = 2 * REACH as i32 + 1;
    sums_around::<REACH>(values, across, means, |sum| (sum / (side * side)) as i16);
}

/// Writes `of` the sum over each cell and those within `REACH`; edge cells repeat outside the picture.
#[inline(always)]
fn sums_around<const REACH: usize>(
    values: &Rows,
    across: &mut Across,
    told: &mut Rows,
    of: impl Fn(i32) -> i16,
) {
    for (sums, row) in across.iter_mut().zip(values) {
        sum_across::<REACH>(row, sums);
    }
    let row = |y: usize| &across[y.saturating_sub(REACH).min(LUMA_ROWS - 1)];
    let mut sums = [0; LUMA_COLUMNS];
    for y in 0..LUMA_ROWS + 2 * REACH {
        let gone = y.checked_sub(2 * REACH + 1).map_or(&[0; LUMA_COLUMNS], row);
        for ((sum, value), gone) in sums.iter_mut().zip(row(y)).zip(gone) {
            *sum += value - gone;
        }
        if let Some(middle) = y.checked_sub(2 * REACH) {
            told[middle] = sums.map(&of);
        }
    }
}

/// Sums each cell of a row and its `REACH` neighbours on each side.
#[inline(always)]
fn sum_across<const REACH: usize>(row: &Row, sums: &mut [i32; LUMA_COLUMNS]) {
    let mut wide = [row[0].into(); LUMA_COLUMNS + 2 * LIGHT];
    wide[REACH..][..LUMA_COLUMNS].copy_from_slice(&row.map(i32::from));
    wide[REACH + LUMA_COLUMNS..].fill(row[LUMA_COLUMNS - 1].into());
    *sums = std::array::from_fn(|x| wide[x..=x + 2 * REACH].iter().sum());
}

/// Returns the cells for whose two values `holds` is true.
#[inline(always)]
fn cells_of(a: &Rows, b: &Rows, holds: impl Fn(i16, i16) -> bool) -> Cells {
    std::array::from_fn(|y| {
        let (a, b) = (&a[y], &b[y]);
        let flags: [u8; LUMA_COLUMNS] = std::array::from_fn(|x| holds(a[x], b[x]).into());
        // The factor moves the lowest bit of each of eight bytes into the highest byte.
        let packed =
            |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        flags.as_chunks().0.iter().rev().fold(0, |bits, eight| bits << 8 | packed(eight))
    })
}

/// Returns the cells of row `y` that are in `cells` or adjacent to one of them.
fn near(cells: &Cells, y: usize) -> u64 {
    let wide =
        |y: Option<usize>| y.and_then(|y| cells.get(y)).map_or(0, |&row| row | row << 1 | row >> 1);
    wide(y.checked_sub(1)) | wide(Some(y)) | wide(Some(y + 1))
}

/// Returns the seeds and all `cells` connected to them.
fn grow(mut seeds: Cells, cells: &Cells) -> Cells {
    for _ in 0..LUMA_ROWS {
        let before = seeds;
        for y in (0..LUMA_ROWS).chain((0..LUMA_ROWS).rev()) {
            seeds[y] |= near(&seeds, y) & cells[y];
        }
        if seeds == before {
            break;
        }
    }
    seeds
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::thumbnail::block_means;

    fn moved_between(pictures: [[u16; CELLS]; 2]) -> Cells {
        let [old, new] = pictures.map(|cells| Luma { cells, blocks: block_means(&cells) });
        let before = [&Changes::NONE].into_iter();
        compare((&old, &new), before, &mut { Room::EMPTY }, &mut { Changes::NONE })
    }

    #[test]
    fn a_lamp_before_a_white_sky_moves_nothing() {
        let [off, on] = [0, 12_000].map(|lamp| {
            std::array::from_fn(|cell| {
                let (x, y) = (cell % LUMA_COLUMNS, cell / LUMA_COLUMNS);
                let gain = lamp / (200 + x.abs_diff(32).pow(2) + y.abs_diff(14).pow(2));
                (([255, 100][usize::from(y > 11)] + gain).min(255) * LEVEL as usize) as u16
            })
        });
        assert_eq!([[off, on], [on, off]].map(moved_between), [NO_CELLS; 2]);
    }

    #[test]
    fn a_cell_moves_that_changed_by_a_small_part_of_what_is_around_it() {
        let grey = [100 * LEVEL as u16; CELLS];
        let middle = 20 * LUMA_COLUMNS + 32;
        let seen = |change: u16| {
            let mut new = grey;
            for row in [middle - LUMA_COLUMNS, middle, middle + LUMA_COLUMNS] {
                new[row - 1..=row + 1].fill(150 * LEVEL as u16);
            }
            new[middle] = grey[middle] + change;
            moved_between([grey, new])[20] >> 31 & 0b11 == 0b11
        };
        assert_eq!((0..50 * LEVEL as u16).find(|&change| seen(change)), Some(146));
    }
}
