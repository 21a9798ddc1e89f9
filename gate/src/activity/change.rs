//! Cells that changed between two moments because something moved.
//!
//! Thresholds were found on four real clips and 70 rendered ones with 241 labelled starts, by `make bench-activity`.

use super::{Cells, population};
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumb::{BLOCK, BLOCKS, CELLS, LEVEL, Thumb},
};

/// A value of each cell of a row in 1/[`LEVEL`]: sixteen bits, so that a vector holds many.
type Row = [i16; LUMA_COLUMNS];

/// Least change of a cell that counts, in 1/[`LEVEL`], without noise.
const CHANGE: i16 = 8 * LEVEL as i16;
/// Step of a cell past which it is movement and no noise, in 1/[`LEVEL`].
const NOISE_MAX: i16 = 10 * LEVEL as i16;
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
    /// Change that counts more for noise, in 1/[`LEVEL`].
    pub(super) noise: i16,
}

/// Mean change of a cell from one frame to the next that is noise, in 1/[`LEVEL`].
pub(crate) fn step_noise(old: &Thumb, new: &Thumb) -> i16 {
    let light = gain(&old.blocks, &new.blocks);
    let steps = Changes { old: &old.luma, light, new: &new.luma };
    // Of each column: forty rows fit into sixteen bits.
    let mut sums = [0u16; LUMA_COLUMNS];
    for y in 0..LUMA_ROWS {
        for (sum, step) in sums.iter_mut().zip(steps.row(y)) {
            *sum += step.abs().min(NOISE_MAX) as u16;
        }
    }
    (sums.iter().map(|&sum| u32::from(sum)).sum::<u32>() / CELLS as u32) as i16
}

/// The cells that changed; `None` where the whole picture did.
pub(super) fn changed_cells(pictures: &Pictures) -> Option<Cells> {
    let Pictures { old, settled, new, noise } = pictures;
    let least = CHANGE + noise;
    let changes = Changes::between(old, new);
    let change: [Row; LUMA_ROWS] = std::array::from_fn(|y| changes.row(y));
    let mut cells: Cells = change.map(|row| bits(row.map(|change| change.abs() > least)));
    if population(&cells) > MOST {
        return None;
    }
    keep_unlike_around(&mut cells, &change, least / 4 * 3);
    if let Some(settled) = settled {
        let part = Changes::between(old, settled);
        keep(&mut cells, |y| is_both_ways(&change[y], &part.row(y), least / 2));
    }
    if population(&cells) > 0 {
        let before = std::array::from_fn(|y| changes.before(y));
        if all_move(&before, &change, least) {
            keep(&mut cells, |y| is_beyond_neighbours(&before, row(&new.cells, y), y, least));
        }
    }
    Some(supported(&cells))
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
        let (before, new) = (self.before(y), row(self.new, y));
        std::array::from_fn(|x| new[x] as i16 - before[x])
    }
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

/// Cells that changed both times in the same direction.
fn is_both_ways(change: &Row, part: &Row, least: i16) -> [bool; LUMA_COLUMNS] {
    std::array::from_fn(|x| (if change[x] < 0 { -part[x] } else { part[x] }) > least)
}

/// Keeps the cells whose change is not that of the cells around them.
fn keep_unlike_around(cells: &mut Cells, change: &[Row; LUMA_ROWS], least: i16) {
    // The picture's edge goes on outside.
    let row = |y: usize| &change[y.min(LUMA_ROWS - 1)];
    // Sums over the rows around, of each column.
    let mut columns = [0i32; LUMA_COLUMNS];
    let add = |columns: &mut [i32; LUMA_COLUMNS], row: &Row, sign: i32| {
        columns.iter_mut().zip(row).for_each(|(sum, &value)| *sum += sign * i32::from(value));
    };
    for y in 0..SIDE {
        add(&mut columns, row(y.saturating_sub(AROUND)), 1);
    }
    let all = (SIDE * SIDE) as i32;
    let least = all * i32::from(least);
    for (y, cells) in cells.iter_mut().enumerate() {
        if *cells != 0 {
            let sums = sums_of_nine(&columns);
            let apart = |x: usize| (all * i32::from(change[y][x]) - sums[x]).abs();
            *cells &= bits(std::array::from_fn(|x| apart(x) > least));
        }
        add(&mut columns, row(y + AROUND + 1), 1);
        add(&mut columns, row(y.saturating_sub(AROUND)), -1);
    }
}

/// Sum of each value and the four on both sides of it; the first and the last go on outside.
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
fn all_move(before: &[Row; LUMA_ROWS], change: &[Row; LUMA_ROWS], least: i16) -> bool {
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
    before: &[Row; LUMA_ROWS],
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

/// Cells that changed with two more of the nine around and at them: flakes, drops and noise change one or two.
fn supported(cells: &Cells) -> Cells {
    let add = |a: u64, b: u64, c: u64| (a ^ b ^ c, a & b | c & (a ^ b));
    // Of each row: the ones and twos of the sum of three cells side by side.
    let across = |y: Option<&u64>| y.map_or((0, 0), |&row| add(row << 1, row, row >> 1));
    std::array::from_fn(|y| {
        let above = across(y.checked_sub(1).and_then(|y| cells.get(y)));
        let (own, below) = (across(cells.get(y)), across(cells.get(y + 1)));
        let (ones, more) = add(above.0, own.0, below.0);
        let twos = [above.1, own.1, below.1, more];
        let [a, b, c, d] = twos;
        let two = a | b | c | d;
        let four = a & b | c & d | (a | b) & (c | d);
        cells[y] & (four | two & ones)
    })
}
