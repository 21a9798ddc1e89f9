//! Cells that changed between two moments because something moved.
//!
//! Noise is measured in the change itself: its mean over the picture, so that grain, drops and flakes raise what
//! counts whatever their size and pace, and over the cells around, so that leaves raise it where they are.
//! Thresholds were found on four real clips and 70 rendered ones with 241 labelled starts, by `make bench-activity`.

use media::Cells;

use super::population;
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumb::{BLOCK, BLOCKS, CELLS, LEVEL, Thumb},
};

/// A value of each cell of a row in 1/[`LEVEL`]: sixteen bits, so that a vector holds many.
type Row = [i16; LUMA_COLUMNS];
type Rows = [Row; LUMA_ROWS];

/// Least change of nine cells together from which on something moves, where there is no noise.
const SEED: i32 = NINE * 7 * LEVEL as i32;
/// The same of cells that hang together with such a one.
const GROWN: i32 = NINE * 4 * LEVEL as i32;
/// Times the picture's noise that both are higher for it.
const SEED_NOISE: i32 = 5;
const GROWN_NOISE: i32 = 3;
/// Part of the noise around a cell, beyond the picture's, that both are higher there.
const PART_AROUND: i16 = 2;
/// Most of the change of nine cells that is taken for noise.
const NOISE_MAX: i16 = NINE as i16 * 40 * LEVEL as i16;
/// Cells that are taken together.
const NINE: i32 = 9;
/// Most that counts of a cell's change: nine of them fit into sixteen bits.
const CHANGE_MAX: i16 = 3600;
/// The lightest cell, in 1/[`LEVEL`].
const WHITE: u16 = 255 * LEVEL as u16;

/// Cells on each side that tell what is light: an object is smaller, or has its edges.
const AROUND: usize = 4;
const SIDE: usize = 2 * AROUND + 1;
/// More than this share of the picture is no movement in it, but a cut, a light or the camera.
const MOST: u32 = CELLS as u32 / 2;

/// Blocks with texture below which nothing is told from them.
const TEXTURED_MIN: u32 = 10;
/// Share of the blocks with texture, in tenths, from which all move: the camera does.
const MOVING_TENTHS: u32 = 3;
/// Changed cells that make a block move.
const MOVING_CELLS: u32 = 2;
/// A block has texture when its cells lie further apart than so many least changes.
const TEXTURE: i16 = 3;

/// Luma of a moment: its cells and their blocks, as a [`Thumb`] has them.
pub(super) struct Luma {
    cells: [u16; CELLS],
    blocks: [u16; BLOCKS],
}

impl Luma {
    /// That of a frame.
    pub(super) fn of(thumb: &Thumb) -> Luma {
        Luma { cells: thumb.luma, blocks: thumb.blocks }
    }

    /// The medians of three frames: what only one of them shows is weather, and they have less noise.
    pub(super) fn median([a, b, c]: [&Thumb; 3]) -> Luma {
        let median = |a: u16, b: u16, c: u16| a.min(b).max(a.max(b).min(c));
        Luma {
            cells: std::array::from_fn(|at| median(a.luma[at], b.luma[at], c.luma[at])),
            blocks: std::array::from_fn(|at| median(a.blocks[at], b.blocks[at], c.blocks[at])),
        }
    }
}

/// Pictures of a comparison.
pub(super) struct Pictures {
    /// The oldest.
    pub(super) old: Luma,
    /// One between them that shows the change already, where neither is a median.
    pub(super) settled: Option<Luma>,
    /// The newest.
    pub(super) new: Luma,
}

/// The cells that changed; `None` where the whole picture did.
pub(super) fn changed_cells(pictures: &Pictures) -> Option<Cells> {
    let Pictures { old, settled, new } = pictures;
    let changes = Changes::between(old, new);
    let before: Rows = std::array::from_fn(|y| changes.before(y));
    let change: Rows = std::array::from_fn(|y| beyond(row(&new.cells, y), &before[y]));
    let sums = sums_of_nine_cells(&unlike_around(&change));
    let noise_of: Rows = sums.map(|row| row.map(|sum| sum.abs().min(NOISE_MAX)));
    let noise = mean(&noise_of);
    let (seed, grown) = (SEED + SEED_NOISE * noise, GROWN + GROWN_NOISE * noise);
    let strongest = sums.as_flattened().iter().fold(0, |most: i16, sum| most.max(sum.abs()));
    if i32::from(strongest) <= seed {
        return Some([0; LUMA_ROWS]);
    }
    let least = (seed / NINE) as i16;
    if population(&change.map(|row| bits(row.map(|change| change.abs() > least)))) > MOST {
        return None;
    }
    let more = means_around(&noise_of)
        .map(|row| row.map(|around| (around - noise as i16).max(0) / PART_AROUND));
    let [mut seeds, mut cells] = [seed, grown].map(|least| -> Cells {
        // No sum is larger.
        let least = least.min(i16::MAX.into()) as i16;
        let counts = |y: usize, x: usize| sums[y][x].abs() > least.saturating_add(more[y][x]);
        std::array::from_fn(|y| bits(std::array::from_fn(|x| counts(y, x))))
    });
    let half = (grown / NINE / 2) as i16;
    keep(&mut cells, |y| is_both_ways(&sums[y], &change[y], half));
    if let Some(settled) = settled {
        let part = Changes::between(old, settled);
        keep(&mut cells, |y| is_both_ways(&change[y], &part.row(y), half));
    }
    if all_move(&before, &change, least) {
        keep(&mut cells, |y| is_beyond_neighbours(&before, row(&new.cells, y), y, least));
    }
    seeds.iter_mut().zip(&cells).for_each(|(seeds, cells)| *seeds &= cells);
    Some(grow(seeds, &cells))
}

