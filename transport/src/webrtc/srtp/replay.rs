//! Replay window of a source, and estimation of packet indices.

/// Size of the window in packets. A retransmission in the media stream may be as late as a jitter buffer
/// waits; RFC 3711 3.3.2 requires 64 at least.
const PACKETS: u64 = 1024;
const WORDS: usize = (PACKETS / 64) as usize;

/// Newest index, and a bit for each index of the window.
#[derive(Clone, Default)]
pub(super) struct ReplayWindow {
    newest: Option<u64>,
    bits: [u64; WORDS],
}

impl ReplayWindow {
    /// Returns the index with the low bits `sequence` that is nearest to the newest index (RFC 3711 appendix
    /// A).
    pub(super) fn guess(&self, sequence: u16) -> u64 {
        let Some(newest) = self.newest else { return u64::from(sequence) };
        let distance = i64::from(sequence.wrapping_sub(newest as u16) as i16);
        // No index is negative, so the packet belongs later in the first round.
        newest.checked_add_signed(distance).unwrap_or(u64::from(sequence))
    }

    /// Returns true if a packet with this index may be accepted.
    pub(super) fn is_new(&self, index: u64) -> bool {
        match self.newest {
            None => true,
            Some(newest) if index > newest => true,
            Some(newest) if newest - index >= PACKETS => false,
            Some(_) => {
                let (word, bit) = place(index);
                self.bits[word] & bit == 0
            }
        }
    }

    /// Marks an index as accepted; it must be new and authenticated.
    pub(super) fn take(&mut self, index: u64) {
        match self.newest {
            Some(newest) if index > newest => {
                if index - newest >= PACKETS {
                    self.bits = [0; WORDS];
                } else {
                    for skipped in newest + 1..index {
                        let (word, bit) = place(skipped);
                        self.bits[word] &= !bit;
                    }
                }
                self.newest = Some(index);
            }
            Some(_) => {}
            None => self.newest = Some(index),
        }
        let (word, bit) = place(index);
        self.bits[word] |= bit;
    }
}

/// Returns the word and the bit of an index; the window is a ring.
fn place(index: u64) -> (usize, u64) {
    let at = index % PACKETS;
    ((at / 64) as usize, 1 << (at % 64))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn indices_follow_the_sequence_over_its_end() {
        let mut window = ReplayWindow::default();
        for (sequence, expected) in [
            (65_530, 65_530),
            (65_535, 65_535),
            (2, 65_538),
            (65_534, 65_534),
            (40_000, 40_000),
            (20_000, 85_536),
        ] {
            let index = window.guess(sequence);
            assert_eq!(index, expected, "{sequence}");
            if window.is_new(index) {
                window.take(index);
            }
        }
        let mut early = ReplayWindow::default();
        early.take(3);
        assert_eq!(early.guess(65_535), 65_535, "nothing is before zero");
    }

    proptest! {
        #[test]
        fn each_index_is_taken_once(steps in proptest::collection::vec(0u64..4000, 1..400)) {
            let mut window = ReplayWindow::default();
            let mut taken = BTreeSet::new();
            for index in steps {
                let newest = taken.last().copied();
                let old = newest.is_some_and(|newest: u64| newest.saturating_sub(index) >= PACKETS);
                prop_assert_eq!(window.is_new(index), !old && !taken.contains(&index));
                if window.is_new(index) {
                    window.take(index);
                    taken.insert(index);
                }
            }
        }
    }
}
