//! Cells that changed between two pictures because something moved.
//!
//! Noise is measured in the change itself: its deviation over the picture raises what counts, so that grain,
//! drops and flakes do whatever their size and pace; and what changed at a place before, but for what
//! moved, raises it there, so that leaves and water do. Thresholds: `make bench-activity`, rendered clips.

use media::Cells;

use super::luma::Luma;
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumb::{BLOCKS, CELLS, LEVEL},
};

/// A value of each cell of a row in 1/[`LEVEL`]: sixteen bits, so that a vector holds many.
type Row = [i16; LUMA_COLUMNS];
/// A value of each cell.
type Rows = [Row; LUMA_ROWS];
const NONE: Rows = [[0; LUMA_COLUMNS]; LUMA_ROWS];

/// Cells that are taken together.
const NINE: i16 = 9;
/// Least change of nine cells together from which on something moves, where there is no noise.
const SEED: i32 = NINE as i32 * 7 * LEVEL as i32;
/// The same of cells that hang together with such a one.
const GROWN: i32 = NINE as i32 * 4 * LEVEL as i32;
/// Quarters of the picture's noise by which both are higher.
const SEED_NOISE: i32 = 21;
const GROWN_NOISE: i32 = 7;
/// Quarters of the noise within which all changes stay where it is grain: drops and flakes stand out of it, now and then.
const GRAIN: i32 = 20;
/// [`SEED`] and [`SEED_NOISE`] in grain, of which the higher counts: whatever stands out of grain is something else.
const GRAIN_SEED: i32 = 85 * LEVEL as i32;
const GRAIN_SEED_NOISE: i32 = 25;
/// Most of the change of nine cells that is taken for noise: what moves, being large, must not hide itself.
const NOISE_MAX: i16 = NINE * 14 * LEVEL as i16;
/// Most that counts of a cell's change: nine of them fit into sixteen bits.
const CHANGE_MAX: i16 = 3600;
/// The lightest cell, in 1/[`LEVEL`].
const WHITE: u16 = 255 * LEVEL as u16;

/// Cells on each side that tell what is light: an object is smaller, or has its edges.
const LIGHT: usize = 4;
/// Cells on each side that belong to a place.
const PLACE: usize = 3;
/// More than this share of the picture is no movement in it, but a cut, a light or the camera.
const MOST: u32 = CELLS as u32 / 2;

/// Result of a comparison.
pub(super) struct Comparison {
    /// Cells in which something moved; none where the whole picture changed, or where nothing tells what is usual.
    pub(super) moved: Cells,
    pub(super) changes: Changes,
}

/// Changes of the places around the cells.
#[derive(Debug)]
pub(super) struct Changes {
    /// Whatever its cause.
    all: Rows,
    /// None where something seems to have moved: more changed than in the comparison before.
    usual: Rows,
    /// The highest of nine cells.
    highest: i16,
}

/// Compares two pictures; `before` are the changes before the older one, the latest first.
pub(super) fn compare<'a>(
    old: &Luma,
    new: &Luma,
    before: impl Iterator<Item = &'a Changes> + Clone,
) -> Comparison {
    let change = beyond_light(old, new);
    let sums = sums_of_nine_cells(&unlike_around(&change));
    let noise_of = each(&sums, |sum| sum.abs().min(NOISE_MAX));
    let (noise, around) = (deviation(&noise_of), means_around::<PLACE>(&noise_of));
    let highest = highest_of(&sums);
    let (seed, grown) = least(noise, before.clone().map(|changes| changes.highest).max());
    let is_all = count_above(&change, seed / NINE) > MOST;
    let (Some(last), false) = (before.clone().next(), is_all) else {
        let changes = Changes { usual: around, all: around, highest };
        return Comparison { moved: [0; LUMA_ROWS], changes };
    };
    let strength = of_its_own(&sums, &change, grown / NINE / 2);
    let moved = |more: &Rows| {
        let cells = |least| cells_of(|y, x| strength[y][x].saturating_sub(more[y][x]) > least);
        match cells(seed) {
            none if none == [0; LUMA_ROWS] => none,
            seeds => grow(seeds, &cells(grown)),
        }
    };
    let seems_moved = moved(&beyond(&last.all, noise as i16));
    let mut usual = NONE;
    before.for_each(|changes| raise(&mut usual, &changes.usual));
    Comparison {
        moved: moved(&fourfold(&beyond(&usual, noise as i16))),
        changes: Changes { usual: outside(&around, &seems_moved), all: around, highest },
    }
}

