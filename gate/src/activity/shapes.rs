//! Shapes larger than nine cells, such as people and cars, that stand out of grain.

use super::change::{Rows, bounded, deviation};
use crate::{
    cells::{LUMA_COLUMNS, LUMA_ROWS},
    thumbnail::LEVEL,
};

/// Highest earlier change, in quarters of the noise, that counts as grain; shapes are sought in grain only.
const GRAIN: i32 = 16;
/// Least strength of a moving shape.
const SEED: i32 = 50 * LEVEL as i32;
/// Least strength of a moving shape in quarters of the noise; the larger of both applies.
const SEED_NOISE: i32 = 26;

/// Noise and maximum of the strengths over a picture.
#[derive(Clone, Copy, Debug)]
pub(super) struct Spread {
    /// Deviation of the strengths.
    pub(super) noise: i32,
    /// Highest strength.
    pub(super) highest: i16,
}

impl Spread {
    /// Spread of a picture in which nothing changed.
    pub(super) const NONE: Spread = Spread { noise: 0, highest: 0 };

    /// Measures the spread of `strengths`.
    #[inline(always)]
    pub(super) fn of(strengths: &Rows) -> Spread {
        let highest = strengths.as_flattened().iter().fold(0, |most, &value| most.max(value));
        Spread { noise: deviation(strengths), highest }
    }

    /// Returns the largest noise and the largest maximum of several spreads.
    pub(super) fn most(spreads: impl Iterator<Item = Spread>) -> Spread {
        spreads.fold(Spread::NONE, |most, spread| Spread {
            noise: most.noise.max(spread.noise),
            highest: most.highest.max(spread.highest),
        })
    }
}

/// Groups of more than nine cells, as large as people and cars: they exceed noise before their parts do.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// Nine cells with those two above and those two below: three columns and seven rows.
    Standing,
    /// Nine cells left and right of the middle one: five columns and three rows.
    Lying,
}

pub(super) const SHAPES: [Shape; 2] = [Shape::Standing, Shape::Lying];

impl Shape {
    /// Writes the strength of the shape around each cell, halved to fit 16 bits, from the sums of nine cells.
    #[inline(always)]
    pub(super) fn strengths(self, sums: &Rows, told: &mut Rows) {
        for (y, told) in told.iter_mut().enumerate() {
            *told = match self {
                Shape::Standing => {
                    let [above, middle, below] =
                        [y.saturating_sub(2), y, (y + 2).min(LUMA_ROWS - 1)].map(|y| &sums[y]);
                    std::array::from_fn(|x| {
                        let sides = (above[x] / 2).saturating_add(below[x] / 2);
                        sides.saturating_add(middle[x] / 2).saturating_abs()
                    })
                }
                Shape::Lying => {
                    let (row, mut wide) = (&sums[y], [0; LUMA_COLUMNS + 2]);
                    wide[1..=LUMA_COLUMNS].copy_from_slice(row);
                    (wide[0], wide[LUMA_COLUMNS + 1]) = (row[0], row[LUMA_COLUMNS - 1]);
                    std::array::from_fn(|x| (wide[x] / 2 + wide[x + 2] / 2).abs())
                }
            };
        }
    }

    /// Returns the least strengths of a seed and of cells connected to it; `None` without grain, or while the
    /// noise grows, as when a camera begins to shake.
    pub(super) fn least(now: Spread, before: Spread) -> Option<[i16; 2]> {
        let is_grain = i32::from(before.highest) <= GRAIN * now.noise / 4;
        let stays = 5 * now.noise <= 6 * before.noise;
        let seed = SEED.max(SEED_NOISE * now.noise / 4);
        (is_grain && stays).then(|| [seed, seed * 3 / 5].map(bounded))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shape_is_strongest_in_the_middle_of_what_has_it() {
        // The change of 100 per cell covers three columns and seven rows, and five columns and three rows.
        let cases = [(Shape::Standing, [1, 3], 1350), (Shape::Lying, [2, 1], 900)];
        for (shape, [across, down], expected) in cases {
            let (mut sums, mut told) =
                ([[0; LUMA_COLUMNS]; LUMA_ROWS], [[0; LUMA_COLUMNS]; LUMA_ROWS]);
            let shared = |from: usize, middle: usize, reach: usize| {
                let inside = |at: usize| at.abs_diff(middle) <= reach;
                (from.saturating_sub(1)..=from + 1).filter(|&at| inside(at)).count() as i16
            };
            for (y, row) in sums.iter_mut().enumerate() {
                for (x, sum) in row.iter_mut().enumerate() {
                    *sum = -100 * shared(x, 30, across) * shared(y, 20, down);
                }
            }
            shape.strengths(&sums, &mut told);
            assert_eq!((told[20][30], Spread::of(&told).highest), (expected, expected));
        }
    }

    #[test]
    fn a_shape_moves_where_grain_stays_as_it_was() {
        let spread = |noise, highest| Spread { noise, highest };
        let cases = [
            ("grain", spread(1000, 7000), spread(1000, 4000), Some([6500, 3900])),
            ("less noise than of black", spread(8, 3000), spread(8, 30), Some([3200, 1920])),
            ("flakes before", spread(1000, 7000), spread(1000, 4001), None),
            ("noise that grows", spread(1201, 7000), spread(1000, 4000), None),
            ("noise that is as before", spread(1200, 7000), spread(1000, 4000), Some([7800, 4680])),
            ("beyond what fits", spread(8000, 7000), spread(8000, 4000), Some([i16::MAX, 31_200])),
        ];
        for (name, now, before, expected) in cases {
            assert_eq!(Shape::least(now, before), expected, "{name}");
        }
    }
}
