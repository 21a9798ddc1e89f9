//! Loop detection: do the last pictures repeat, by their perceptual hashes?
//!
//! A picture is a run of frames whose hashes stay close, so a static scene is one picture and no
//! loop. A loop is entered when the last two pictures match, in order, two earlier ones of a ring
//! of eight; one return alone is a flash or an answering shot.

/// Pictures remembered.
const RING: usize = 8;
/// Hash bits in which frames of the same picture may differ: what noise and small motion move.
const SAME_PICTURE_BITS: u32 = 6;

/// Remembers the last pictures and says when they begin to repeat.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoopDetector {
    /// First hash of each picture, newest first.
    ring: [u64; RING],
    len: usize,
    inside: bool,
}

impl LoopDetector {
    /// Takes the next frame's hash; true when a loop is entered, once per entry.
    pub(crate) fn push(&mut self, hash: u64) -> bool {
        if self.len > 0 && same_picture(self.ring[0], hash) {
            return false;
        }
        self.ring.rotate_right(1);
        self.ring[0] = hash;
        self.len = (self.len + 1).min(RING);
        let pictures = &self.ring[..self.len];
        let repeats = (2..pictures.len().saturating_sub(1)).any(|period| {
            same_picture(pictures[0], pictures[period])
                && same_picture(pictures[1], pictures[period + 1])
        });
        let entered = repeats && !self.inside;
        self.inside = repeats;
        entered
    }
}

fn same_picture(a: u64, b: u64) -> bool {
    (a ^ b).count_ones() <= SAME_PICTURE_BITS
}

#[cfg(test)]
mod tests {
    use super::*;

    // Far apart in every pair.
    const A: u64 = 0x0000_0000_ffff_ffff;
    const B: u64 = 0x0000_ffff_0000_ffff;
    const C: u64 = 0x00ff_00ff_00ff_00ff;
    const D: u64 = 0x0f0f_0f0f_0f0f_0f0f;

    #[test]
    fn a_loop_is_entered_once_when_two_pictures_repeat() {
        let cases: [(&str, &[u64], &[usize]); 7] = [
            ("static", &[A, A, A, A, A, A], &[]),
            ("noise moves a few bits", &[A, A ^ 1, A, A ^ 7, A, A ^ 1], &[]),
            ("flash", &[A, A, B, A, A, A], &[]),
            ("shots", &[A, B, C, D, !A, !B], &[]),
            ("period of two", &[A, B, A, B, A, B], &[3]),
            ("period of three, held frames", &[A, A, B, B, C, C, A, A, B, B, C, A], &[8]),
            (
                "left and entered again",
                &[A, B, A, B, C, D, !D, !C, !A, !B, C ^ 0xff00, D, !A, D, !A],
                &[3, 14],
            ),
        ];
        for (name, hashes, expected) in cases {
            let mut detector = LoopDetector::default();
            let entered: Vec<usize> =
                (0..hashes.len()).filter(|&at| detector.push(hashes[at])).collect();
            assert_eq!(entered, expected, "{name}");
        }
    }
}
