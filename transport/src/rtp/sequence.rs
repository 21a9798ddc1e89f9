//! Unwrapping of 16-bit sequence numbers (RFC 3550 A.1).

/// Largest step ahead that counts as a loss.
const AHEAD_MAX: i64 = 3000;
/// Largest step back that counts as a late packet; the RFC's 100 is too small for a fast stream with 200 ms
/// of jitter.
const BACK_MAX: i64 = 2048;
/// Numbers skipped at a restart, so that no earlier number is near.
const RESTART_STEP: i64 = 1 << 17;

/// Unwrapped number of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum UnwrappedSeq {
    At(i64),
    /// The source restarted its numbers; the sequence continues here.
    Restarted(i64),
    /// The number is far from all others; it is accepted when its successor follows.
    OutOfRange,
}

/// Sequence number state of one source.
#[derive(Debug, Default)]
pub(super) struct SequenceUnwrapper {
    highest: Option<i64>,
    /// Successor of the last out-of-range number.
    expected: Option<u16>,
}

impl SequenceUnwrapper {
    pub(super) fn place(&mut self, sequence: u16) -> UnwrappedSeq {
        let Some(highest) = self.highest else {
            // Far enough from 0 that late packets of the beginning stay positive.
            let first = RESTART_STEP + i64::from(sequence);
            self.highest = Some(first);
            return UnwrappedSeq::At(first);
        };
        let step = i64::from(sequence.wrapping_sub(highest as u16) as i16);
        if (-BACK_MAX..=AHEAD_MAX).contains(&step) {
            self.expected = None;
            self.highest = Some(highest.max(highest + step));
            return UnwrappedSeq::At(highest + step);
        }
        if self.expected != Some(sequence) {
            self.expected = Some(sequence.wrapping_add(1));
            return UnwrappedSeq::OutOfRange;
        }
        self.expected = None;
        let restarted = highest + RESTART_STEP + step;
        self.highest = Some(restarted);
        UnwrappedSeq::Restarted(restarted)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn numbers_go_on_through_wraps_losses_and_restarts() {
        let base = RESTART_STEP;
        let cases: [(&str, &[u16], UnwrappedSeq); 10] = [
            ("the first", &[7], UnwrappedSeq::At(base + 7)),
            ("the next", &[7, 8], UnwrappedSeq::At(base + 8)),
            ("after a wrap", &[65_535, 0], UnwrappedSeq::At(base + 65_536)),
            ("late over a wrap", &[65_535, 1, 0], UnwrappedSeq::At(base + 65_536)),
            ("before the first", &[0, 65_535], UnwrappedSeq::At(base - 1)),
            ("a loss", &[7, 3007], UnwrappedSeq::At(base + 3007)),
            ("a jump", &[7, 3008], UnwrappedSeq::OutOfRange),
            ("a jump and another", &[7, 30_000, 60_000], UnwrappedSeq::OutOfRange),
            ("one stray", &[7, 30_000, 8], UnwrappedSeq::At(base + 8)),
            ("a restart", &[7, 30_000, 30_001], UnwrappedSeq::Restarted(2 * base + 30_001)),
        ];
        for (name, numbers, expected) in cases {
            let mut sequences = SequenceUnwrapper::default();
            let last = numbers.iter().map(|&number| sequences.place(number)).last();
            assert_eq!(last, Some(expected), "{name}");
        }
    }

    proptest! {
        #[test]
        fn steps_within_the_window_are_kept(first: u16, steps in proptest::collection::vec(-2000_i64..2900, 1..60)) {
            let mut sequences = SequenceUnwrapper::default();
            sequences.place(first);
            let (mut highest, start) = (i64::from(first), i64::from(first));
            for step in steps {
                let number = highest + step;
                let place = sequences.place(number.rem_euclid(1 << 16) as u16);
                prop_assert_eq!(place, UnwrappedSeq::At(RESTART_STEP + start + (number - start)));
                highest = highest.max(number);
            }
        }

        #[test]
        fn whatever_comes_low_bits_are_kept(numbers: Vec<u16>) {
            let mut sequences = SequenceUnwrapper::default();
            for number in numbers {
                if let UnwrappedSeq::At(at) | UnwrappedSeq::Restarted(at) = sequences.place(number) {
                    prop_assert_eq!(at.rem_euclid(1 << 16), i64::from(number));
                }
            }
        }
    }
}
