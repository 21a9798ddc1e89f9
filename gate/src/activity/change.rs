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
const NO_CELLS: Cells = [0; LUMA_ROWS];
/// Sums over some cells of each row.
type Across = [[i32; LUMA_COLUMNS]; LUMA_ROWS];

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
const WHITE: i16 = 255 * LEVEL as i16;
/// Black and white of video of limited range (ITU-R BT.709): what light takes or adds beyond is lost.
const SHOWN: [i16; 2] = [16 * LEVEL as i16, 235 * LEVEL as i16];
/// Least and most of a cell of which hardly any sample has been lost to black or white.
const KNOWN: [u16; 2] = [24 * LEVEL as u16, 228 * LEVEL as u16];
/// Least number of blocks with both means in [`KNOWN`] that tells a line.
const BLOCKS_LEAST: usize = BLOCKS / 4;
/// Least difference of two medians of blocks that tells how light acts on dark and light ones.
const APART_LEAST: i32 = 16 * LEVEL as i32;
/// Most that counts of what light leaves of a cell: more is something that moves.
const LEFT_MAX: u16 = 8 * LEVEL as u16;
/// Factor of a light that stays.
const SAME: u16 = 1 << 14;

/// Cells on each side that tell what is light: an object is smaller, or has its edges.
const LIGHT: usize = 4;
/// Cells on each side that belong to a place.
const PLACE: usize = 3;
/// More than this share of the picture is no movement in it, but a cut, a light or the camera.
const MOST: u32 = CELLS as u32 / 2;

/// Changes of the places around the cells.
#[derive(Clone, Debug)]
pub(super) struct Changes {
    /// Whatever its cause.
    around: Rows,
    /// Cells whose place is touched by what seems to have moved, more having changed than in the comparison before: no
    /// change there is usual.
    unusual: Cells,
    /// The highest of nine cells.
    highest: i16,
}

impl Changes {
    /// None.
    pub(super) const NONE: Changes = Changes { around: NONE, unusual: NO_CELLS, highest: 0 };

    #[inline(always)]
    fn raise_usual(&self, most: &mut Rows) {
        for ((most, around), &unusual) in most.iter_mut().zip(&self.around).zip(&self.unusual) {
            if unusual == 0 {
                for (most, &value) in most.iter_mut().zip(around) {
                    *most = value.max(*most);
                }
            } else {
                let usual = (0..LUMA_COLUMNS).filter(|x| unusual >> x & 1 == 0);
                usual.for_each(|x| most[x] = around[x].max(most[x]));
            }
        }
    }
}

/// Room for the values of a comparison.
#[derive(Debug)]
pub(super) struct Room {
    change: Rows,
    sums: Rows,
    values: Rows,
    across: Across,
}

impl Room {
    /// One that holds nothing yet.
    pub(super) const EMPTY: Room =
        Room { change: NONE, sums: NONE, values: NONE, across: [[0; LUMA_COLUMNS]; LUMA_ROWS] };
}

/// Compares two pictures and tells the `changes`; `before` are those before the older picture, the latest first.
/// Gives the cells in which something moved: none where the whole picture changed, or where nothing tells what is usual.
#[inline(always)]
pub(super) fn compare<'a>(
    (old, new): (&Luma, &Luma),
    before: impl Iterator<Item = &'a Changes> + Clone,
    room: &mut Room,
    changes: &mut Changes,
) -> Cells {
    let Room { change, sums, values, across } = room;
    beyond_light(old, new, change);
    means_around::<LIGHT>(change, across, values);
    join(values, change, |light, change| (change - light).clamp(-CHANGE_MAX, CHANGE_MAX));
    sums_around::<1>(values, across, sums, |sum| sum as i16);
    join(values, sums, |_, sum| sum.abs().min(NOISE_MAX));
    let noise = deviation(values);
    means_around::<PLACE>(values, across, &mut changes.around);
    (changes.highest, changes.unusual) = (highest_of(sums), NO_CELLS);
    let (seed, grown) = least(noise, before.clone().map(|changes| changes.highest).max());
    let is_all = count_above(change, seed / NINE) > MOST;
    let (Some(last), false) = (before.clone().next(), is_all) else { return NO_CELLS };
    join(sums, change, |sum, change| of_its_own(sum, change, grown / NINE / 2));
    let beyond_noise = |value: i16| (value - noise as i16).max(0);
    let seems_moved = moved(sums, &last.around, [seed, grown], beyond_noise);
    changes.unusual = (0..PLACE).fold(seems_moved, |cells, _| wider(&cells));
    values.as_flattened_mut().fill(0);
    for changes in before {
        changes.raise_usual(values);
    }
    // What is usual counts four times. A vector adds and saturates at once, but does not multiply so.
    let twice = |value: i16| value.saturating_add(value);
    moved(sums, values, [seed, grown], |value| twice(twice(beyond_noise(value))))
}