/// Least changes of nine cells: of those in which something moves, and of those that hang together with them.
fn least(noise: i32, highest_before: Option<i16>) -> (i16, i16) {
    let beyond = |flat: i32, times: i32| flat + times * noise / 4;
    let is_grain = highest_before.is_some_and(|highest| i32::from(highest) <= GRAIN * noise / 4);
    let in_grain = if is_grain { GRAIN_SEED.max(GRAIN_SEED_NOISE * noise / 4) } else { i32::MAX };
    let seed = beyond(SEED, SEED_NOISE).min(in_grain);
    let bounded = |least: i32| least.min(i16::MAX.into()) as i16;
    (bounded(seed), bounded(beyond(GROWN, GROWN_NOISE)))
}

fn highest_of(values: &Rows) -> i16 {
    values.as_flattened().iter().fold(0, |most, value| most.max(value.saturating_abs()))
}

/// Number of cells that changed by more.
fn count_above(change: &Rows, most: i16) -> u32 {
    let count = |row: &Row| row.iter().map(|cell| u16::from(cell.abs() > most)).sum::<u16>();
    change.iter().map(|row| u32::from(count(row))).sum()
}

/// Change of nine cells together, where the one in their middle changed by more than `least` as they did.
fn of_its_own(sums: &Rows, change: &Rows, least: i16) -> Rows {
    both(sums, change, |sum, change| {
        let own = if sum < 0 { -change } else { change };
        if own > least { sum.abs() } else { 0 }
    })
}

fn each(values: &Rows, of: impl Fn(i16) -> i16) -> Rows {
    both(values, values, |value, _| of(value))
}

fn both(a: &Rows, b: &Rows, of: impl Fn(i16, i16) -> i16) -> Rows {
    std::array::from_fn(|y| {
        let (a, b) = (&a[y], &b[y]);
        std::array::from_fn(|x| of(a[x], b[x]))
    })
}

fn raise(most: &mut Rows, values: &Rows) {
    let pairs = most.as_flattened_mut().iter_mut().zip(values.as_flattened());
    pairs.for_each(|(most, &value)| *most = value.max(*most));
}

/// The part of each value beyond the picture's noise.
fn beyond(values: &Rows, noise: i16) -> Rows {
    each(values, |value| (value - noise).max(0))
}

/// Four times each value: what is usual counts as often. A vector adds and saturates at once, but does not multiply so.
fn fourfold(values: &Rows) -> Rows {
    let twice = |value: i16| value.saturating_add(value);
    each(values, |value| twice(twice(value)))
}

/// The values of places that touch none of the cells.
fn outside(values: &Rows, cells: &Cells) -> Rows {
    let touched = (0..PLACE).fold(*cells, |cells, _| wider(&cells));
    std::array::from_fn(|y| match touched[y] {
        0 => values[y],
        row => std::array::from_fn(|x| if row >> x & 1 == 0 { values[y][x] } else { 0 }),
    })
}

/// Changes of cells beyond the light that all gained or lost: the factor by which the median block became lighter.
fn beyond_light(old: &Luma, new: &Luma) -> Rows {
    let mut ratios: [u32; BLOCKS] = std::array::from_fn(|block| {
        (u32::from(new.blocks[block]) << 14) / u32::from(old.blocks[block]).max(1)
    });
    let light = (*ratios.select_nth_unstable(BLOCKS / 2).1).min(u16::MAX.into()) as u16;
    let before =
        |cell: u16| (((u32::from(cell << 2) * u32::from(light)) >> 16) as u16).min(WHITE) as i16;
    let row = |y: usize| (&old.cells.as_chunks().0[y], &new.cells.as_chunks().0[y]);
    std::array::from_fn(|y| {
        let (old, new): (&[u16; LUMA_COLUMNS], &[u16; LUMA_COLUMNS]) = row(y);
        std::array::from_fn(|x| new[x] as i16 - before(old[x]))
    })
}

