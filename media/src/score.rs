//! Number in [0, 1], stored in millionths so that equality, means and JSON are exact.

use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Normalised score: an integer number of millionths in 0..=1,000,000.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(remote = "Self")]
pub struct Score(u32);

crate::serde_checked!(Score, |score| score.0 <= Score::SCALE);

impl Score {
    /// The score 0.
    pub const ZERO: Score = Score(0);
    /// The score 1.
    pub const ONE: Score = Score(Score::SCALE);
    /// Number of millionths in 1.
    pub const SCALE: u32 = 1_000_000;

    /// Creates a score of `count` millionths, capped at 1.
    pub const fn from_millionths(count: u32) -> Score {
        Score(if count > Score::SCALE { Score::SCALE } else { count })
    }

    /// Returns the score nearest to `value`; an error outside [0, 1] and for NaN.
    pub fn from_f64(value: f64) -> Result<Score, ParseError> {
        if !(0.0..=1.0).contains(&value) {
            return Err(ParseError { what: "score", problem: "must lie in [0, 1]" });
        }
        Ok(Score((value * f64::from(Score::SCALE)).round() as u32))
    }

    /// Returns `num/den` rounded to the nearest millionth and capped at 1; 0 if `den` is 0.
    pub fn from_ratio(num: u64, den: u64) -> Score {
        if den == 0 {
            return Score::ZERO;
        }
        let scale = u128::from(Score::SCALE);
        let rounded = (u128::from(num) * scale * 2 + u128::from(den)) / (u128::from(den) * 2);
        Score(rounded.min(scale) as u32)
    }

    /// Returns the arithmetic mean, rounded to the nearest millionth; `None` without scores.
    pub fn mean(scores: impl IntoIterator<Item = Score>) -> Option<Score> {
        let (sum, count) = scores
            .into_iter()
            .fold((0u64, 0u64), |(sum, count), score| (sum + u64::from(score.0), count + 1));
        (count > 0).then(|| Score(((2 * sum + count) / (2 * count)) as u32))
    }

    /// Returns the number of millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }

    /// Returns the nearest double, which prints with at most six decimals.
    pub fn as_f64(self) -> f64 {
        f64::from(self.0) / f64::from(Score::SCALE)
    }

    /// Returns 1 minus the score.
    pub fn complement(self) -> Score {
        Score(Score::SCALE - self.0)
    }

    /// Returns the distance between two scores.
    pub fn abs_diff(self, other: Score) -> Score {
        Score(self.0.abs_diff(other.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_of_a_constant_is_the_constant() {
        let score = Score::from_f64(0.7).expect("in range");
        for count in [1, 3, 7, 4096] {
            assert_eq!(Score::mean(vec![score; count]), Some(score), "{count} scores");
        }
        assert_eq!(score.as_f64(), 0.7);
    }

    #[test]
    fn what_lies_outside_zero_to_one_is_refused() {
        for value in [-0.1, 1.000_001, f64::NAN, f64::INFINITY] {
            assert!(Score::from_f64(value).is_err(), "{value}");
        }
    }

    #[test]
    fn ratios_round_and_cap() {
        assert_eq!(Score::from_ratio(1, 3).millionths(), 333_333);
        assert_eq!(Score::from_ratio(2, 3).millionths(), 666_667);
        assert_eq!(Score::from_ratio(9, 3), Score::ONE);
        assert_eq!(Score::from_ratio(9, 0), Score::ZERO);
    }
}