/// Factor, in 1/16384, by which the median block became lighter; four at most.
fn gain(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> u16 {
    let mut ratios: [u32; BLOCKS] =
        std::array::from_fn(|block| (u32::from(new[block]) << 14) / u32::from(old[block]).max(1));
    (*ratios.select_nth_unstable(BLOCKS / 2).1).min(u16::MAX.into()) as u16
}

fn row(luma: &[u16; CELLS], y: usize) -> &[u16; LUMA_COLUMNS] {
    &luma.as_chunks().0[y]
}

/// Changes of cells beyond the light that all share.
#[derive(Clone, Copy)]
struct Changes<'a> {
    old: &'a [u16; CELLS],
    light: u16,
    new: &'a [u16; CELLS],
}

impl Changes<'_> {
    fn between<'a>(old: &'a Luma, new: &'a Luma) -> Changes<'a> {
        Changes { old: &old.cells, light: gain(&old.blocks, &new.blocks), new: &new.cells }
    }

    /// A row of the old picture in the light of the new one.
    fn before(self, y: usize) -> Row {
        row(self.old, y).map(|cell| {
            let cell = (u32::from(cell << 2) * u32::from(self.light)) >> 16;
            (cell as u16).min(WHITE) as i16
        })
    }

    fn row(self, y: usize) -> Row {
        beyond(row(self.new, y), &self.before(y))
    }
}

/// Change of a row beyond the light that all share.
fn beyond(new: &[u16; LUMA_COLUMNS], before: &Row) -> Row {
    std::array::from_fn(|x| new[x] as i16 - before[x])
}

