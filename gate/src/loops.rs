//! Loop detection by perceptual hashes: the last pictures repeat.
//!
//! A picture here is a run of frames whose hashes stay close, so a static scene is one picture and no loop. A
//! loop is entered when the last two pictures match two consecutive earlier ones of a ring of eight; one
//! return alone is a flash or a cut back to a shot. Every frame counts, selected or not: a loop is a function
//! of the signals.

use media::{Score, Signal};

/// Number of pictures remembered.
const RING: usize = 8;
/// Largest hash distance within a picture: noise and small motion.
const SAME_PICTURE_BITS: u32 = 6;

/// Loop that a frame enters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoopEntered {
    /// First frame of the second repeated picture.
    pub frame_index: u64,
    /// Presentation time of that frame in milliseconds.
    pub pts_ms: i64,
    /// First frame of the earlier picture that it repeats.
    pub to_frame: u64,
    /// Fraction of equal hash bits in the less similar of the two pairs of pictures.
    pub likeness: Score,
}

/// Remembers the last pictures and reports when they begin to repeat.
#[derive(Clone, Debug, Default)]
pub struct Loops {
    /// First hash and first frame of each picture, newest first.
    ring: [(u64, u64); RING],
    len: usize,
    is_inside: bool,
}

impl Loops {
    /// Takes the signal of the next frame and returns a loop once each time it is entered.
    pub fn push(&mut self, signal: &Signal) -> Option<LoopEntered> {
        let &Signal { frame_index, pts_ms, perceptual_hash, .. } = signal;
        if self.len > 0 && distance(self.ring[0].0, perceptual_hash) <= SAME_PICTURE_BITS {
            return None;
        }
        self.ring.rotate_right(1);
        self.ring[0] = (perceptual_hash, frame_index);
        self.len = (self.len + 1).min(RING);
        let was_inside = std::mem::replace(&mut self.is_inside, false);
        let (to_frame, bits) = self.repeated()?;
        self.is_inside = true;
        let likeness = Score::from_ratio((u64::BITS - bits).into(), u64::BITS.into());
        (!was_inside).then_some(LoopEntered { frame_index, pts_ms, to_frame, likeness })
    }

    /// Returns true while the pictures repeat.
    pub fn is_inside(&self) -> bool {
        self.is_inside
    }

    /// Returns the first frame of the latest earlier picture that the newest one repeats, if the pictures
    /// before both also match; and the larger hash distance of the two pairs.
    fn repeated(&self) -> Option<(u64, u32)> {
        let pictures = &self.ring[..self.len];
        let earlier = pictures.windows(2).skip(2);
        let mut repeated = earlier.map(|pair| {
            let bits = [0, 1].map(|at| distance(pictures[at].0, pair[at].0));
            (pair[0].1, bits[0].max(bits[1]))
        });
        repeated.find(|(_, bits)| *bits <= SAME_PICTURE_BITS)
    }
}

fn distance(a: u64, b: u64) -> u32 {
    (a ^ b).count_ones()
}

#[cfg(test)]
mod tests {
    use super::*;

    // Hashes that differ in many bits from each other.
    const A: u64 = 0x0000_0000_ffff_ffff;
    const B: u64 = 0x0000_ffff_0000_ffff;
    const C: u64 = 0x00ff_00ff_00ff_00ff;
    const D: u64 = 0x0f0f_0f0f_0f0f_0f0f;

    fn signal(frame_index: u64, perceptual_hash: u64) -> Signal {
        Signal { perceptual_hash, ..Signal::plain(frame_index, frame_index as i64 * 40) }
    }

    #[test]
    fn a_loop_is_entered_once_when_two_pictures_repeat() {
        /// Name, hashes, and for each loop the frame that enters it and the frame it returns to.
        type Row = (&'static str, &'static [u64], &'static [(u64, u64)]);
        let rows: [Row; 11] = [
            ("static", &[A, A, A, A, A, A], &[]),
            ("noise moves a few bits", &[A, A ^ 1, A, A ^ 7, A, A ^ 1], &[]),
            ("flash", &[A, A, B, A, A, A], &[]),
            ("answering shot, held frames", &[A, A, B, B, A, A, C], &[]),
            ("shots", &[A, B, C, D, !A, !B], &[]),
            ("period of two", &[A, B, A, B, A, B], &[(3, 1)]),
            ("period of three, held frames", &[A, A, B, B, C, C, A, A, B, B, C, A], &[(8, 2)]),
            ("the nearest return is told", &[A, B, A, B, C, A, B], &[(3, 1), (6, 3)]),
            ("period of six", &[A, B, C, D, !A, !B, A, B, C], &[(7, 1)]),
            ("forgotten", &[A, B, C, D, !A, !B, !C, A, B, C, D], &[]),
            (
                "left and entered again",
                &[A, B, A, B, C, D, !D, !C, !A, !B, C ^ 0xff00, D, !A, D, !A],
                &[(3, 1), (14, 12)],
            ),
        ];
        for (name, hashes, expected) in rows {
            let mut loops = Loops::default();
            let entered = hashes.iter().zip(0..).filter_map(|(hash, frame)| {
                let entered = loops.push(&signal(frame, *hash))?;
                assert_eq!((entered.frame_index, entered.pts_ms), (frame, frame as i64 * 40));
                Some((frame, entered.to_frame))
            });
            assert_eq!(entered.collect::<Vec<_>>(), expected, "{name}");
        }
    }

    #[test]
    fn the_less_alike_pair_tells_the_likeness() {
        for (third, fourth, bits) in [(A, B, 0), (A ^ 0b11, B, 2), (A ^ 1, B ^ 0x3f, 6)] {
            let mut loops = Loops::default();
            let hashes = [A, B, third, fourth].into_iter().zip(0..);
            let entered = hashes.filter_map(|(hash, frame)| loops.push(&signal(frame, hash)));
            let likeness: Vec<_> = entered.map(|entered| entered.likeness).collect();
            assert_eq!(likeness, [Score::from_ratio(64 - bits, 64)], "{bits} bits");
        }
    }

    #[test]
    fn what_stays_after_a_return_is_still_the_loop() {
        let mut loops = Loops::default();
        let inside = [A, B, A, B, B ^ 1, A, C].map(|hash| {
            loops.push(&signal(0, hash));
            loops.is_inside()
        });
        assert_eq!(inside, [false, false, false, true, true, true, false]);
    }
}
