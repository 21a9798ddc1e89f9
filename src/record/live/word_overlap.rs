//! Jaccard overlap of the words of two descriptions.

use std::collections::HashSet;

use media::Score;

/// Highest overlap of two descriptions that counts as a change of state.
pub const TRANSITION: Score = Score::from_millionths(500_000);

/// Returns the words in both texts as a share of all their words; 1 if both are empty.
pub fn overlap(one: &str, other: &str) -> Score {
    let (one, other) = (words(one), words(other));
    let shared = one.intersection(&other).count() as u64;
    let all = one.union(&other).count() as u64;
    if all == 0 {
        return Score::ONE;
    }
    Score::from_millionths((shared * u64::from(Score::SCALE) / all) as u32)
}

fn words(text: &str) -> HashSet<String> {
    let words = text.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(str::to_lowercase).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_of_words_whatever_their_case_and_order() {
        let rows = [
            ("nothing", "", "", 1_000_000),
            ("one says nothing", "a van", "", 0),
            ("the same", "A van, parked.", "parked: a VAN", 1_000_000),
            ("half", "a red van", "a van", 666_666),
            ("a third", "a van", "a dog", 333_333),
            ("other scripts", "ein Überweg", "EIN ÜBERWEG", 1_000_000),
        ];
        for (name, one, other, expected) in rows {
            assert_eq!(overlap(one, other).millionths(), expected, "{name}");
            assert_eq!(overlap(other, one), overlap(one, other), "{name}");
        }
    }
}
