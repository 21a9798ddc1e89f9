//! Change of light over a whole picture: a factor, or a line where that explains more.
//!
//! Values clipped to black or white tell no change. Integer arithmetic: the same bits on every machine.

use super::luma::Luma;
use crate::thumbnail::{BLOCKS, LEVEL};

/// Range of cell means in which hardly any sample is clipped (16 and 235, ITU-R BT.709).
const KNOWN: [u16; 2] = [24 * LEVEL as u16, 228 * LEVEL as u16];
/// Least number of blocks, both of whose means lie in [`KNOWN`], to fit a line.
const BLOCKS_LEAST: usize = BLOCKS / 4;
/// Least difference of the medians of dark and light blocks to fit a line.
const APART_LEAST: i32 = 16 * LEVEL as i32;
/// Largest remainder of a cell that counts in the comparison of two fits: more is movement.
const LEFT_MAX: u16 = 8 * LEVEL as u16;
/// Factor of unchanged light.
const SAME: u16 = 1 << 14;

/// Change of light that all cells share: `new = old * factor + offset`.
#[derive(Clone, Copy)]
pub(super) struct Light {
    /// Factor in 1/[`SAME`].
    factor: u16,
    /// Offset in 1/[`LEVEL`].
    offset: i16,
    /// Darkest and lightest value for which the light is known; values beyond are clipped.
    known: [u16; 2],
}

impl Light {
    /// Returns the factor by which the median block became lighter.
    #[inline(always)]
    fn scaled(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> Light {
        let mut ratios: [u32; BLOCKS] = std::array::from_fn(|block| {
            (u32::from(new[block]) << 14) / u32::from(old[block]).max(1)
        });
        let factor = (*ratios.select_nth_unstable(BLOCKS / 2).1).min(u16::MAX.into()) as u16;
        Light { factor, offset: 0, known: [0, u16::MAX] }
    }

    /// Returns the line through the medians of the darker and of the lighter half of the blocks.
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
        Some(Light { factor, offset, known: KNOWN })
    }

    /// Returns the offset that the median block gained or lost.
    fn added(old: &[u16; BLOCKS], new: &[u16; BLOCKS]) -> Light {
        let mut gains: [i16; BLOCKS] =
            std::array::from_fn(|block| new[block] as i16 - old[block] as i16);
        let offset = *gains.select_nth_unstable(BLOCKS / 2).1;
        Light { factor: SAME, offset, known: KNOWN }
    }

    /// Returns the factor, or another light that leaves less than three quarters of the factor's remainder.
    #[inline(always)]
    pub(super) fn between(old: &Luma, new: &Luma) -> Light {
        let left = |light: Light| -> u32 {
            let cells = old.cells.iter().zip(&new.cells);
            let changes = cells.map(|(&old, &new)| light.change(old, new).unwrap_or(0));
            changes.map(|change| u32::from(change.unsigned_abs().min(LEFT_MAX))).sum()
        };
        let (old_blocks, new_blocks) = (&old.blocks, &new.blocks);
        let scaled = Light::scaled(old_blocks, new_blocks);
        if scaled.factor.abs_diff(SAME) <= SAME / 256 {
            return scaled;
        }
        let scaled = Light { known: [0, KNOWN[1]], ..scaled };
        let unexplained = left(scaled);
        let others =
            [Some(Light::added(old_blocks, new_blocks)), Light::shifted(old_blocks, new_blocks)];
        let others = others.into_iter().flatten().map(|light| (left(light), light));
        let best =
            others.min_by_key(|(left, _)| *left).filter(|(left, _)| 4 * left < 3 * unexplained);
        best.map_or(scaled, |(_, light)| light)
    }

    /// Returns the change of a cell beyond the light; `None` if a value is clipped, unless only the old one
    /// is and the cell moves away from that end: a dark object before a white sky stays visible.
    #[inline(always)]
    pub(super) fn change(self, old: u16, new: u16) -> Option<i16> {
        let scaled = (u32::from(old << 2) * u32::from(self.factor)) >> 16;
        let scaled = (scaled as u16).min(i16::MAX as u16) as i16;
        let change = new as i16 - scaled.saturating_add(self.offset);
        let [darkest, lightest] = self.known;
        let comes_away = (old >= darkest || change > 0) && (old <= lightest || change < 0);
        (comes_away && (darkest..=lightest).contains(&new)).then_some(change)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_factor_is_that_of_the_median_block() {
        let [old, mut new] = [[100 * LEVEL as u16; BLOCKS]; 2];
        new[..BLOCKS / 4].fill(50 * LEVEL as u16);
        new[BLOCKS / 4..BLOCKS / 2].fill(200 * LEVEL as u16);
        assert_eq!(Light::scaled(&old, &new).factor, SAME);
    }
}