/// Changes beyond that of the cells around, which is light.
fn unlike_around(change: &Rows) -> Rows {
    let light = means_around::<LIGHT>(change);
    both(change, &light, |change, light| (change - light).clamp(-CHANGE_MAX, CHANGE_MAX))
}

/// Root of the mean square of values up to [`NOISE_MAX`], but no more than 1.6 means: few cells move.
fn deviation(values: &Rows) -> i32 {
    // As many squares as a sum of 32 bits holds.
    let halves = || values.as_flattened().as_chunks::<{ LUMA_COLUMNS / 2 }>().0.iter();
    let sum =
        |half: &[i16; LUMA_COLUMNS / 2]| half.iter().map(|&value| i32::from(value)).sum::<i32>();
    let square = |half: &[i16; LUMA_COLUMNS / 2]| {
        half.iter().map(|&value| i32::from(value) * i32::from(value)).sum::<i32>()
    };
    let mean = halves().map(|half| i64::from(sum(half))).sum::<i64>() / CELLS as i64;
    let square = halves().map(|half| i64::from(square(half))).sum::<i64>() / CELLS as i64;
    square.isqrt().min(mean * 8 / 5) as i32
}

/// Means over each cell and those so many around it; the picture's edge goes on outside.
fn means_around<const REACH: usize>(values: &Rows) -> Rows {
    let side = 2 * REACH as i32 + 1;
    sums_around::<REACH>(values, |sum| (sum / (side * side)) as i16)
}

/// Sums over each cell and the eight at it; the picture's edge goes on outside.
fn sums_of_nine_cells(values: &Rows) -> Rows {
    sums_around::<1>(values, |sum| sum as i16)
}

fn sums_around<const REACH: usize>(values: &Rows, of: impl Fn(i32) -> i16) -> Rows {
    let across = values.each_ref().map(across::<REACH>);
    let row = |y: usize| &across[y.saturating_sub(REACH).min(LUMA_ROWS - 1)];
    let mut sums = [0; LUMA_COLUMNS];
    let mut add = |y: usize| {
        let gone = y.checked_sub(2 * REACH + 1).map_or(&[0; LUMA_COLUMNS], row);
        for ((sum, value), gone) in sums.iter_mut().zip(row(y)).zip(gone) {
            *sum += value - gone;
        }
        sums
    };
    (0..2 * REACH).for_each(|y| _ = add(y));
    std::array::from_fn(|y| {
        let sums = add(y + 2 * REACH);
        std::array::from_fn(|x| of(sums[x]))
    })
}

/// Sums over each cell of a row and those so many on each side.
fn across<const REACH: usize>(row: &Row) -> [i32; LUMA_COLUMNS] {
    // The row, its ends going on on both sides.
    let mut wide = [0; LUMA_COLUMNS + 2 * LIGHT];
    let (left, rest) = wide.split_at_mut(REACH);
    let (middle, right) = rest.split_at_mut(LUMA_COLUMNS);
    left.fill(row[0].into());
    middle.iter_mut().zip(row).for_each(|(wide, &value)| *wide = value.into());
    right.fill(row[LUMA_COLUMNS - 1].into());
    let mut sums = [0; LUMA_COLUMNS];
    for at in 0..=2 * REACH {
        sums.iter_mut().zip(&wide[at..]).for_each(|(sum, value)| *sum += value);
    }
    sums
}

/// The cells of which it holds.
fn cells_of(holds: impl Fn(usize, usize) -> bool) -> Cells {
    std::array::from_fn(|y| {
        let flags: [u8; LUMA_COLUMNS] = std::array::from_fn(|x| holds(y, x).into());
        // The factor moves the lowest bit of each of eight bytes to its place in the highest.
        let packed =
            |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
        flags.as_chunks().0.iter().rev().fold(0, |bits, eight| bits << 8 | packed(eight))
    })
}

/// The cells and those at them.
fn wider(cells: &Cells) -> Cells {
    std::array::from_fn(|y| near(cells, y))
}

/// Cells of a row that are among these or at one of them.
fn near(cells: &Cells, y: usize) -> u64 {
    let wide =
        |y: Option<usize>| y.and_then(|y| cells.get(y)).map_or(0, |&row| row | row << 1 | row >> 1);
    wide(y.checked_sub(1)) | wide(Some(y)) | wide(Some(y + 1))
}

/// The seeds with all `cells` that hang together with them.
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