/// A row of cells as bits.
fn bits(flags: [bool; LUMA_COLUMNS]) -> u64 {
    let flags = flags.map(u8::from);
    // The factor moves the lowest bit of each of eight bytes to its place in the highest.
    let packed =
        |eight: &[u8; 8]| u64::from_le_bytes(*eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    flags.as_chunks().0.iter().rev().fold(0, |bits, eight| bits << 8 | packed(eight))
}

/// Keeps the cells of which `those` of their row holds.
fn keep(cells: &mut Cells, mut those: impl FnMut(usize) -> [bool; LUMA_COLUMNS]) {
    for (y, row) in cells.iter_mut().enumerate().filter(|(_, row)| **row != 0) {
        *row &= bits(those(y));
    }
}

/// Cells whose `part` goes in the direction of their change, by more than `least`.
fn is_both_ways(change: &Row, part: &Row, least: i16) -> [bool; LUMA_COLUMNS] {
    std::array::from_fn(|x| (if change[x] < 0 { -part[x] } else { part[x] }) > least)
}

/// Changes beyond that of the cells around, which is light.
fn unlike_around(change: &Rows) -> Rows {
    let light = means_around(change);
    let unlike = |y: usize, x: usize| (change[y][x] - light[y][x]).clamp(-CHANGE_MAX, CHANGE_MAX);
    std::array::from_fn(|y| std::array::from_fn(|x| unlike(y, x)))
}

/// Mean of all cells.
fn mean(values: &Rows) -> i32 {
    // Of each column: so many rows do not fit into sixteen bits.
    let mut sums = [0i32; LUMA_COLUMNS];
    for row in values {
        sums.iter_mut().zip(row).for_each(|(sum, &value)| *sum += i32::from(value));
    }
    sums.iter().sum::<i32>() / CELLS as i32
}

/// Means over the cells around each cell and itself; the picture's edge goes on outside.
fn means_around(values: &Rows) -> Rows {
    let row = |y: usize| &values[y.min(LUMA_ROWS - 1)];
    // Sums over the rows around, of each column.
    let mut columns = [0i32; LUMA_COLUMNS];
    let add = |columns: &mut [i32; LUMA_COLUMNS], row: &Row, sign: i32| {
        columns.iter_mut().zip(row).for_each(|(sum, &value)| *sum += sign * i32::from(value));
    };
    for y in 0..SIDE {
        add(&mut columns, row(y.saturating_sub(AROUND)), 1);
    }
    std::array::from_fn(|y| {
        // A division by 81.
        let means = sums_of_nine(&columns).map(|sum| ((sum * 809) >> 16) as i16);
        add(&mut columns, row(y + AROUND + 1), 1);
        add(&mut columns, row(y.saturating_sub(AROUND)), -1);
        means
    })
}

/// Sums over each cell and the eight at it; the picture's edge goes on outside.
fn sums_of_nine_cells(values: &Rows) -> Rows {
    let across: Rows = std::array::from_fn(|y| {
        let wide = widened::<i16, 1, { LUMA_COLUMNS + 2 }>(&values[y]);
        std::array::from_fn(|x| wide[x] + wide[x + 1] + wide[x + 2])
    });
    std::array::from_fn(|y| {
        let (above, below) = (&across[y.saturating_sub(1)], &across[(y + 1).min(LUMA_ROWS - 1)]);
        std::array::from_fn(|x| above[x] + across[y][x] + below[x])
    })
}

/// Sums of each value and the four on both sides of it; the first and the last go on outside.
fn sums_of_nine(values: &[i32; LUMA_COLUMNS]) -> [i32; LUMA_COLUMNS] {
    let wide = widened::<i32, AROUND, { LUMA_COLUMNS + 2 * AROUND }>(values);
    let two: [i32; LUMA_COLUMNS + 7] = std::array::from_fn(|x| wide[x] + wide[x + 1]);
    let four: [i32; LUMA_COLUMNS + 5] = std::array::from_fn(|x| two[x] + two[x + 2]);
    std::array::from_fn(|x| four[x] + four[x + 4] + wide[x + 8])
}

/// The row with so many more of its first value before it and of its last after it.
fn widened<T: Copy, const BY: usize, const WIDE: usize>(row: &[T; LUMA_COLUMNS]) -> [T; WIDE] {
    let mut wide = [row[LUMA_COLUMNS - 1]; WIDE];
    wide[..BY].fill(row[0]);
    wide[BY..][..LUMA_COLUMNS].copy_from_slice(row);
    wide
}

/// Returns true where most blocks with texture move.
fn all_move(before: &Rows, change: &Rows, least: i16) -> bool {
    let (mut textured, mut moving) = (0, 0);
    for (rows, change) in before.as_chunks::<BLOCK>().0.iter().zip(change.as_chunks::<BLOCK>().0) {
        let low = rows.iter().fold([i16::MAX; LUMA_COLUMNS], |low, row| both(&low, row, i16::min));
        let high =
            rows.iter().fold([i16::MIN; LUMA_COLUMNS], |high, row| both(&high, row, i16::max));
        let changed = change.map(|row| bits(row.map(|change| change.abs() > least / 2)));
        for left in (0..LUMA_COLUMNS).step_by(BLOCK) {
            let low = low[left..][..BLOCK].iter().fold(i16::MAX, |low, &cell| low.min(cell));
            let high = high[left..][..BLOCK].iter().fold(i16::MIN, |high, &cell| high.max(cell));
            let changed: u32 = changed.iter().map(|bits| (bits >> left & 0xff).count_ones()).sum();
            let has_texture = high - low > TEXTURE * least;
            textured += u32::from(has_texture);
            moving += u32::from(has_texture && changed >= MOVING_CELLS);
        }
    }
    textured >= TEXTURED_MIN && 10 * moving >= MOVING_TENTHS * textured
}

fn both(a: &Row, b: &Row, join: impl Fn(i16, i16) -> i16) -> Row {
    std::array::from_fn(|x| join(a[x], b[x]))
}

/// Cells that are none of what the cells around them were: a camera that sways shows those.
fn is_beyond_neighbours(
    before: &Rows,
    new: &[u16; LUMA_COLUMNS],
    y: usize,
    least: i16,
) -> [bool; LUMA_COLUMNS] {
    let near = [y.saturating_sub(1), y, (y + 1).min(LUMA_ROWS - 1)].map(|y| &before[y]);
    let around = |join: fn(i16, i16) -> i16| {
        let joined = both(&both(near[0], near[1], join), near[2], join);
        let wide = widened::<i16, 1, { LUMA_COLUMNS + 2 }>(&joined);
        move |x: usize| join(join(wide[x], wide[x + 1]), wide[x + 2])
    };
    let (low, high) = (around(i16::min), around(i16::max));
    std::array::from_fn(|x| (low(x) - new[x] as i16).max(new[x] as i16 - high(x)) > least)
}

/// The seeds with all `cells` that hang together with them.
fn grow(mut seeds: Cells, cells: &Cells) -> Cells {
    let wide = |row: u64| row | row << 1 | row >> 1;
    for _ in 0..LUMA_ROWS {
        let before = seeds;
        for y in (0..LUMA_ROWS).chain((0..LUMA_ROWS).rev()) {
            let near = |y: Option<usize>| y.and_then(|y| seeds.get(y)).map_or(0, |&row| wide(row));
            let reached = near(y.checked_sub(1)) | near(Some(y)) | near(Some(y + 1));
            seeds[y] |= reached & cells[y];
        }
        if seeds == before {
            break;
        }
    }
    seeds
}
