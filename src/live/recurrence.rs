//! Loop detection over the hashes of the last selected frames.
//!
//! A picture that stays is no loop; one that returns after another is.

use std::collections::VecDeque;

use media::Score;

/// Selected frames that are remembered.
const REMEMBERED: usize = 8;
/// Hashes that differ in no more bits than this are of one picture.
const DISTANCE_MAX: u32 = 4;

/// The return of an earlier picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Return {
    /// The frame that it returned to.
    pub to_frame: u64,
    /// Bits in which the two hashes differ.
    pub distance: u32,
}

impl Return {
    /// The part of the bits in which the two hashes agree.
    pub fn likeness(&self) -> Score {
        Score::from_millionths(Score::SCALE - self.distance * (Score::SCALE / u64::BITS))
    }
}

/// The last selected frames of a session.
#[derive(Debug, Default)]
pub struct Recurrence {
    /// Hash and frame, the newest last.
    last: VecDeque<(u64, u64)>,
    is_looping: bool,
}

impl Recurrence {
    /// Takes the hash of the next selected frame; a return is told once, when the loop is entered.
    pub fn offer(&mut self, hash: u64, frame_index: u64) -> Option<Return> {
        let before = std::mem::replace(&mut self.is_looping, false);
        let distance = |(known, _): &(u64, u64)| (known ^ hash).count_ones();
        let mut earlier = self.last.iter().rev().skip_while(|one| distance(one) <= DISTANCE_MAX);
        let returned = earlier.find(|one| distance(one) <= DISTANCE_MAX);
        let returned = returned.map(|one| Return { to_frame: one.1, distance: distance(one) });
        self.is_looping = returned.is_some();
        if self.last.len() == REMEMBERED {
            self.last.pop_front();
        }
        self.last.push_back((hash, frame_index));
        returned.filter(|_| !before)
    }

    /// The last frame that was offered belongs to a loop.
    pub fn is_looping(&self) -> bool {
        self.is_looping
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name, hashes in their order, and the frames at which a loop is entered with those returned to.
    type Row = (&'static str, &'static [u64], &'static [(u64, u64)]);

    #[test]
    fn a_loop_is_told_once_each_time_it_is_entered() {
        const A: u64 = 0;
        const B: u64 = 0xffff;
        const C: u64 = 0xffff_0000;
        const NEAR_A: u64 = 0b11;
        let rows: [Row; 7] = [
            ("still", &[A, A, A, A, A, A, A, A, A, A], &[]),
            ("no return", &[A, B, C], &[]),
            ("there and back", &[A, B, A], &[(2, 0)]),
            ("there and nearly back", &[A, B, NEAR_A], &[(2, 0)]),
            ("goes on", &[A, B, A, B, A, A, B], &[(2, 0)]),
            ("left and entered again", &[A, B, A, C, B], &[(2, 0), (4, 1)]),
            ("forgotten", &[A, B, B, B, B, B, B, B, B, A], &[]),
        ];
        for (name, hashes, expected) in rows {
            let mut recurrence = Recurrence::default();
            let entered = hashes.iter().zip(0..).filter_map(|(hash, frame)| {
                recurrence.offer(*hash, frame).map(|found| (frame, found.to_frame))
            });
            assert_eq!(entered.collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn what_stays_after_a_return_is_still_the_loop() {
        let mut recurrence = Recurrence::default();
        let looping = [0, 0xffff, 0, 0, 0xffff_0000].map(|hash| {
            recurrence.offer(hash, 0);
            recurrence.is_looping()
        });
        assert_eq!(looping, [false, false, true, true, false]);
    }
}
