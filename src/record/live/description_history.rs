//! History of descriptions that a worker keeps from one answer to the next, and how far the next one differs.

use std::collections::{HashSet, VecDeque};

use media::{Score, Seq};
use timeline::FindingPayload;

/// Maximum number of descriptions kept.
const REMEMBERED: usize = 8;
/// Highest overlap of two descriptions that counts as a change of state.
const TRANSITION: Score = Score::from_millionths(500_000);

/// Last answers of one description worker.
#[derive(Default)]
pub struct DescriptionHistory {
    /// Class of the last recorded failure; `None` since the last answer.
    pub failing: Option<&'static str>,
    /// Last descriptions and the sequence numbers of their events, newest last.
    told: VecDeque<(Seq, FindingPayload)>,
}

impl DescriptionHistory {
    /// Returns the kept event whose description equals that of `found`.
    pub fn repeated(&self, found: &FindingPayload) -> Option<(Seq, FindingPayload)> {
        self.told.iter().find(|(_, told)| told.description == found.description).cloned()
    }

    /// Returns the overlap of `found` with the last description, if that is a change of state.
    pub fn changed(&self, found: &FindingPayload) -> Option<Score> {
        let (_, last) = self.told.back()?;
        Some(overlap(&last.description, &found.description)).filter(|shared| *shared <= TRANSITION)
    }

    /// Keeps `finding`, which the event `seq` recorded; drops the oldest one over the limit.
    pub fn remember(&mut self, seq: Seq, finding: FindingPayload) {
        if self.told.len() == REMEMBERED {
            self.told.pop_front();
        }
        self.told.push_back((seq, finding));
    }
}

/// Returns the words in both texts as a share of all their words; 1 if both are empty.
fn overlap(one: &str, other: &str) -> Score {
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