/// The cells of which more than the least of seeds is left of their strength, and those that hang together with them.
#[inline(always)]
fn moved(strength: &Rows, usual: &Rows, least: [i16; 2], less: impl Fn(i16) -> i16) -> Cells {
    let left =
        |least| cells_of(strength, usual, |own, usual| own.saturating_sub(less(usual)) > least);
    match left(least[0]) {
        NO_CELLS => NO_CELLS,
        seeds => grow(seeds, &left(least[1])),
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

#[inline(always)]
fn highest_of(values: &Rows) -> i16 {
    values.as_flattened().iter().fold(0, |most, value| most.max(value.saturating_abs()))
}

/// Number of cells that changed by more.
#[inline(always)]
fn count_above(change: &Rows, most: i16) -> u32 {
    let count = |row: &Row| row.iter().map(|cell| u16::from(cell.abs() > most)).sum::<u16>();
    change.iter().map(|row| u32::from(count(row))).sum()
}

/// Change of nine cells together, where the one in their middle changed by more than `least` as they did, and what
/// is left of it without light is no small part: a patch of light changes more than it bends, an edge does not.
#[inline(always)]
fn of_its_own(sum: i16, change: i16, least: i16) -> i16 {
    let own = if sum < 0 { -change } else { change };
    if own > least && sum.abs() / 2 >= own { sum.abs() } else { 0 }
}

/// Replaces each value by what is made of it and another.
#[inline(always)]
fn join(values: &mut Rows, others: &Rows, of: impl Fn(i16, i16) -> i16) {
    let pairs = values.as_flattened_mut().iter_mut().zip(others.as_flattened());
    for (value, &other) in pairs {
        *value = of(*value, other);
    }
}

/// Light that all cells gained or lost: what it made of them.
#[derive(Clone, Copy)]
struct Light {
    /// In 1/[`SAME`].
    factor: u16,
    /// In 1/[`LEVEL`].
    offset: i16,
    /// Darkest and lightest value of which it is known: beyond, a picture shows less than there was.
    known: [u16; 2],
    /// Darkest and lightest value that a picture shows.
    shown: [i16; 2],
}

impl Light {
    /// The factor by which the median block became lighter.
    #[inline(always)]
    fn scaled(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> Light {
        let mut ratios: [u32; BLOCKS] = std::array::from_fn(|block| {
            (u32::from(new[block]) << 14) / u32::from(old[block]).max(1)
        });
        let factor = *ratios.select_nth_unstable(BLOCKS / 2).1;
        let factor = factor.min(u16::MAX.into()) as u16;
        Light { factor, offset: 0, known: [0, u16::MAX], shown: [0, WHITE] }
    }

    /// The line by which the median of the darker half of the blocks and that of the lighter half became what they are.
    fn shifted(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> Option<Light> {
        let is_known = |value: &u16| (KNOWN[0]..=KNOWN[1]).contains(value);
        let (mut blocks, mut count) = ([[0; 2]; BLOCKS], 0);
        for (old, new) in old.iter().zip(new).filter(|(old, new)| is_known(old) && is_known(new)) {
            blocks[count] = [*old, *new];
            count += 1;
        }
        let half = (count >= BLOCKS_LEAST).then_some(count / 2)?;
        blocks[..count].select_nth_unstable(half);
        let (darker, lighter) = blocks[..count].split_at_mut(half);
        let [dark, light] = [darker, lighter].map(|blocks| {
            [0, 1].map(|at| {
                i32::from(blocks.select_nth_unstable_by_key(half / 2, |both| both[at]).1[at])
            })
        });
        let (before, after) = (light[0] - dark[0], light[1] - dark[1]);
        let factor = (before > APART_LEAST).then(|| (after << 14) / before)?;
        let factor =
            u16::try_from(factor).ok().filter(|factor| factor.abs_diff(SAME) <= SAME / 4)?;
        let offset = dark[1] - ((dark[0] * i32::from(factor)) >> 14);
        let offset = i16::try_from(offset).ok()?;
        Some(Light { factor, offset, known: KNOWN, shown: SHOWN })
    }

    /// What the median block gained or lost.
    fn added(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> Light {
        let mut gains: [i16; BLOCKS] =
            std::array::from_fn(|block| new[block] as i16 - old[block] as i16);
        let offset = *gains.select_nth_unstable(BLOCKS / 2).1;
        Light { factor: SAME, offset, known: KNOWN, shown: SHOWN }
    }

    /// The factor, or another light that leaves less than three quarters of what the factor leaves of the cells.
    #[inline(always)]
    fn between(old: &Luma, new: &Luma) -> Light {
        let left = |light: Light| -> u32 {
            let cells = old.cells.iter().zip(&new.cells);
            let changes = cells.map(|(&old, &new)| light.change(old, new));
            changes.map(|change| u32::from(change.unsigned_abs().min(LEFT_MAX))).sum()
        };
        let (old_blocks, new_blocks) = (&old.blocks, &new.blocks);
        let scaled = Light::scaled(old_blocks, new_blocks);
        if scaled.factor.abs_diff(SAME) <= SAME / 256 {
            return scaled;
        }
        let unexplained = left(scaled);
        let others =
            [Some(Light::added(old_blocks, new_blocks)), Light::shifted(old_blocks, new_blocks)];
        let others = others.into_iter().flatten();
        let others =
            others.map(|light| (left(light), light)).filter(|(left, _)| 4 * left < 3 * unexplained);
        others.min_by_key(|(left, _)| *left).map_or(scaled, |(_, light)| light)
    }

    /// Change of a cell beyond what the light made of it.
    #[inline(always)]
    fn change(self, old: u16, new: u16) -> i16 {
        let scaled = (u32::from(old << 2) * u32::from(self.factor)) >> 16;
        let scaled = (scaled as u16).min(i16::MAX as u16) as i16;
        let shown = |value: i16| value.clamp(self.shown[0], self.shown[1]);
        let change = shown(new as i16) - shown(scaled.saturating_add(self.offset));
        let change = if old < self.known[0] { change.max(0) } else { change };
        if old > self.known[1] { change.min(0) } else { change }
    }
}

/// Changes of cells beyond the light that all gained or lost.
#[inline(always)]
fn beyond_light(old: &Luma, new: &Luma, change: &mut Rows) {
    let light = Light::between(old, new);
    let cells = change.as_flattened_mut().iter_mut().zip(&old.cells).zip(&new.cells);
    for ((change, &old), &new) in cells {
        *change = light.change(old, new);
    }
}

/// Root of the mean square of values up to [`NOISE_MAX`], but no more than 1.6 means: few cells move.
#[inline(always)]
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
#[inline(always)]
fn means_around<const REACH: usize>(values: &Rows, across: &mut Across, means: &mut Rows) {
    let side = 2 * REACH as i32 + 1;
    sums_around::<REACH>(values, across, means, |sum| (sum / (side * side)) as i16);
}

/// Sums over each cell and those so many around it; the picture's edge goes on outside.
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
            for (told, &sum) in told[middle].iter_mut().zip(&sums) {
                *told = of(sum);
            }
        }
    }
}

/// Sums over each cell of a row and those so many on each side.
#[inline(always)]
fn sum_across<const REACH: usize>(row: &Row, sums: &mut [i32; LUMA_COLUMNS]) {
    // The row, its ends going on on both sides.
    let mut wide = [0; LUMA_COLUMNS + 2 * LIGHT];
    let (left, rest) = wide.split_at_mut(REACH);
    let (middle, right) = rest.split_at_mut(LUMA_COLUMNS);
    left.fill(row[0].into());
    for (wide, &value) in middle.iter_mut().zip(row) {
        *wide = value.into();
    }
    right.fill(row[LUMA_COLUMNS - 1].into());
    *sums = [0; LUMA_COLUMNS];
    for at in 0..=2 * REACH {
        for (sum, value) in sums.iter_mut().zip(&wide[at..]) {
            *sum += value;
        }
    }
}

/// The cells of whose two values it holds.
#[inline(always)]
fn cells_of(a: &Rows, b: &Rows, holds: impl Fn(i16, i16) -> bool) -> Cells {
    std::array::from_fn(|y| {
        let (a, b) = (&a[y], &b[y]);
        let flags: [u8; LUMA_COLUMNS] = std::array::from_fn(|x| holds(a[x], b[x]).into());
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
