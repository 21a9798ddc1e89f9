//! Gives every decoded picture the exact time of its access unit.
//!
//! Decoders carry an integer from packet to picture through any reordering. Here it is a key into a bounded
//! table, so times keep their own timebase. Pure.

use std::collections::VecDeque;

use media::Timestamp;

/// Most units without a picture yet: more than any codec reorders (16), with room for units without a
/// picture.
const PENDING_MAX: usize = 64;

/// Times of the units whose pictures have not come out.
#[derive(Debug, Default)]
pub(crate) struct PtsPairing {
    pending: VecDeque<(i64, Timestamp)>,
    next_key: i64,
}

impl PtsPairing {
    /// Returns the key to send with the unit presented at `pts`.
    pub(crate) fn insert(&mut self, pts: Timestamp) -> i64 {
        if self.pending.len() == PENDING_MAX {
            self.pending.pop_front();
        }
        let key = self.next_key;
        self.next_key += 1;
        self.pending.push_back((key, pts));
        key
    }

    /// Returns the time of `key` and removes it.
    pub(crate) fn take(&mut self, key: i64) -> Option<Timestamp> {
        let at = self.pending.iter().position(|&(pending, _)| pending == key)?;
        self.pending.remove(at).map(|(_, pts)| pts)
    }

    /// Forgets all units: none of their pictures will come.
    pub(crate) fn clear(&mut self) {
        self.pending.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reordered_pictures_get_their_own_times() {
        let mut pairing = PtsPairing::default();
        let times = [0, 120, 40, 80].map(Timestamp::from_millis);
        let keys = times.map(|pts| pairing.insert(pts));
        for shown in [0, 2, 3, 1] {
            assert_eq!(pairing.take(keys[shown]), Some(times[shown]));
        }
        assert_eq!(pairing.take(keys[0]), None, "each once");
    }

    #[test]
    fn units_without_pictures_do_not_pile_up() {
        let mut pairing = PtsPairing::default();
        let keys: Vec<i64> =
            (0..1000).map(|ms| pairing.insert(Timestamp::from_millis(ms))).collect();
        assert_eq!(pairing.take(keys[999]), Some(Timestamp::from_millis(999)));
        assert_eq!(pairing.take(keys[0]), None);
        assert!(pairing.pending.len() < PENDING_MAX);
        pairing.clear();
        assert_eq!(pairing.take(keys[998]), None);
    }
}
